"""Keras models, and other objects that hold variables: layers, optimizers, metrics, `tf.Module`."""

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Any, TypeAlias

import tensorflow as tf

from xdevice.backends.kit import keras
from xdevice.backends.kit.nodes import by_attributes
from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.placement import (
    Tensor,
    category,
    device_of,
    new_variable,
    value_apart,
    variable_of,
)
from xdevice.backends.tensorflow.private_names import names
from xdevice.contract import Model, Node, NodeParts
from xdevice.device import Device
from xdevice.errors import NotSupportedError

KerasObject: TypeAlias = Any  # a model, a layer, an optimizer, a metric
TracedFunction: TypeAlias = Any

_Traced: Any = names.value(
    "tensorflow.python.eager.polymorphic_function.concrete_function:ConcreteFunction"
)
_TRACKABLE = "tensorflow.python.trackable.data_structures"
_List = names.optional(f"{_TRACKABLE}:ListWrapper", otherwise=())
_Dict = names.optional(f"{_TRACKABLE}:_DictWrapper")
_Tuple = names.optional(f"{_TRACKABLE}:_TupleWrapper")
_WRAPPERS: Any = tuple(filter(None, (_List, _Dict, _Tuple)))


def _is_keras(part: object) -> bool:
    return keras.category(type(part), "tensorflow") is not None


def tensors_of(model: Model) -> Iterator[tuple[str, Tensor]]:
    return _tensors_of_keras(model) if _is_keras(model) else _tensors_of_module(model)


def _tensors_of_module(module: tf.Module) -> Iterator[tuple[str, Tensor]]:
    def is_part(part: object) -> bool:
        # TensorFlow does not look into Keras's objects
        return isinstance(part, tf.Variable) or _is_keras(part)

    for path, part in module._flatten(predicate=is_part, with_path=True):
        name = ".".join(map(str, path))
        if category(type(part)) == "tensor":
            yield name, part
        else:
            for inner_name, tensor in tensors_of(part):
                yield f"{name}.{inner_name}", tensor


def _tensors_of_keras(model: KerasObject) -> Iterator[tuple[str, Tensor]]:
    weights = list(keras.weights(model))
    yield from weights
    tracked = {id(variable_of(weight)) for _, weight in weights}
    # a layer may have plain variables, which Keras does not track
    for layer in keras.layers(model):
        for name, value in vars(layer).items():
            if isinstance(value, tf.Variable) and id(value) not in tracked:
                yield f"{layer.name}.{name}", value


def move_model(model: Model, device: Device) -> Model:
    """The same model, its variables the same objects, with their values on the device.

    Neither Keras nor TensorFlow moves a model. A variable is a Python object with a handle that
    refers to its values, so the handle is exchanged; optimizers, metrics and checkpoints refer to
    the object.
    """
    variables = [variable for variable in _variables(model) if device_of(variable) is not device]
    if variables:
        for keras_object in _keras_objects(model):
            keras.forget_compiled(keras_object)
        _check_untraced([variable._handle for variable in variables])
    # all handles are made before the first is exchanged, since memory may run out
    handles = [_handle_on(variable, device) for variable in variables]
    for variable, handle in zip(variables, handles, strict=True):
        variable._handle = handle
    return model


def _handle_on(variable: tf.Variable, device: Device) -> Tensor:
    """The handle of a new variable on the device that is like this one."""
    return new_variable(variable, value_apart(variable, device), device)._handle


def keep(model: Model) -> Callable[[], None]:
    devices = [(variable, device_of(variable)) for variable in _variables(model)]

    def put_back() -> None:
        for variable, device in devices:
            if device_of(variable) is not device:
                variable._handle = _handle_on(variable, device)

    return put_back


def copy_models(models: list[Model]) -> list[Model]:
    originals = [[tensor for _, tensor in tensors_of(model)] for model in models]
    devices = {device_of(tensor) for group in originals for tensor in group}
    block = scope(min(devices)) if devices else nullcontext()
    with block:
        new_models = _copied(models)
        copies = [[tensor for _, tensor in tensors_of(model)] for model in new_models]
    keras.check_sharing(originals, copies, models)
    for original, new in zip(chain(*originals), chain(*copies), strict=True):
        new.assign(original)
        device = device_of(original)
        if device_of(new) is not device:
            variable = variable_of(new)
            variable._handle = new_variable(variable, new, device)._handle
    return new_models


def _copied(models: list[Model]) -> list[Model]:
    """Copies of Keras models by Keras, and of all other modules by one deepcopy."""
    keras_models = [model for model in models if _is_keras(model)]
    modules = [model for model in models if not _is_keras(model)]
    copies = dict(zip(map(id, keras_models), keras.copies(keras_models), strict=True))
    try:
        copies |= zip(map(id, modules), copy.deepcopy(modules), strict=True)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise keras.cannot_copy(modules, " ".join(str(error).split())) from error
    return [copies[id(model)] for model in models]


def _keras_objects(model: Model) -> list[KerasObject]:
    """The model itself if it is of Keras, else the Keras layers in it."""
    if _is_keras(model):
        return [model]
    return list(model._flatten(predicate=lambda part: hasattr(part, "_flatten_layers")))


def _variables(model: Model) -> list[tf.Variable]:
    """Each variable once, also those for training: of optimizers, metrics and random numbers."""
    tensors = [tensor for _, tensor in tensors_of(model)]
    for keras_object in _keras_objects(model):
        tensors += keras.variables(keras_object)
    variables = {id(variable): variable for variable in map(variable_of, tensors)}
    for variable in variables.values():
        if isinstance(variable, tf.distribute.DistributedValues):
            raise NotSupportedError(
                "a model made under a tf.distribute strategy stays where that puts it; "
                "make it outside"
            )
    return list(variables.values())


def _check_untraced(handles: list[Tensor]) -> None:
    """Raise an error if a traced function refers to values that would no longer be the model's.

    Such a function would continue to use the old values, without an error.
    """
    if not _functions_that_capture(handles):
        return
    handle_ids = set(map(id, handles))
    for model in _objects_of(tf.keras.Model):
        # another model that shares these variables: Keras compiles its functions again
        variables = map(variable_of, keras.variables(model))
        if any(id(variable._handle) in handle_ids for variable in variables):
            keras.forget_compiled(model)
    gc.collect()  # removes functions that cannot be called any more
    functions = _functions_that_capture(handles)
    if functions:
        listed = " and ".join(sorted(functions))
        reason = f"a model that is traced into {listed}, which would go on with the old values"
        cure = "move it before the first call of a tf.function, or delete the function"
        raise NotSupportedError(f"tensorflow cannot move {reason}; {cure}")


def _functions_that_capture(handles: list[Tensor]) -> set[str]:
    """The names of the traced functions that refer to one of these handles."""
    names.require("models that have been compiled")
    handle_ids = {id(handle) for handle in handles}

    def captures(function: TracedFunction) -> bool:
        return any(id(tensor) in handle_ids for tensor in function.captured_inputs)

    return {function.graph.name for function in _objects_of(_Traced) if captures(function)}


def _objects_of(cls: type[Any]) -> list[Any]:
    """The living objects of a class.

    They are found by their types: `gc.get_referents` may crash the process for TensorFlow's
    objects.
    """
    return [candidate for candidate in gc.get_objects() if issubclass(type(candidate), cls)]


def is_node(cls: type) -> bool:
    return issubclass(cls, (*_WRAPPERS, tf.experimental.ExtensionType))


def flatten_one_level(node: Node) -> NodeParts:
    """The containers in which a `tf.Module` keeps its attributes, and extension types."""
    if not isinstance(node, _WRAPPERS):
        return by_attributes(node, [field.name for field in node._tf_extension_type_fields()])
    if isinstance(node, _List):
        return list(node), _numbered, lambda _, new: type(node)(new), []
    inner = node.__wrapped__
    if isinstance(inner, dict):
        keys = list(inner)

        def rebuild(_: Node, new: list[Any]) -> Node:
            container = copy.copy(inner)
            container.update(zip(keys, new, strict=True))
            return type(node)(container)

        return list(inner.values()), lambda _: [f"[{key!r}]" for key in keys], rebuild, [keys]
    fields = getattr(inner, "_fields", ())  # of a named tuple

    def rebuild_tuple(_: Node, new: list[Any]) -> Node:
        return type(node)(tuple.__new__(type(inner), new))

    paths = [f".{name}" for name in fields] or _numbered(inner)
    return list(inner), lambda _: paths, rebuild_tuple, []


def _numbered(node: Node) -> list[str]:
    return [f"[{i}]" for i in range(len(node))]
