"""Memory statistics of XLA's allocators."""

import os

import jax

from xdevice.backends.jax.hardware import has_started, native, replaced_gpus
from xdevice.contract import MemoryStats
from xdevice.device import Device
from xdevice.errors import TooLateError
from xdevice.units import known

# Messages of XLA, CUDA, cuBLAS and cuDNN.
_MESSAGES = (
    "RESOURCE_EXHAUSTED",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
# JAX up to 0.4.35 has no name for it
_RUNTIME_ERROR: type[Exception] = getattr(jax.errors, "JaxRuntimeError", RuntimeError)
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_FRACTION_RENAMED = "XLA_CLIENT_MEM_FRACTION"


def memory_stats(device: Device) -> MemoryStats:
    if replaced_gpus.number and not replaced_gpus.under_own_names and device.kind == "gpu":
        return {"allocated": sum(live_sizes(device))}
    try:
        stats = native(device).memory_stats()
    except RuntimeError:  # not every platform has statistics
        return {}
    if not stats:  # the CPU's allocator does not count
        return {}
    return {
        # the limit of XLA's allocator: JAX does not know how much the device has
        "total": stats.get("bytes_limit"),
        "allocated": stats.get("bytes_in_use"),
        "reserved": stats.get("pool_bytes"),
        "peak": known(stats.get("peak_bytes_in_use")),
    }


def live_sizes(device: Device) -> list[int]:
    """The sizes in bytes of the live arrays on a host device.

    The allocator of the host keeps no account. Arrays that share memory count
    once.
    """
    native_device = native(device)
    size_at = dict[int, int]()  # by address
    for array in jax.live_arrays("cpu"):  # type: ignore[no-untyped-call]  # JAX has no types for it
        for shard in array.addressable_shards:
            if shard.device == native_device and not array.is_deleted():
                size_at[shard.data.unsafe_buffer_pointer()] = shard.data.nbytes
    return list(size_at.values())


def empty_cache(device: Device | None) -> None:
    pass  # XLA keeps its memory until the process ends


def share(fraction: float | None) -> dict[str, str]:
    if has_started():
        hint = "call share_gpus() before it looks for devices"
        raise TooLateError(f"jax has been used, and has taken the GPUs' memory; {hint}")
    settings = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if fraction is not None:
        # XLA raises if both names are set
        name = _FRACTION_RENAMED if _FRACTION_RENAMED in os.environ else _FRACTION
        settings[name] = f"{fraction:g}"
    os.environ.update(settings)
    return settings


def is_out_of_memory(error: BaseException) -> bool:
    is_message = any(message in str(error) for message in _MESSAGES)
    return isinstance(error, _RUNTIME_ERROR) and is_message
