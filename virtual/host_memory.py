"""Refusing allocations for which the host has no memory, before the system ends the process."""

import os
from collections.abc import Callable
from pathlib import Path

from xdevice.machine import host_memory
from xdevice.units import size

_STEP = 64 << 20  # how much is allocated between two looks at the host's memory
_SPARE = 256 << 20  # what is left to the system
_CGROUP = Path("/sys/fs/cgroup")


class HostMemory:
    """The memory of the host, in which virtual GPUs keep their tensors."""

    def __init__(self, allocated: Callable[[], int]) -> None:
        self._allocated = allocated  # the bytes that virtual GPUs have
        self._unchecked = 0
        self._used_at_start = _resident()

    def shortage(self, nbytes: int) -> str:
        """Why these bytes cannot be allocated beside those that virtual GPUs have; else empty.

        The system gives memory to a tensor when it is first written. So what
        is allocated and not written yet is not available either.
        """
        self._unchecked += nbytes
        if self._unchecked < _STEP:
            return ""
        self._unchecked = 0
        available = available_memory()
        if available is None:
            return ""
        allocated = self._allocated()
        written = min(allocated, max(_resident() - self._used_at_start, 0))
        if nbytes + allocated - written + _SPARE <= available:
            return ""
        self._unchecked = _STEP  # look again at the next allocation
        return (
            f"{size(nbytes)} beside the {size(allocated)} that virtual GPUs have, and the host has "
            f"{size(available)} available"
        )


def available_memory() -> int | None:
    """The bytes that this process can still allocate; ``None`` where that is not known."""
    _, available = host_memory()
    in_container = _available_in_container()
    known = [number for number in (available, in_container) if number is not None]
    return min(known, default=None)


def _available_in_container() -> int | None:
    """What the process's control group may still use; ``None`` without a limit."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        rows = (_CGROUP / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):
        return None
    if not limit.isdecimal():
        return None
    reclaimable = next((int(row.split()[1]) for row in rows if row.startswith("inactive_file ")), 0)
    return max(int(limit) - used + reclaimable, 0)


def _resident() -> int:
    """The bytes of memory that this process has; 0 where that is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
