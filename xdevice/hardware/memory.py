"""Device memory: statistics, the cache, and whether an error says that memory ran out."""

from __future__ import annotations

import os
from typing import Any

from xdevice.contract import MemoryStats
from xdevice.errors import BrokenBackendError, VirtualDeviceError
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import as_device, properties_of, require
from xdevice.hardware.virtual import is_virtual
from xdevice.machine import holders, host_memory, same_gpu
from xdevice.typing import DeviceLike

__all__ = ["empty_cache", "is_out_of_memory", "memory_stats"]


def memory_stats(device: DeviceLike) -> MemoryStats:
    """The device's memory in bytes; ``None`` for numbers that the chosen framework does not report.

    ``total`` and ``free`` are of the device; ``allocated`` is in live tensors of this process,
    ``reserved`` is held by the framework's allocator, ``peak`` is the most that was ever allocated.
    ``holders``, of a real GPU only: what each process holds of it, this one and others, all
    frameworks together. Asking frees nothing.

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
    chosen, where = backend(), as_device(device)
    require(chosen, where)
    stats: MemoryStats = {
        "total": None,
        "free": None,
        "allocated": None,
        "reserved": None,
        "peak": None,
    }
    if where.kind == "cpu" or is_virtual(chosen, where):
        stats["total"], stats["free"] = host_memory()
    elif where.kind == "gpu":
        stats["holders"] = _holders(properties_of(chosen, where)["uuid"])
    stats.update(chosen.memory.memory_stats(where))
    return stats


def _holders(uuid: str | None) -> dict[str, int | None] | None:
    """The processes on the GPU, with their bytes; ``None`` where nothing is known of them."""
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
    """Release the memory that the chosen framework's allocator caches on the device, or on all devices.

    Live tensors stay. Does nothing for a framework without a cache.

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
    chosen = backend()
    where = None if device is None else as_device(device)
    if where is not None:
        require(chosen, where)
    chosen.memory.empty_cache(where)


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether the exception, one of its causes, or one in a group reports that memory ran out.

    True for `MemoryError` and for every imported framework's own error. An error that was raised
    while another was handled, without ``from``, is judged by itself.

    Examples
    --------
    >>> from xdevice import is_out_of_memory
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError())
    (True, False)
    """
    seen: set[int] = set()
    ahead: list[BaseException | None] = [exc]
    for error in ahead:  # grows while it is walked
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        if isinstance(error, MemoryError) or any(
            ask_memory(owner, "is_out_of_memory", error) for owner in imported()
        ):
            return True
        ahead += [error.__cause__, *getattr(error, "exceptions", ())]
    return False


def ask_memory(owner: Backend, function: str, *args: Any) -> Any:
    """What the framework's function of `contract.Memory` returns; ``None`` if it has none, or cannot be used."""
    try:
        return getattr(owner.memory, function)(*args)
    except (BrokenBackendError, NotImplementedError, VirtualDeviceError):
        return None
