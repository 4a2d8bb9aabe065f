"""The memory of virtual GPUs that stand in: live tensors, and peaks by the host's allocator.

All logical CPUs share one allocator, which counts the bytes that are allocated,
and their peak; with oneDNN, those of blocks of 256 KiB and more. In use on a GPU
are the tensors and variables that Python's garbage collector knows; several of
them may share memory, so that their sum is taken for no more than the allocator
has in use. What the allocator had beyond that at its peak counts as the GPU's:
activations, and temporary memory of the CPU's kernels.
"""

import ctypes
import gc
from pathlib import Path

import tensorflow as tf

from xdevice.backends.tensorflow.placement import Eager
from xdevice.virtual.tensorflow.interfaces import device_name, is_gpu, short_name
from xdevice.virtual.tensorflow.private_names import Context, Function, Replacements

_HOST = "CPU:0"
_START_COUNTING = "_ZN3tsl23EnableCPUAllocatorStatsEv"  # void tsl::EnableCPUAllocatorStats()
_COUNTED = 256 << 10  # oneDNN's allocator does not count smaller blocks
_replacements = Replacements()
_counts = False  # whether the allocator counts
_peaks: dict[str, int] = {}
"""The highest peak of each GPU since its statistics were reset.

The allocator's own peak may be reset for another GPU.
"""


def start() -> None:
    """Let the allocator count; before the first tensor, so that each block is counted."""
    global _counts
    _counts = _start_counting()
    _replacements.apply()


def _start_counting() -> bool:
    folder = Path(tf.sysconfig.get_lib())
    for library in folder.glob("libtensorflow_framework.*"):
        try:
            getattr(ctypes.CDLL(str(library)), _START_COUNTING)()
        except (OSError, AttributeError):  # a version or a system without that function
            continue
        return True
    return False


@_replacements("tensorflow.python.eager.context:Context.get_memory_info")
def _get_memory_info(native: Function, self: Context, device: str) -> dict[str, float]:
    if not is_gpu(device):
        info = dict(native(self, device))
        if _counts:  # the host's allocator counts for the virtual GPUs only
            raise ValueError(f"Allocator stats not available for device '{device}'")
        return info
    name = short_name(device)
    sizes = _live(name)
    if not _counts:
        return {"current": sum(sizes), "peak": float("nan")}  # programs format it as a number
    host = native(self, _HOST)
    counted = sum(size for size in sizes if size >= _COUNTED)
    current = sum(sizes) - counted + min(counted, host["current"])
    peak = max(current + host["peak"] - host["current"], _peaks.get(name, 0))
    _peaks[name] = peak
    return {"current": current, "peak": peak}


@_replacements("tensorflow.python.eager.context:Context.reset_memory_stats")
def _reset_memory_stats(native: Function, self: Context, device: str) -> None:
    if not is_gpu(device):
        native(self, device)
    elif _counts:
        native(self, _HOST)
        _peaks.pop(short_name(device), None)


def _live(name: str) -> list[int]:
    """The sizes in bytes of the tensors and variables on the device."""
    objects = gc.get_objects()
    tensors = [tensor for tensor in objects if isinstance(tensor, (Eager, tf.Variable))]
    on_device = [tensor for tensor in tensors if device_name(tensor) == name]
    return [(tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in on_device]
