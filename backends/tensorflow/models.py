"""Keras models, and all else that holds variables: layers, optimisers, metrics, `tf.Module`."""

from __future__ import annotations

import copy
import gc
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.placement import (
    device_of,
    fresh_variable,
    role,
    role_in_keras,
    value_apart,
    variable_of,
)
from xdevice.errors import NotSupportedError, UnknownPlacementError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xdevice.device import Device

_Traced: Any = ConcreteFunction


def tensors_of(model: Any) -> Iterator[tuple[str, Any]]:
    if _is_module(model) and not hasattr(model, "weights"):
        for path, found in model._flatten(predicate=_holds_values, with_path=True):
            yield from _inside(".".join(map(str, path)), found)
        return
    _check_built(model)
    weights = model.weights if hasattr(model, "weights") else model.variables  # optimisers have but these
    for weight in weights:
        yield getattr(weight, "path", weight.name).replace("/", "."), weight
    for layer in _layers(model):  # a layer may have plain variables, of which Keras knows nothing
        for name, value in vars(layer).items():
            if isinstance(value, tf.Variable) and not any(value is variable_of(w) for w in weights):
                yield f"{layer.name}.{name}", value


def move_model(model: Any, device: Device) -> Any:
    """The same model, its variables the same objects, with their values on the device.

    Neither Keras nor TensorFlow moves a model. A variable is a Python object with a handle to where
    its values are, so the handle is exchanged; optimisers, metrics and checkpoints know the object.
    """
    variables = [variable for variable in _variables(model) if device_of(variable) is not device]
    if variables:
        _forget_compiled(model)
        _check_untraced([variable._handle for variable in variables])
    moved = [fresh_variable(variable, value_apart(variable, device), device) for variable in variables]
    for variable, new in zip(variables, moved, strict=True):  # not before all are there: memory may run out
        variable._handle = new._handle
    return model


def keep(model: Any) -> Callable[[], None]:
    kept = [(variable, device_of(variable)) for variable in _variables(model)]

    def put_back() -> None:
        for variable, device in kept:
            if device_of(variable) is not device:
                variable._handle = fresh_variable(variable, value_apart(variable, device), device)._handle

    return put_back


def copy_models(models: list[Any]) -> list[Any]:
    return [_copied(model) for model in models]  # Keras copies one by one: variables that two share come apart


def _copied(model: Any) -> Any:
    source = [tensor for _, tensor in tensors_of(model)]
    places = {device_of(tensor) for tensor in source}
    try:
        with scope(min(places)) if places else nullcontext(), warnings.catch_warnings():
            # Keras 3.15 reads its variables in a way that NumPy 2 warns of
            warnings.filterwarnings("ignore", "__array__ implementation doesn't accept a copy", DeprecationWarning)
            copied = copy.deepcopy(model)
            target = [tensor for _, tensor in tensors_of(copied)]
    except (NotImplementedError, UnknownPlacementError, TypeError, ValueError) as error:
        raise _cannot_copy(model, " ".join(str(error).split())) from error
    if len(source) != len(target):
        raise _cannot_copy(model, f"of {len(source)} variables {len(target)} came back")
    for old, new in zip(source, target, strict=True):
        new.assign(old)
        if device_of(new) is not device_of(old):
            variable_of(new)._handle = fresh_variable(variable_of(new), new, device_of(old))._handle
    return copied


def _check_built(model: Any) -> None:
    unbuilt = [layer.name for layer in _layers(model) if not layer.built]
    if unbuilt and (not model.built or not model.weights):
        raise UnknownPlacementError(
            f"{type(model).__name__} {model.name!r} is not built, so its weights are nowhere yet; "
            f"call its build(…), or give it a first batch, inside scope(device)"
        )


def _inside(path: str, found: Any) -> Iterator[tuple[str, Any]]:
    if role(type(found)) == "tensor":
        yield path, found
    else:
        yield from ((f"{path}.{name}", tensor) for name, tensor in tensors_of(found))


def _holds_values(part: Any) -> bool:
    """Whether a part of a `tf.Module` is a variable, or what Keras has, into which TensorFlow does not look."""
    return isinstance(part, tf.Variable) or role_in_keras(type(part)) is not None


def _layers(model: Any) -> list[Any]:
    """Every Keras layer in the model, itself included."""
    if hasattr(model, "_flatten_layers"):
        return list(model._flatten_layers())
    if not _is_module(model):
        return []
    return [layer for top in model._flatten(predicate=_is_layer) for layer in top._flatten_layers()]


def _is_module(part: Any) -> bool:
    return isinstance(part, tf.Module)


def _is_layer(part: Any) -> bool:
    return hasattr(part, "_flatten_layers")


def _variables(model: Any) -> list[Any]:
    """Each variable once, with those of optimisers, metrics and random numbers, which belong to training."""
    found = [tensor for _, tensor in tensors_of(model)]
    for layer in _layers(model):
        found += [*layer.variables, *getattr(layer, "metrics_variables", ())]
        found += getattr(getattr(layer, "optimizer", None), "variables", ())
    variables = {id(variable): variable for variable in map(variable_of, found)}
    if any(isinstance(variable, tf.distribute.DistributedValues) for variable in variables.values()):
        raise NotSupportedError("a model made under a tf.distribute strategy stays where that puts it; make it outside")
    return list(variables.values())


def _forget_compiled(model: Any) -> None:
    """Drop the functions that Keras has traced, which hold on to the old values; it traces them anew."""
    for layer in _layers(model):
        for name in ("train_function", "test_function", "predict_function"):
            if getattr(layer, name, None) is not None:
                delattr(layer, name)  # or Keras 3.15 keeps the function in its list of things to save
                setattr(layer, name, None)


def _check_untraced(handles: list[Any]) -> None:
    """Refuse where a traced function holds on to values that would no longer be the model's.

    Such a function would go on training and answering with the old values, and nobody would notice.
    """
    if _traced(handles):
        gc.collect()  # functions that nobody can call any more do no harm
        names = _traced(handles)
        if names:
            raise NotSupportedError(
                f"tensorflow cannot move a model that is traced into {' and '.join(sorted(names))}, which would go on "
                f"with the old values; move it before the first call of a tf.function, or delete the function"
            )


def _traced(handles: list[Any]) -> set[str]:
    wanted = {id(handle) for handle in handles}
    functions = (found for found in gc.get_referrers(_Traced) if isinstance(found, _Traced))
    return {f.graph.name for f in functions if any(id(outer) in wanted for outer in f.captured_inputs)}


def _cannot_copy(model: Any, reason: str) -> NotSupportedError:
    return NotSupportedError(
        f"keras cannot copy this {type(model).__name__} ({reason}); give it a get_config(), or build another"
    )
