"""Memory of CuPy's pool, and of the GPU."""

import cupy

from xdevice.backends.cupy.hardware import count, native
from xdevice.contract import MemoryStats
from xdevice.device import Device


def memory_stats(device: Device) -> MemoryStats:
    pool = cupy.get_default_memory_pool()
    with native(device) as current:
        free, total = current.mem_info
        stats: MemoryStats = {"total": total, "free": free}
        # with another allocator, the pool's numbers mean nothing
        if cupy.cuda.get_allocator() == pool.malloc:
            stats["allocated"] = pool.used_bytes()
            stats["reserved"] = pool.total_bytes()
        return stats


def empty_cache(device: Device | None) -> None:
    indices = range(count("gpu")) if device is None else [device.index]
    for i in indices:
        with cupy.cuda.Device(i):
            cupy.get_default_memory_pool().free_all_blocks()


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, cupy.cuda.memory.OutOfMemoryError)
