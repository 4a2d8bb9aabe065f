"""The memory of virtual GPUs that stand in: what TensorFlow's allocator of GPUs would count.

All logical CPUs share one allocator. It becomes a BFC allocator, as that of each
GPU is: a chunk of memory counts whole, also if the tensor in it is smaller. In
use on a GPU is what the allocator has in use without the tensors and variables
of the other devices, which Python's garbage collector knows: activations that a
tape holds, and temporary memory of the CPU's kernels, count as the GPU's.
"""

import gc
import os
from math import isnan

import tensorflow as tf

from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.placement import Eager
from xdevice.contract import MemoryUse, PeakMemory, Tensor
from xdevice.device import Device
from xdevice.machine import host_memory
from xdevice.virtual.tensorflow.interfaces import device_name, is_gpu, short_name
from xdevice.virtual.tensorflow.private_names import Context, Function, Replacements

_HOST = "CPU:0"
_USE_BFC = "TF_CPU_ALLOCATOR_USE_BFC"
_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"  # 64 GiB if it is not set
_REGION = 1 << 30
_replacements = Replacements()
_peaks: dict[str, int] = {}
"""The highest peak of each GPU since its statistics were reset.

The allocator's own peak may be reset for another GPU.
"""


def start() -> None:
    """Choose the allocator; the runtime, which makes it, has not started."""
    os.environ.setdefault(_USE_BFC, "1")
    total, _ = host_memory()
    if total is not None:
        os.environ.setdefault(_LIMIT, str(total >> 20))
    _replacements.apply()


@_replacements("tensorflow.python.eager.context:Context.ensure_initialized")
def _start_runtime(native: Function, self: Context) -> None:
    global _is_starting
    is_running = self._context_handle is not None
    native(self)
    if not is_running:
        _is_starting = True
        _make_region()
        _is_starting = False


def _make_region() -> None:
    """Let the allocator take one large region, as on a GPU, and free it.

    Else it begins with regions of a few MiB, whose last chunks are larger than
    what is in them. The system gives memory to a region when it is written.
    """
    with tf.init_scope():
        if tf.executing_eagerly():
            with tf.device(_HOST):
                tf.raw_ops.Empty(shape=[_REGION], dtype=tf.int8)
            tf.config.experimental.reset_memory_stats(_HOST)


@_replacements("tensorflow.python.eager.context:Context.get_memory_info")
def _get_memory_info(native: Function, self: Context, device: str) -> dict[str, float]:
    if not is_gpu(device):
        native(self, device)  # the host's allocator counts for the virtual GPUs only
        raise ValueError(f"Allocator stats not available for device '{device}'")
    name = short_name(device)
    own, elsewhere = _live(name)
    try:
        host = native(self, _HOST)
    except ValueError:  # another allocator, which a program has chosen
        return {"current": own, "peak": float("nan")}  # programs format it as a number
    current = max(host["current"] - elsewhere, 0)
    peak = max(host["peak"] - elsewhere, current, _peaks.get(name, 0))
    _peaks[name] = peak
    return {"current": current, "peak": peak}


@_replacements("tensorflow.python.eager.context:Context.reset_memory_stats")
def _reset_memory_stats(native: Function, self: Context, device: str) -> None:
    if _is_measured and not _is_starting:
        _note_highest()
    native(self, _HOST if is_gpu(device) else device)
    _peaks.pop(short_name(device), None)


_is_measured = False
_is_starting = False  # whether the allocator takes its region, which is not the program's
_highest: dict[str, float] = {}
"""The highest peak of each GPU since the start, while memory is measured."""

_MARGIN = 0.2
_SOURCE = (
    "an assumption: two recorded peaks under TensorFlow were 0 to 8% less than what is counted"
)


def measure() -> None:
    global _is_measured
    _is_measured = True


def use() -> MemoryUse:
    """The most memory of each GPU.

    Memory of the host is in the same allocator, so that only the tensors that
    are in use at the end are surely the GPU's.
    """
    if not hardware.is_running():
        return MemoryUse((), None)
    _note_highest()
    if any(map(isnan, _highest.values())):
        return MemoryUse((), None, unmeasured=f"{_USE_BFC} is not 1, and nothing was counted")
    peaks = [_peak(index) for index in range(hardware.count("gpu"))]
    return MemoryUse(tuple(peaks), None, margin=_MARGIN, source=_SOURCE)


def _peak(index: int) -> PeakMemory:
    name = f"GPU:{index}"
    highest, (own, _) = int(_highest[name]), _live(name)
    return PeakMemory(Device("gpu", index), highest, highest, "", 0, "", (), certain=own)


def _note_highest() -> None:
    for index in range(hardware.count("gpu")):
        name = f"GPU:{index}"
        peak = tf.config.experimental.get_memory_info(name)["peak"]
        _highest[name] = max(peak, _highest.get(name, 0))


def _live(name: str) -> tuple[int, int]:
    """The bytes of the tensors and variables on the device, and of those on all others."""
    objects = gc.get_objects()
    tensors = [tensor for tensor in objects if isinstance(tensor, (Eager, tf.Variable))]
    own = [tensor for tensor in tensors if device_name(tensor) == name]
    size, size_of_own = _bytes(tensors), _bytes(own)
    return size_of_own, size - size_of_own


def _bytes(tensors: list[Tensor]) -> int:
    return sum((tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in tensors)
