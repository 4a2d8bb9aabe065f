"""Memory statistics of PaddlePaddle's allocators."""

import paddle
from paddle.base import core

from xdevice.backends.paddle.hardware import properties, real_gpus, replaced_gpus
from xdevice.backends.paddle.private_names import names
from xdevice.contract import MemoryStats
from xdevice.device import Device
from xdevice.errors import TooLateError

# Paddle's allocators raise MemoryError. These are messages of the libraries that it calls, and of a
# wrapper that raises the error again.
_MESSAGES = (
    "CUDA error(2)",  # cudaErrorMemoryAllocation
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "ResourceExhausted",
)
# The C_FAILED of virtual GPUs' plug-in, which it returns when memory is short
_VIRTUAL_MESSAGE = "CustomDevice error, the error code is : 2"


def memory_stats(device: Device) -> MemoryStats:
    if device.kind == "gpu" and replaced_gpus.number:
        if paddle.__version__.startswith("2."):
            return {}  # 2.6 counts nothing of a plug-in's devices
        names.require("memory_stats")
        return {
            "allocated": core.device_memory_stat_current_value("Allocated", device.index),
            "reserved": core.device_memory_stat_current_value("Reserved", device.index),
            "peak": core.device_memory_stat_peak_value("Allocated", device.index),
        }
    if device.kind != "gpu" or not paddle.is_compiled_with_cuda():
        return {}  # the host allocator keeps no statistics
    cuda = paddle.device.cuda
    return {
        "total": properties(device)["total_memory"],
        "allocated": cuda.memory_allocated(device.index),
        "reserved": cuda.memory_reserved(device.index),
        "peak": cuda.max_memory_allocated(device.index),
    }


def empty_cache(device: Device | None) -> None:
    if device is None or device.kind == "gpu":
        paddle.device.cuda.empty_cache()  # for all GPUs; does nothing in a CPU build


def share(fraction: float | None) -> dict[str, str]:
    if names.value("paddle.base.core:host_memory_stat_peak_value")("Allocated", 0):
        raise TooLateError(
            "paddle has been used, and has its allocators; "
            "call share_gpus() before its first tensor"
        )
    settings = {"FLAGS_allocator_strategy": "auto_growth"}
    if fraction is not None and not replaced_gpus.number and real_gpus():
        gpus = [Device("gpu", i) for i in range(real_gpus())]
        smallest_memory = min(properties(gpu)["total_memory"] or 0 for gpu in gpus)
        settings["FLAGS_gpu_memory_limit_mb"] = str(int(fraction * smallest_memory) >> 20)
    paddle.set_flags({**settings})
    return settings


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, (RuntimeError, OSError)):
        return False
    messages = (*_MESSAGES, _VIRTUAL_MESSAGE) if replaced_gpus.number else _MESSAGES
    return any(message in str(error) for message in messages)
