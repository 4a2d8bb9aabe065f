"""Where TensorFlow's tensors are, and moving them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf

from xdevice.backends.kit import keras
from xdevice.backends.tensorflow.hardware import is_own, named, native, replaced_gpus, scope
from xdevice.backends.tensorflow.private_names import names, unrecorded
from xdevice.contract import Category
from xdevice.device import Device
from xdevice.errors import (
    MixedDeviceError,
    NotSupportedError,
    TracedTensorError,
    UnknownPlacementError,
)

Tensor: TypeAlias = Any  # of TensorFlow, whose classes have no types for checkers

Eager: Any = tf.__internal__.EagerTensor  # making a tensor to ask its type would start TensorFlow
_home = "tensorflow.python.ops.resource_variable_ops"
# the class of what tf.Variable() makes, and the one of variables inside a tf.function, too
_Variable: Any = names.optional(f"{_home}:ResourceVariable")
_AnyVariable: Any = names.optional(f"{_home}:BaseResourceVariable", otherwise=tf.Variable)
# records an operation on the gradient tape
_record: Any = names.value("tensorflow.python.eager.record:record_operation")
# whether a gradient tape may be open
may_record: Any = names.optional(
    "tensorflow.python.eager.record:could_possibly_record", otherwise=lambda: True
)
_HOW_TO_DENSIFY: dict[type, str] = {
    tf.RaggedTensor: "a RaggedTensor; fill it up first with x.to_tensor()",
    tf.SparseTensor: "a SparseTensor; fill it up first with tf.sparse.to_dense(x)",
    tf.IndexedSlices: "an IndexedSlices; fill it up first with tf.convert_to_tensor(x)",
}
COMPOSITES = tuple(_HOW_TO_DENSIFY)
"""Tensors that are made of several tensors."""

_CATEGORIES: dict[Category, Any] = {
    "tensor": (tf.Tensor, tf.Variable, *COMPOSITES),
    "model": tf.Module,
    "data": (tf.DType, tf.TensorShape, tf.TypeSpec),
    "device": (
        tf.DeviceSpec,
        tf.compat.v1.DeviceSpec,
        tf.config.LogicalDevice,
        tf.config.PhysicalDevice,
    ),
}
_HANDLES = (tf.resource, tf.variant)  # the values are behind the tensor
_device_by_name: dict[str, Device] = {}  # by the name that tensors give it


def category(cls: type) -> Category | None:
    categories: Iterator[Category] = (
        category for category, classes in _CATEGORIES.items() if issubclass(cls, classes)
    )
    return next(categories, None) or keras.category(cls, "tensorflow")


def device_of(tensor: Tensor) -> Device:
    # A tensor has two devices: `device` is where the operation ran that made it, `backing_device`
    # where its memory is. They differ for what a GPU's kernel leaves on the host: int32, which
    # TensorFlow takes for shapes, and strings. Where a tensor *is* can only mean its memory; DLPack
    # and NumPy agree. A variable is a handle, itself always in host memory: there `device` is where
    # the values are.
    try:
        if type(tensor) is Eager:
            return _device_by_name[tensor.backing_device]
        if type(tensor) is _Variable:  # its own `device` costs three times as much
            return _device_by_name[tensor._handle.device]
    except KeyError:
        pass
    return _place(tensor)


def move(tensor: Tensor, device: Device, non_blocking: bool) -> Tensor:
    """The tensor on another device; a variable becomes a new variable."""
    _check_eager("move")
    if isinstance(tensor, COMPOSITES):
        return _map_parts(
            lambda part: part if device_of(part) is device else move(part, device, False), tensor
        )
    if isinstance(tensor, Eager):
        check_values(tensor)
        if _on_host(tensor.backing_device, native(device)):
            return _copied(tensor, device)
        # tf.identity leaves int32 and strings on the host, and raises under the "explicit" device
        # policy
        return tensor._copy(None, native(device).removeprefix("/"))
    return _with_variable(
        tensor, lambda variable: new_variable(variable, value_apart(variable, device), device)
    )


def copy(tensor: Tensor) -> Tensor:
    _check_eager("copy")
    if isinstance(tensor, COMPOSITES):
        return _map_parts(copy, tensor)
    if isinstance(tensor, Eager):
        check_values(tensor)
        return _copied(tensor, device_of(tensor))
    return _with_variable(
        tensor, lambda variable: new_variable(variable, copy(variable.read_value()))
    )


def _copied(tensor: Tensor, device: Device) -> Tensor:
    """The tensor in memory of its own; tf.identity, copy.copy and copy.deepcopy share memory with it."""
    if tensor.dtype.is_quantized:
        raise NotSupportedError(
            f"tensorflow cannot copy {tensor.dtype.name}; tf.bitcast it to integers first"
        )
    source = device_of(tensor)
    if not may_record():
        # on the source: for an operation elsewhere TensorFlow would copy the tensor by itself, and
        # such copies of a few integers are not counted
        with tf.device(tensor.backing_device):
            apart = _deep_copy(tensor)
        if device_of(apart) is device:
            return apart
        return apart._copy(None, native(device).removeprefix("/"))
    with unrecorded(), scope(source):
        new_tensor = _deep_copy(tensor)
        if device_of(new_tensor) is not device:
            new_tensor = new_tensor._copy(None, native(device).removeprefix("/"))
    # tf.custom_gradient would do the same, and takes four times as long as the copy
    _record_move(new_tensor, tensor, source)
    return new_tensor


def _deep_copy(tensor: Tensor) -> Tensor:
    if tensor.dtype.name.startswith("float8"):  # TensorFlow 2.21 has no operation that copies them
        return tf.constant(tensor.numpy())
    return tf.raw_ops.DeepCopy(x=tensor)


def _check_eager(verb: str) -> None:
    if not tf.executing_eagerly():
        reason = f"tensorflow cannot {verb} a tensor while tracing a tf.function"
        raise NotSupportedError(f"{reason}; {verb} it before the call")


def arrived(tensor: Tensor, device: Device) -> Tensor:
    """The new tensor on the device for which it was made: TensorFlow keeps int32 on the host."""
    is_there = not isinstance(tensor, Eager) or device_of(tensor) is device
    return tensor if is_there else move(tensor, device, False)


def value_apart(variable: tf.Variable, device: Device) -> Tensor:
    """The variable's value, for a variable on that device, with which it must not share memory."""
    with scope(device_of(variable)):  # or TensorFlow copies the value to the default device
        value = variable.read_value()
    return copy(value) if _on_host(variable.device, native(device)) else value


def new_variable(variable: tf.Variable, value: Any, device: Device | None = None) -> tf.Variable:
    """A new variable with the value, and with the settings of the other; on its device, or the one that is named."""
    settings = ("trainable", "dtype", "constraint", "synchronization", "aggregation", "shape")
    same_settings: dict[str, Any] = {name: getattr(variable, name) for name in settings}
    with scope(device or device_of(variable)):
        return tf.Variable(value, name=variable.name.partition(":")[0], **same_settings)


def variable_of(tensor: Any) -> Any:
    """The `tf.Variable` behind a Keras one; ``None`` before Keras has built it."""
    return tensor if isinstance(tensor, tf.Variable) else getattr(tensor, "_value", None)


def _place(tensor: Any) -> Device:
    variable = variable_of(tensor)
    if isinstance(tensor, Eager):
        return placed(tensor.backing_device)
    if isinstance(variable, _AnyVariable) and isinstance(variable._handle, Eager):
        return placed(variable._handle.device)
    if isinstance(tensor, COMPOSITES):
        return _common("one sparse or ragged tensor", _parts(tensor))
    if isinstance(variable, tf.distribute.DistributedValues):
        return _common("one distributed variable", variable.values)
    label = f"tensorflow {type(tensor).__name__} {getattr(tensor, 'name', '')!r}"
    if hasattr(tensor, "_value"):
        raise UnknownPlacementError(
            f"{label} is not built yet and has no device; build it inside scope(device)"
        )
    error = TracedTensorError if isinstance(tensor, tf.Tensor) else UnknownPlacementError
    raise error(f"{label} is symbolic and has no device; ask outside the graph or tf.function")


def placed(name: str) -> Device:
    """The device of this process behind the name that a tensor gives it."""
    if name in _device_by_name:
        return _device_by_name[name]
    if not is_own(name):
        raise UnknownPlacementError(
            f"{name} belongs to another process; copy the tensor to this one first"
        )
    return _device_by_name.setdefault(name, named(name))


def _common(label: str, parts: Iterable[Tensor]) -> Device:
    devices = {device_of(part) for part in parts}
    if len(devices) != 1:
        listed = " and ".join(map(str, sorted(devices)))
        raise MixedDeviceError(f"{label} is spread over {listed}; ask devices_of", devices)
    return devices.pop()


def _parts(tensor: Any) -> list[Any]:
    """The tensors inside, without the shape, which TensorFlow keeps on the host."""
    shape = getattr(tensor, "dense_shape", None)
    return [part for part in tf.nest.flatten(tensor, expand_composites=True) if part is not shape]


def _map_parts(fn: Callable[[Any], Any], tensor: Any) -> Any:
    parts = {id(part) for part in _parts(tensor)}

    def change(part: Tensor) -> Tensor:
        return fn(part) if id(part) in parts else part

    return tf.nest.map_structure(change, tensor, expand_composites=True)


def _with_variable(tensor: Any, fn: Callable[[tf.Variable], tf.Variable]) -> Any:
    """The function's result for the variable; for a Keras variable, a new one that holds the result."""
    variable = variable_of(tensor)
    if isinstance(variable, tf.distribute.DistributedValues):
        raise NotSupportedError(
            "a variable of a tf.distribute strategy stays where that puts it; make it outside"
        )
    new = fn(variable)
    _record_move(new._handle, variable._handle, device_of(variable))
    return new if variable is tensor else keras.with_value(tensor, new)


def _record_move(result: Tensor, origin: Tensor, source: Device) -> None:
    """Let the tape move the gradient of the result back to the device of its origin."""

    def backward(gradient: Tensor) -> list[Tensor]:
        # a tf.function is traced with the backward pass in it: no tensor has a device then
        is_traced = not tf.executing_eagerly()
        is_there = isinstance(gradient, Eager) and device_of(gradient) is source
        return [gradient if is_traced or is_there else move(gradient, source, False)]

    _record("Move", [result], [origin], backward)


def described(tensor: Tensor) -> str:
    """What a tensor of several parts is, and what to type to make it one tensor."""
    return next(text for cls, text in _HOW_TO_DENSIFY.items() if isinstance(tensor, cls))


def check_values(tensor: Tensor) -> None:
    """Raise an error for a handle: the variable, table or dataset behind it would stay where it is."""
    if tensor.dtype in _HANDLES:
        hint = "cannot be copied; pass the variable or the tensors behind it, or name it in skip="
        raise NotSupportedError(
            f"a tensorflow tensor of dtype {tensor.dtype.name} is a handle and {hint}"
        )


def _on_host(*names: str) -> bool:
    """Whether all of these are CPUs: TensorFlow's copies from one to another share memory."""
    return all("CPU:" in name for name in names) or replaced_gpus.number > 0
