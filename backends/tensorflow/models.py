"""Keras models, and all else that holds variables: layers, optimizers, metrics, `tf.Module`."""

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.placement import (
    device_of,
    new_variable,
    role,
    value_apart,
    variable_of,
)
from xdevice.backends.tensorflow.private_names import names
from xdevice.device import Device
from xdevice.errors import NotSupportedError
from xdevice.kit import keras
from xdevice.kit.nodes import by_attributes

_Traced: Any = names.value(
    "tensorflow.python.eager.polymorphic_function.concrete_function:ConcreteFunction"
)
_TRACKABLE = "tensorflow.python.trackable.data_structures"
_List = names.optional(f"{_TRACKABLE}:ListWrapper", otherwise=())
_others = (names.optional(f"{_TRACKABLE}:{name}") for name in ("_DictWrapper", "_TupleWrapper"))
_WRAPPERS: Any = tuple(filter(None, (_List, *_others)))


def _is_keras(part: Any) -> bool:
    return keras.role(type(part), "tensorflow") is not None


def tensors_of(model: Any) -> Iterator[tuple[str, Any]]:
    if not _is_keras(model):  # TensorFlow does not look into what Keras has
        parts = model._flatten(
            predicate=lambda p: isinstance(p, tf.Variable) or _is_keras(p), with_path=True
        )
        for path, found in parts:
            name = ".".join(map(str, path))
            inside = [("", found)] if role(type(found)) == "tensor" else tensors_of(found)
            yield from ((f"{name}.{inner}".removesuffix("."), tensor) for inner, tensor in inside)
        return
    weights = list(keras.weights(model))
    yield from weights
    for layer in keras.layers(
        model
    ):  # a layer may have plain variables, which Keras does not track
        for name, value in vars(layer).items():
            if isinstance(value, tf.Variable) and not any(
                value is variable_of(w) for _, w in weights
            ):
                yield f"{layer.name}.{name}", value


def move_model(model: Any, device: Device) -> Any:
    """The same model, its variables the same objects, with their values on the device.

    Neither Keras nor TensorFlow moves a model. A variable is a Python object with a handle to where
    its values are, so the handle is exchanged; optimizers, metrics and checkpoints know the object.
    """
    variables = [variable for variable in _variables(model) if device_of(variable) is not device]
    if variables:
        for holder in _holders(model):
            keras.forget_compiled(holder)
        _check_untraced([variable._handle for variable in variables])
    moved = [
        new_variable(variable, value_apart(variable, device), device) for variable in variables
    ]
    for variable, new in zip(
        variables, moved, strict=True
    ):  # not before all are there: memory may run out
        variable._handle = new._handle
    return model


def keep(model: Any) -> Callable[[], None]:
    kept = [(variable, device_of(variable)) for variable in _variables(model)]

    def put_back() -> None:
        for variable, device in kept:
            if device_of(variable) is not device:
                variable._handle = new_variable(
                    variable, value_apart(variable, device), device
                )._handle

    return put_back


def copy_models(models: list[Any]) -> list[Any]:
    before = [[tensor for _, tensor in tensors_of(model)] for model in models]
    places = {device_of(tensor) for group in before for tensor in group}
    with scope(min(places)) if places else nullcontext():
        copied = _copied(models)
        after = [[tensor for _, tensor in tensors_of(model)] for model in copied]
    keras.check_sharing(before, after, models)
    for old, new in zip(chain(*before), chain(*after), strict=True):
        new.assign(old)
        if device_of(new) is not device_of(old):
            variable_of(new)._handle = new_variable(variable_of(new), new, device_of(old))._handle
    return copied


def _copied(models: list[Any]) -> list[Any]:
    """Keras's as it copies them, other modules all at once."""
    ours = [model for model in models if _is_keras(model)]
    others = [model for model in models if not _is_keras(model)]
    found = dict(zip(map(id, ours), keras.copies(ours), strict=True))
    try:
        found |= zip(map(id, others), copy.deepcopy(others), strict=True)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise keras.cannot_copy(others, " ".join(str(error).split())) from error
    return [found[id(model)] for model in models]


def _holders(model: Any) -> list[Any]:
    """The model if it is Keras's, else the Keras layers in it."""
    return (
        [model]
        if _is_keras(model)
        else list(model._flatten(predicate=lambda p: hasattr(p, "_flatten_layers")))
    )


def _variables(model: Any) -> list[Any]:
    """Each variable once, with those of optimizers, metrics and random numbers, which belong to training."""
    found = [tensor for _, tensor in tensors_of(model)]
    for holder in _holders(model):
        found += keras.variables(holder)
    variables = {id(variable): variable for variable in map(variable_of, found)}
    if any(
        isinstance(variable, tf.distribute.DistributedValues) for variable in variables.values()
    ):
        raise NotSupportedError(
            "a model made under a tf.distribute strategy stays where that puts it; make it outside"
        )
    return list(variables.values())


def _check_untraced(handles: list[Any]) -> None:
    """Refuse where a traced function holds on to values that would no longer be the model's.

    Such a function would go on training and answering with the old values, without an error.
    """
    if not _traced(handles):
        return
    wanted, model = set(map(id, handles)), tf.keras.Model
    for found in [found for found in gc.get_objects() if issubclass(type(found), model)]:
        # of other models that share these variables, drop what Keras has compiled; it compiles that anew
        if any(id(variable_of(variable)._handle) in wanted for variable in keras.variables(found)):
            keras.forget_compiled(found)
    gc.collect()  # functions that cannot be called any more do no harm
    if traced := _traced(handles):
        what = f"a model that is traced into {' and '.join(sorted(traced))}, which would go on with the old values"
        hint = "move it before the first call of a tf.function, or delete the function"
        raise NotSupportedError(f"tensorflow cannot move {what}; {hint}")


def _traced(handles: list[Any]) -> set[str]:
    names.require("models that have been compiled")
    wanted = {id(handle) for handle in handles}
    # by its type, and without a walk through what each object refers to: TensorFlow's own objects may not survive one
    functions: list[Any] = [found for found in gc.get_objects() if issubclass(type(found), _Traced)]
    return {
        f.graph.name for f in functions if any(id(outer) in wanted for outer in f.captured_inputs)
    }


def is_node(cls: type) -> bool:
    return issubclass(cls, (*_WRAPPERS, tf.experimental.ExtensionType))


def opened(node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    """The containers in which a `tf.Module` keeps its attributes, and extension types."""
    if not isinstance(node, _WRAPPERS):
        return by_attributes(node, [field.name for field in node._tf_extension_type_fields()])
    if isinstance(node, _List):
        return list(node), [f"[{i}]" for i in range(len(node))], type(node), None
    inner = node.__wrapped__
    if isinstance(inner, dict):
        keys = list(inner)

        def rebuild(new: list[Any]) -> Any:
            container = copy.copy(inner)
            container.update(zip(keys, new, strict=True))
            return type(node)(container)

        return list(inner.values()), [f"[{key!r}]" for key in keys], rebuild, keys
    fields = getattr(inner, "_fields", None)
    written = [f".{name}" for name in fields] if fields else [f"[{i}]" for i in range(len(inner))]
    return list(inner), written, lambda new: type(node)(tuple.__new__(type(inner), new)), None
