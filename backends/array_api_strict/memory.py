"""Memory of array-api-strict, which keeps no statistics."""

from xdevice.contract import MemoryStats
from xdevice.device import Device


def memory_stats(device: Device) -> MemoryStats:
    return {}


def empty_cache(device: Device | None) -> None:
    pass  # array-api-strict has no cache


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError)
