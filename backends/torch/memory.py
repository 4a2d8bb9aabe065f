"""Memory statistics of PyTorch's allocators."""

from contextlib import nullcontext
from functools import partial

import torch

from xdevice.backends.torch.hardware import are_replaced, gpus, runtime
from xdevice.backends.torch.private_names import names
from xdevice.contract import MemoryStats
from xdevice.device import Device

# Messages of the CUDA and ROCm drivers, cuBLAS and cuDNN, the allocators, and for sizes beyond 64 bits.
_WORDS = (
    *(
        "CUDA out of memory",
        "error: out of memory",
        "_STATUS_ALLOC_FAILED",
        "MPS backend out of memory",
    ),
    *("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory"),
    *("Storage size calculation overflowed", "numel: integer multiplication overflow"),
)


def memory_stats(device: Device) -> MemoryStats:
    kind, _ = gpus()
    if device.kind == "cpu":
        return {}  # the host allocator keeps no statistics
    if kind == "mps":
        mps = torch.mps
        taken: MemoryStats = {
            "allocated": mps.current_allocated_memory(),
            "reserved": mps.driver_allocated_memory(),
        }
        return {"total": mps.recommended_max_memory(), **taken}
    module, i = runtime(kind, device), device.index
    free, total = module.mem_get_info(i)
    used: MemoryStats = {
        "allocated": module.memory_allocated(i),
        "reserved": module.memory_reserved(i),
    }
    return {"total": total, "free": free, **used, "peak": module.max_memory_allocated(i)}


def empty_cache(device: Device | None) -> None:
    kind, seen = gpus()
    if not seen or (device is not None and device.kind == "cpu"):
        return
    module = runtime(kind, device) if device is not None else getattr(torch, kind)
    with (
        module.device(device.index) if kind == "cuda" and device is not None else nullcontext()
    ):  # restored afterwards
        module.empty_cache()


def share(fraction: float | None) -> dict[str, str]:
    kind, seen = gpus()
    if fraction is None or kind != "cuda" or are_replaced():
        return {}  # PyTorch takes memory when it is needed
    later = names.value("torch.cuda:_lazy_call")
    for i in range(
        seen
    ):  # now, or when CUDA starts, which would be too early for a program that is to fork
        later(partial(torch.cuda.set_per_process_memory_fraction, fraction, i))
    return {"torch.cuda.set_per_process_memory_fraction": f"{fraction:g}"} if seen else {}


def is_out_of_memory(error: BaseException) -> bool:
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)
    return said or isinstance(error, torch.OutOfMemoryError)
