"""Keras's models, layers, optimizers, metrics and seed generators, where Keras runs on JAX; and JAX's pytrees.

JAX itself has no models; Flax and Equinox keep theirs in trees of arrays, registered with
jax.tree_util.
"""

from collections.abc import Callable
from typing import Any

from jax.tree_util import default_registry, keystr, tree_flatten_with_path, tree_unflatten

from xdevice.backends.jax.placement import copy, device_of, move
from xdevice.backends.jax.private_names import optional
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, NotSupportedError
from xdevice.kit import keras

# up to JAX 0.4.34 the registry tells of objects only, and the classes are kept inside
_registered = (
    default_registry.is_node
    if hasattr(default_registry, "is_node")
    else optional("jax._src.tree_util:_registry").__contains__
)

tensors_of = keras.weights


def move_model(model: Any, device: Device) -> Any:
    """The same model; its variables, the same objects, get new arrays, those of its optimizer too."""
    _bring(keras.variables(model), device)
    return model


def keep(model: Any) -> Callable[[], None]:
    kept = [
        (variable, keras.value_of(variable)) for variable in keras.variables(model)
    ]  # arrays do not change

    def put_back() -> None:
        for variable, value in kept:
            variable._value = value

    return put_back


def copy_models(models: list[Any]) -> list[Any]:
    before = [[variable for _, variable in keras.weights(model)] for model in models]
    copied = keras.copies(models)
    after = [[variable for _, variable in keras.weights(model)] for model in copied]
    keras.check_sharing(before, after, models)
    for model, old, new in zip(copied, before, after, strict=True):
        for source, target in zip(old, new, strict=True):
            target._value = copy(keras.value_of(source))
        if old:
            known = set(map(id, new))
            _bring([v for v in keras.variables(model) if id(v) not in known], device_of(old[0]))
    return copied


def _bring(variables: list[Any], device: Device) -> None:
    try:
        away = [variable for variable in variables if device_of(variable) is not device]
    except MixedDeviceError as error:
        hint = "make it without a distribution"
        raise NotSupportedError(
            f"a model that keras.distribution has spread over devices stays there; {hint}"
        ) from error
    moved = [move(keras.value_of(variable), device, False) for variable in away]
    for variable, value in zip(
        away, moved, strict=True
    ):  # not before all are there: memory may run out
        variable._value = value


def is_node(cls: type) -> bool:
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return False  # JAX opens every named tuple, and rebuilds it by a call that the class may refuse
    return bool(_registered(cls))


def opened(node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    structure: Any
    named, structure = tree_flatten_with_path(node, is_leaf=lambda part: part is not node)
    parts, keys = [part for _, part in named], [keystr(path) for path, _ in named]
    return parts, keys, lambda new: tree_unflatten(structure, new), structure.node_data()
