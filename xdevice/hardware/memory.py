"""Device memory: statistics, the cache, and whether an error says that memory ran out."""

from __future__ import annotations

import os
from typing import Any

from xdevice.contract import MemoryStats
from xdevice.errors import BrokenBackendError, VirtualDeviceError
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import as_device, require
from xdevice.hardware.questions import properties_of
from xdevice.hardware.virtual import is_virtual
from xdevice.machine import holders, host_memory, same_gpu
from xdevice.typing import DeviceLike

__all__ = ["empty_cache", "is_out_of_memory", "memory_stats"]


def memory_stats(device: DeviceLike) -> MemoryStats:
    """The device's memory in bytes; ``None`` for numbers that the chosen framework does not report.

    ``total`` and ``free`` are of the device. ``allocated`` is in live tensors
    of this process, ``reserved`` is held by the framework's allocator, and
    ``peak`` is the most that was ever allocated. Real GPUs also have
    ``holders``: the memory that each process on the machine holds, under all
    frameworks together. The call frees nothing.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     sorted(xdevice.memory_stats("cpu"))
    ['allocated', 'free', 'peak', 'reserved', 'total']
    """
    owner = backend()
    parsed_device = as_device(device)
    require(owner, parsed_device)
    stats: MemoryStats = {
        "total": None,
        "free": None,
        "allocated": None,
        "reserved": None,
        "peak": None,
    }
    if parsed_device.kind == "cpu" or is_virtual(owner, parsed_device):
        stats["total"], stats["free"] = host_memory()
    elif parsed_device.kind == "gpu":
        stats["holders"] = _holders(properties_of(owner, parsed_device)["uuid"])
    stats.update(owner.memory.memory_stats(parsed_device))
    return stats


def _holders(uuid: str | None) -> dict[str, int | None] | None:
    """The processes on the GPU, with their bytes; ``None`` if no process is known."""
    memory_of: dict[str, int | None] = {}
    for holder in holders():
        if not same_gpu(holder["uuid"], uuid):
            continue
        name = f"process {holder['pid']}"
        if holder["pid"] == os.getpid():
            name = "this process"
        elif holder["name"]:
            name += f" ({holder['name']})"
        memory_of[name] = holder["memory"]
    return memory_of or None


def empty_cache(device: DeviceLike | None = None) -> None:
    """Release the memory that the chosen framework's allocator caches.

    With ``device``, only the memory on that device. Live tensors stay. Does
    nothing for a framework without a cache.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.empty_cache()
    """
    owner = backend()
    if device is None:
        owner.memory.empty_cache(None)
        return
    parsed_device = as_device(device)
    require(owner, parsed_device)
    owner.memory.empty_cache(parsed_device)


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether the exception, one of its causes, or one in a group reports that memory ran out.

    True for `MemoryError` and for every imported framework's own error. An
    error that was raised while another was handled, without ``from``, is
    judged by itself.

    Examples
    --------
    >>> from xdevice import is_out_of_memory
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError())
    (True, False)
    """
    visited: set[int] = set()
    errors: list[BaseException | None] = [exc]
    for error in errors:  # the list grows during the loop
        if error is None or id(error) in visited:
            continue
        visited.add(id(error))
        if isinstance(error, MemoryError):
            return True
        if any(ask_memory(owner, "is_out_of_memory", error) for owner in imported()):
            return True
        errors += [error.__cause__, *getattr(error, "exceptions", ())]
    return False


def ask_memory(owner: Backend, function: str, *args: Any) -> Any:
    """The result of a framework's function of `contract.Memory`.

    ``None`` if the adapter lacks the function, or the framework cannot be
    used.
    """
    try:
        return getattr(owner.memory, function)(*args)
    except (BrokenBackendError, NotImplementedError, VirtualDeviceError):
        return None
