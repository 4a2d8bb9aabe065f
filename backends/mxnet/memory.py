"""Memory statistics of MXNet's storage manager."""

import os

import mxnet as mx

from xdevice.backends.mxnet.hardware import gpus, native, replaced_gpus
from xdevice.contract import MemoryStats
from xdevice.device import Device

# Messages of MXNet's storage managers, cuBLAS and cuDNN. A smaller batch helps with too many
# elements, too.
_MESSAGES = (
    "Failed to allocate CPU Memory",
    "out of memory",
    "Memory allocation failed",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "Size of tensor you are trying to allocate is larger than 2^31 elements",
)


def memory_stats(device: Device) -> MemoryStats:
    if device.kind == "cpu" or replaced_gpus.number:
        return {}  # the host's storage manager keeps no statistics
    free, total = mx.context.gpu_memory_info(device.index)
    return {"total": total, "free": free}


def empty_cache(device: Device | None) -> None:
    if device is not None:
        native(device).empty_cache()
    elif not replaced_gpus.number:
        for i in range(gpus()):
            native(Device("gpu", i)).empty_cache()


def share(fraction: float | None) -> dict[str, str]:
    if fraction is None:
        return {}  # MXNet allocates memory when it is needed
    free_percentage = round(100 * (1 - fraction))
    settings = {"MXNET_GPU_MEM_POOL_RESERVE": str(free_percentage)}
    # MXNet reads this when a GPU is first used, and does not report whether that has happened
    os.environ.update(settings)
    return settings


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, mx.MXNetError) and any(text in str(error) for text in _MESSAGES)
