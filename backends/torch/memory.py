"""Memory statistics of PyTorch's allocators."""

from functools import partial

import torch

from xdevice.backends.torch.hardware import are_replaced, gpus, runtime
from xdevice.backends.torch.private_names import names
from xdevice.contract import MemoryStats
from xdevice.device import Device

# Messages of the CUDA and ROCm drivers, cuBLAS and cuDNN, the allocators, and for sizes beyond 64
# bits.
_MESSAGES = (
    "CUDA out of memory",
    "error: out of memory",
    "_STATUS_ALLOC_FAILED",
    "MPS backend out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "Storage size calculation overflowed",
    "numel: integer multiplication overflow",
)


def memory_stats(device: Device) -> MemoryStats:
    kind, _ = gpus()
    if device.kind == "cpu":
        return {}  # the host allocator keeps no statistics
    if kind == "mps":
        return {
            "total": torch.mps.recommended_max_memory(),
            "allocated": torch.mps.current_allocated_memory(),
            "reserved": torch.mps.driver_allocated_memory(),
        }
    module = runtime(kind, device)
    free, total = module.mem_get_info(device.index)
    return {
        "total": total,
        "free": free,
        "allocated": module.memory_allocated(device.index),
        "reserved": module.memory_reserved(device.index),
        "peak": module.max_memory_allocated(device.index),
    }


def empty_cache(device: Device | None) -> None:
    kind, number = gpus()
    if not number or (device is not None and device.kind == "cpu"):
        return
    if device is None or kind != "cuda":
        getattr(torch, kind).empty_cache()
        return
    module = runtime(kind, device)
    with module.device(device.index):
        module.empty_cache()


def share(fraction: float | None) -> dict[str, str]:
    kind, number = gpus()
    if fraction is None or kind != "cuda" or not number or are_replaced():
        return {}  # PyTorch allocates memory when it is needed
    # the setting starts CUDA, after which the program could not fork: so set it when CUDA starts
    call_when_started = names.value("torch.cuda:_lazy_call")
    for i in range(number):
        call_when_started(partial(torch.cuda.set_per_process_memory_fraction, fraction, i))
    return {"torch.cuda.set_per_process_memory_fraction": f"{fraction:g}"}


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        return True
    is_message = any(message in str(error) for message in _MESSAGES)
    return isinstance(error, RuntimeError) and is_message
