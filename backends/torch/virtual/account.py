"""The memory that each virtual GPU holds: a count of live storages, by the plug-in or here.

torch keeps the Python object of a storage as long as the storage lives, so the callback of a weak reference
runs when the memory is freed, in any thread.
"""

from __future__ import annotations

import weakref
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

import torch

from xdevice.backends.torch.virtual import devices

if TYPE_CHECKING:
    from typing import Any

_held: list[int] = []  # bytes now, by device
_most: list[int] = []  # the largest number so far
_lock = Lock()


class _Entry(weakref.ref):  # type: ignore[type-arg]  # of a storage; generic only for checkers
    __slots__ = ("index", "size")

    index: int
    size: int


_entries: set[_Entry] = set()
_freed: deque[tuple[int, int]] = deque()


def open_for(n: int) -> None:
    """Start counting for that many devices."""
    _held[:], _most[:] = [0] * n, [0] * n


def enter(tensor: torch.Tensor, index: int) -> None:
    """Count the memory of a new tensor."""
    devices.use()
    storage = tensor.untyped_storage()
    entry = _Entry(storage, _strike)
    entry.index, entry.size = index, storage.nbytes()
    with _lock:
        _settle()
        if devices.limited and _held[index] + entry.size > devices.capacity:
            raise _out_of_memory(index, entry.size)
        _entries.add(entry)
        _held[index] += entry.size
        _most[index] = max(_most[index], _held[index])


def _out_of_memory(index: int, size: int) -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError(
        f"vgpu out of memory. Tried to allocate {size} bytes. GPU {index} has a total capacity of {devices.capacity} "
        f"bytes, and {_held[index]} are allocated by PyTorch"
    )


# May run at any moment, even while this thread holds the lock, so it only queues the entry.
def _strike(entry: Any, strike: Any = _entries.discard, queue: Any = _freed.append) -> None:
    strike(entry)
    queue((entry.index, entry.size))


def _settle() -> None:
    while _freed:
        index, size = _freed.popleft()
        _held[index] -= size


def allocated(index: int) -> int:
    """Bytes in live tensors."""
    if devices.plug_in is not None:
        return devices.plug_in.allocated(index)
    with _lock:
        _settle()
        return _held[index]


def peak(index: int) -> int:
    """The largest number of bytes so far, or since `forget_peak`."""
    if devices.plug_in is not None:
        return devices.plug_in.peak(index)
    with _lock:
        return _most[index]


def forget_peak(index: int) -> None:
    """Reset the peak to what is allocated now."""
    if devices.plug_in is not None:
        devices.plug_in.forget_peak(index)
        return
    with _lock:
        _settle()
        _most[index] = _held[index]
