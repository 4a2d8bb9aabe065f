"""Keras's objects, where Keras runs on JAX; and JAX's pytrees.

Keras's objects are models, layers, optimizers, metrics and seed generators. JAX
itself has no models; Flax and Equinox keep theirs in trees of arrays, registered
with jax.tree_util.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from jax.tree_util import (
    default_registry,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_unflatten,
)

from xdevice.backends.jax.placement import copy, device_of, move
from xdevice.backends.jax.private_names import optional
from xdevice.backends.kit import keras
from xdevice.contract import Model, Node, NodeParts
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, NotSupportedError

Part: TypeAlias = Any
Variable: TypeAlias = Any  # of Keras

# the registry of JAX up to 0.4.34 is asked about an object, and has the classes inside
_is_registered = (
    default_registry.is_node
    if hasattr(default_registry, "is_node")
    else optional("jax._src.tree_util:_registry").__contains__
)

tensors_of = keras.weights


def move_model(model: Model, device: Device) -> Model:
    """Move the model in place, with its optimizer.

    The variables remain the same objects, and get new arrays.
    """
    _move_variables(keras.variables(model), device)
    return model


def keep(model: Model) -> Callable[[], None]:
    # an array never changes, so a reference to it keeps its values
    values = [(variable, keras.value_of(variable)) for variable in keras.variables(model)]

    def put_back() -> None:
        for variable, value in values:
            variable._value = value

    return put_back


def copy_models(models: list[Model]) -> list[Model]:
    copies = keras.copies(models)
    sources = [_weights(model) for model in models]
    targets = [_weights(model) for model in copies]
    keras.check_sharing(sources, targets, models)
    for model_copy, model_sources, model_targets in zip(copies, sources, targets, strict=True):
        for source, target in zip(model_sources, model_targets, strict=True):
            target._value = copy(keras.value_of(source))
        if model_sources:
            weights = set(map(id, model_targets))
            variables = [v for v in keras.variables(model_copy) if id(v) not in weights]
            _move_variables(variables, device_of(model_sources[0]))
    return copies


def _weights(model: Model) -> list[Variable]:
    return [variable for _, variable in keras.weights(model)]


def _move_variables(variables: list[Variable], device: Device) -> None:
    try:
        elsewhere = [variable for variable in variables if device_of(variable) is not device]
    except MixedDeviceError as error:
        hint = "make it without a distribution"
        raise NotSupportedError(
            f"a model that keras.distribution has spread over devices stays there; {hint}"
        ) from error
    # no variable changes before all arrays are on the device: its memory may not suffice
    moved = [move(keras.value_of(variable), device, False) for variable in elsewhere]
    for variable, value in zip(elsewhere, moved, strict=True):
        variable._value = value


def is_node(cls: type) -> bool:
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        # JAX opens every named tuple; it rebuilds one by calling the class, which may raise
        return False
    return bool(_is_registered(cls))


def flatten_one_level(node: Node) -> NodeParts:
    structure: Any  # some of its methods have no types
    parts, structure = tree_flatten(node, is_leaf=lambda part: part is not node)

    def paths(node: Node) -> list[str]:
        paths_and_parts, _ = tree_flatten_with_path(node, is_leaf=lambda part: part is not node)
        return [keystr(path) for path, _ in paths_and_parts]

    def rebuild(_: Node, new_parts: list[Part]) -> Node:
        return tree_unflatten(structure, new_parts)

    return parts, paths, rebuild, [structure.node_data()]
