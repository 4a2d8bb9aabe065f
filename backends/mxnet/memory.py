"""What MXNet's storage manager knows."""

import os

import mxnet as mx

from xdevice.backends.mxnet.hardware import gpus, native, replaced_gpus
from xdevice.contract import MemoryStats
from xdevice.device import Device

_WORDS = (  # of MXNet's storage managers, cuBLAS and cuDNN; a smaller batch helps with too many elements as well
    *(
        "Failed to allocate CPU Memory",
        "out of memory",
        "Memory allocation failed",
        "CUBLAS_STATUS_ALLOC_FAILED",
    ),
    *(
        "CUDNN_STATUS_ALLOC_FAILED",
        "Size of tensor you are trying to allocate is larger than 2^31 elements",
    ),
)


def memory_stats(device: Device) -> MemoryStats:
    if device.kind == "cpu" or replaced_gpus.number:
        return {}  # the storage manager of the host keeps no account
    free, total = mx.context.gpu_memory_info(device.index)
    return {"total": total, "free": free}


def empty_cache(device: Device | None) -> None:
    for each in (
        [Device("gpu", i) for i in range(0 if replaced_gpus.number else gpus())]
        if device is None
        else [device]
    ):
        native(each).empty_cache()


def share(fraction: float | None) -> dict[str, str]:
    if fraction is None:
        return {}  # MXNet takes memory when it is needed
    settings = {
        "MXNET_GPU_MEM_POOL_RESERVE": str(round(100 * (1 - fraction)))
    }  # the percentage that it leaves
    os.environ.update(
        settings
    )  # read when a GPU is first used; whether one was, MXNet does not tell
    return settings


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, mx.MXNetError) and any(words in str(error) for words in _WORDS)
