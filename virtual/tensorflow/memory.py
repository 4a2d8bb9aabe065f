"""The memory of virtual GPUs that stand in: the tensors and variables that exist on each.

All logical CPUs share one allocator, so what a GPU's allocator would count, and its peak, are not
known. Activations that a tape holds are not counted.
"""

import gc

import tensorflow as tf

from xdevice.backends.tensorflow.placement import Eager
from xdevice.virtual.tensorflow.interfaces import device_name, is_gpu, short_name
from xdevice.virtual.tensorflow.private_names import Context, Function, Replacements

_replacements = Replacements()


def start() -> None:
    _replacements.apply()


@_replacements("tensorflow.python.eager.context:Context.get_memory_info")
def _get_memory_info(native: Function, self: Context, device: str) -> dict[str, float]:
    if not is_gpu(device):
        return native(self, device)  # type: ignore[no-any-return]  # TensorFlow's
    # programs format the peak as a number
    return {"current": _live(short_name(device)), "peak": float("nan")}


@_replacements("tensorflow.python.eager.context:Context.reset_memory_stats")
def _reset_memory_stats(native: Function, self: Context, device: str) -> None:
    if not is_gpu(device):
        native(self, device)


def _live(name: str) -> int:
    """The bytes of the tensors and variables on the device."""
    objects = gc.get_objects()
    types = {of for of in set(map(type, objects)) if issubclass(of, (Eager, tf.Variable))}
    # isinstance, of each object of the process, takes ten times as long
    tensors = [each for each in objects if type(each) in types]
    on_device = [tensor for tensor in tensors if device_name(tensor) == name]
    return sum((tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in on_device)
