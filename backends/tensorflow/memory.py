"""What TensorFlow's allocators know."""

import tensorflow as tf

from xdevice.backends.tensorflow.hardware import is_running, is_virtual, native
from xdevice.contract import MemoryStats
from xdevice.device import Device

# From the CUDA driver, cuBLAS, and TensorFlow where a copy to the GPU does not fit there.
_WORDS = ("OUT_OF_MEMORY", "out of memory", "ALLOC_FAILED", "failed to allocate", "Dst tensor is not initialized")


def memory_stats(device: Device) -> MemoryStats:
    if device.kind == "cpu" or is_virtual():
        return {}  # the allocator of the host keeps no account, so none of a virtual GPU either
    if not is_running():
        return {"allocated": 0, "peak": 0}  # asking would take the GPU's memory; nothing is in use
    info = tf.config.experimental.get_memory_info(native(device).removeprefix("/"))
    return {"allocated": info["current"], "peak": info["peak"]}


def empty_cache(device: Device | None) -> None:
    pass  # TensorFlow reuses freed memory and has no means to give it back before the process ends


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return "message larger than max" not in str(error)  # gRPC: the message is too long
    return isinstance(error, tf.errors.InternalError) and any(words in str(error) for words in _WORDS)
