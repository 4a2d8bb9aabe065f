"""What PaddlePaddle's allocators know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import paddle
from paddle.base import core

from xdevice.backends.paddle.hardware import is_virtual, properties

if TYPE_CHECKING:
    from xdevice.contract import MemoryStats
    from xdevice.device import Device

# Its own allocators raise MemoryError, which the core knows; these are the words of the libraries that it calls.
_WORDS = (
    "CUDA error(2)",  # cudaErrorMemoryAllocation
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "ResourceExhausted",  # raised again by a wrapper
)


_VIRTUAL = "CustomDevice error, the error code is : 2"  # the plug-in's C_FAILED, which only its allocation returns


def memory_stats(device: Device) -> MemoryStats:
    if device.kind == "gpu" and is_virtual():
        return {
            "allocated": core.device_memory_stat_current_value("Allocated", device.index),
            "reserved": core.device_memory_stat_current_value("Reserved", device.index),
            "peak": core.device_memory_stat_peak_value("Allocated", device.index),
        }
    if device.kind != "gpu" or not paddle.is_compiled_with_cuda():
        return {}  # the allocator of the host keeps no account
    cuda = paddle.device.cuda
    return {
        "total": properties(device)["total_memory"],
        "allocated": cuda.memory_allocated(device.index),
        "reserved": cuda.memory_reserved(device.index),
        "peak": cuda.max_memory_allocated(device.index),
    }


def empty_cache(device: Device | None) -> None:
    if device is None or device.kind == "gpu":
        paddle.device.cuda.empty_cache()  # every GPU's; does nothing on a build without


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    words = (*_WORDS, _VIRTUAL) if is_virtual() else _WORDS
    return isinstance(error, (RuntimeError, OSError)) and any(word in str(error) for word in words)
