"""What TensorFlow's allocators know."""

import os

import tensorflow as tf

from xdevice import machine
from xdevice.backends.tensorflow.hardware import is_running, native, replaced_gpus
from xdevice.contract import MemoryStats
from xdevice.device import Device
from xdevice.errors import NotSupportedError, TooLateError

# From the CUDA driver, cuBLAS, and TensorFlow where a copy to the GPU does not fit there.
_WORDS = (
    "OUT_OF_MEMORY",
    "out of memory",
    "ALLOC_FAILED",
    "failed to allocate",
    "Dst tensor is not initialized",
)


def memory_stats(device: Device) -> MemoryStats:
    if device.kind == "cpu" or replaced_gpus.number:
        return {}  # the allocator of the host keeps no account, so none of a virtual GPU either
    if not is_running():
        return {"allocated": 0, "peak": 0}  # asking would take the GPU's memory; nothing is in use
    info = tf.config.experimental.get_memory_info(native(device).removeprefix("/"))
    return {"allocated": info["current"], "peak": info["peak"]}


def empty_cache(device: Device | None) -> None:
    pass  # TensorFlow reuses freed memory and has no means to give it back before the process ends


def share(fraction: float | None) -> dict[str, str]:
    if is_running():
        said = "tensorflow has been used, and has taken the GPUs' memory; call share_gpus() before its first tensor"
        raise TooLateError(said)
    settings: dict[str, str] = {}
    for gpu in [] if replaced_gpus.number else tf.config.get_visible_devices("GPU"):
        if fraction is None:
            tf.config.experimental.set_memory_growth(gpu, True)
            settings[f"set_memory_growth({gpu.name})"] = "True"
        else:  # a limited device cannot be told to grow; the variable tells it
            limit = _part(fraction)
            tf.config.set_logical_device_configuration(
                gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)]
            )
            os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = settings["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
            settings[f"memory_limit({gpu.name})"] = f"{limit} MiB"
    return settings


def _part(fraction: float) -> int:
    """The fraction of the smallest GPU's memory, in MiB: TensorFlow accepts no fractions."""
    totals = [
        gpu["total_memory"] for gpu in machine.gpus()["gpus"] if gpu["total_memory"] is not None
    ]
    if not totals:
        raise NotSupportedError(
            "tensorflow is told a limit in bytes; pip install nvidia-ml-py, which knows the memory"
        )
    return int(fraction * min(totals)) >> 20


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return "message larger than max" not in str(error)  # gRPC: the message is too long
    return isinstance(error, tf.errors.InternalError) and any(
        words in str(error) for words in _WORDS
    )
