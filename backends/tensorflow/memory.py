"""Memory statistics of TensorFlow's allocators, and limits for them."""

import os

import tensorflow as tf

from xdevice import machine
from xdevice.backends.tensorflow.hardware import is_running, native, replaced_gpus
from xdevice.contract import MemoryStats
from xdevice.device import Device
from xdevice.errors import NotSupportedError, TooLateError
from xdevice.units import known

# Messages of the CUDA driver, of cuBLAS, and of TensorFlow when a copy does not fit into the GPU.
_MESSAGES = (
    "OUT_OF_MEMORY",
    "out of memory",
    "ALLOC_FAILED",
    "failed to allocate",
    "Dst tensor is not initialized",
)


def memory_stats(device: Device) -> MemoryStats:
    if device.kind == "cpu" or (replaced_gpus.number and not replaced_gpus.under_own_names):
        return {}  # the host's allocator, which virtual GPUs use too, keeps no statistics
    if not is_running():
        # no memory is in use, and the query would allocate all of it
        return {"allocated": 0, "peak": 0}
    info = tf.config.experimental.get_memory_info(native(device).removeprefix("/"))
    return {"allocated": known(info["current"]), "peak": known(info["peak"])}


def empty_cache(device: Device | None) -> None:
    pass  # TensorFlow keeps freed memory until the process ends, and reuses it


def share(fraction: float | None) -> dict[str, str]:
    if is_running():
        raise TooLateError(
            "tensorflow has been used, and has taken the GPUs' memory; "
            "call share_gpus() before its first tensor"
        )
    if replaced_gpus.number:
        return {}
    settings: dict[str, str] = {}
    for gpu in tf.config.get_visible_devices("GPU"):
        if fraction is None:
            tf.config.experimental.set_memory_growth(gpu, True)
            settings[f"set_memory_growth({gpu.name})"] = "True"
        else:
            limit = _memory_limit(fraction)
            configuration = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
            tf.config.set_logical_device_configuration(gpu, [configuration])
            settings[f"memory_limit({gpu.name})"] = f"{limit} MiB"
            # set_memory_growth raises an error for a device that has a limit
            settings["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
            os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return settings


def _memory_limit(fraction: float) -> int:
    """The fraction of the smallest GPU's memory, in MiB: TensorFlow accepts no fractions."""
    sizes = [gpu["total_memory"] for gpu in machine.gpus()["gpus"]]
    known_sizes = [size for size in sizes if size is not None]
    if not known_sizes:
        raise NotSupportedError(
            "tensorflow needs a limit in bytes; pip install nvidia-ml-py, which knows the memory"
        )
    return int(fraction * min(known_sizes)) >> 20


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return "message larger than max" not in str(error)  # gRPC: the message is too long
    if not isinstance(error, tf.errors.InternalError):
        return False
    return any(message in str(error) for message in _MESSAGES)
