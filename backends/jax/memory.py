"""What XLA's allocators know."""

import os

import jax

from xdevice.backends.jax.hardware import has_started, native, replaced_gpus
from xdevice.contract import MemoryStats
from xdevice.device import Device
from xdevice.errors import TooLateError

# From XLA, CUDA, cuBLAS and cuDNN.
_WORDS = (
    "RESOURCE_EXHAUSTED",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
# JAX up to 0.4.35 has no name for it
_ERROR: type[Exception] = getattr(jax.errors, "JaxRuntimeError", RuntimeError)


def memory_stats(device: Device) -> MemoryStats:
    if replaced_gpus.number and device.kind == "gpu":
        return {"allocated": sum(living_on(device))}
    try:
        stats = native(device).memory_stats()
    except RuntimeError:  # not every platform has statistics
        return {}
    if not stats:  # the CPU's allocator does not count
        return {}
    return {
        # the limit of XLA's allocator, a part of the device's memory: JAX does not know the size of
        # all
        "total": stats.get("bytes_limit"),
        "allocated": stats.get("bytes_in_use"),
        "reserved": stats.get("pool_bytes"),
        "peak": stats.get("peak_bytes_in_use"),
    }


def living_on(device: Device) -> list[int]:
    """The bytes in each live array on a host device, whose allocator keeps no account; shared ones count once."""
    own = native(device)
    sizes = dict[int, int]()
    for array in jax.live_arrays("cpu"):  # type: ignore[no-untyped-call]  # JAX has left it without types
        for shard in array.addressable_shards:
            if shard.device == own and not array.is_deleted():
                sizes[shard.data.unsafe_buffer_pointer()] = shard.data.nbytes
    return list(sizes.values())


def empty_cache(device: Device | None) -> None:
    pass  # XLA keeps its memory until the process ends


def share(fraction: float | None) -> dict[str, str]:
    if has_started():
        hint = "call share_gpus() before it looks for devices"
        raise TooLateError(f"jax has been used, and has taken the GPUs' memory; {hint}")
    settings = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if fraction is not None:  # the newer name, where it is used: XLA refuses both
        newer = "XLA_CLIENT_MEM_FRACTION"
        settings[newer if newer in os.environ else "XLA_PYTHON_CLIENT_MEM_FRACTION"] = (
            f"{fraction:g}"
        )
    os.environ.update(settings)
    return settings


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, _ERROR) and any(words in str(error) for words in _WORDS)
