"""Keras's models, layers, optimizers, metrics, seed generators and variables.

They run on any framework that Keras supports. Where a variable's values are,
and how they are exchanged, is each adapter's. This module never imports Keras:
a program that has not imported Keras has no Keras object.
"""

from __future__ import annotations

import copy
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from xdevice.contract import Category, Model, Tensor
from xdevice.errors import NotSupportedError, UnknownPlacementError

Keras: TypeAlias = Any
"""The module ``keras``."""

Variable: TypeAlias = Any
"""A ``keras.Variable``."""

Layer: TypeAlias = Any
"""A ``keras.Layer``; a model is one, too."""

# what Keras raises for an object that it cannot save and load
_COPYING_ERRORS = (
    NotImplementedError,
    UnknownPlacementError,
    TypeError,
    ValueError,
    AttributeError,
)
# Keras 3.15 reads its variables in a way that NumPy 2 warns about
_NUMPY_WARNING = "__array__ implementation doesn't accept a copy"


def choose(framework: str) -> None:
    """Let Keras use the framework when it is imported, if Keras supports it.

    Also in child processes.
    """
    os.environ.update(environment(framework))


def environment(framework: str) -> dict[str, str]:
    """The variable that lets Keras use the framework; nothing if Keras does not support it."""
    spec = find_spec("keras")  # does not import it
    if spec is None or not spec.origin:
        return {}
    backends = Path(spec.origin).with_name("src") / "backend"
    if not (backends / framework).is_dir():
        return {}
    return {"KERAS_BACKEND": framework}


def running_on(framework: str) -> Keras | None:
    """The module ``keras``, if it is imported and runs on that framework."""
    keras: Keras = sys.modules.get("keras")
    is_loaded = hasattr(keras, "Variable") and hasattr(keras, "Model")
    if is_loaded and keras.config.backend() == framework:
        return keras
    return None


def category(cls: type, framework: str) -> Category | None:
    """What the class is to Keras, if Keras runs on that framework."""
    keras = running_on(framework)
    if keras is None:
        return None
    # layers make variables of the class that Variable extends, at least up to
    # Keras 3.5
    variable_class = keras.Variable.__base__
    if issubclass(cls, (variable_class, keras.KerasTensor)):
        return "tensor"
    model_classes = (
        keras.layers.Layer,
        keras.optimizers.Optimizer,
        keras.metrics.Metric,
        keras.random.SeedGenerator,
    )
    if issubclass(cls, model_classes):
        return "model"
    return None


def value_of(variable: Variable) -> Tensor:
    """The framework's own tensor behind a Keras variable."""
    value = getattr(variable, "_value", None)
    if value is not None:
        return value
    label = f"keras {type(variable).__name__} {getattr(variable, 'name', '')!r}"
    if hasattr(variable, "_value"):
        raise UnknownPlacementError(
            f"{label} is not built yet and has no device; build it inside scope(device)"
        )
    raise UnknownPlacementError(
        f"{label} is symbolic and has no device; ask about a model's weights or a batch"
    )


def with_value(variable: Variable, value: Tensor) -> Variable:
    """A copy of the variable with another value.

    It has the same path, constraint and regularizer.
    """
    new_variable = copy.copy(variable)
    new_variable._value = value
    return new_variable


def layers(model: Model) -> list[Layer]:
    """Every layer of the model, and the model itself.

    An optimizer, a metric and a seed generator have no layers.
    """
    if not hasattr(model, "_flatten_layers"):
        return []
    return list(model._flatten_layers())


def weights(model: Model) -> Iterator[tuple[str, Variable]]:
    """Each weight of a model or layer with its dotted name.

    Of another object, each variable.
    """
    has_unbuilt_layers = not all(layer.built for layer in layers(model))
    if has_unbuilt_layers and (not model.built or not model.weights):
        hint = "call its build(…), or give it a first batch, inside scope(device)"
        label = f"{type(model).__name__} {model.name!r}"
        raise UnknownPlacementError(
            f"{label} is not built, so its weights have no device yet; {hint}"
        )
    for variable in _weights_of(model):
        path = getattr(variable, "path", variable.name)
        yield path.replace("/", "."), variable


def variables(model: Model) -> list[Variable]:
    """Each variable once, with those of optimizers, metrics and random numbers."""
    model_variables = list(_weights_of(model))
    for layer in layers(model):
        model_variables += layer.variables
        model_variables += getattr(layer, "metrics_variables", ())
        optimizer = getattr(layer, "optimizer", None)
        model_variables += getattr(optimizer, "variables", ())
    return list({id(variable): variable for variable in model_variables}.values())


def forget_compiled(model: Model) -> None:
    """Drop the functions that Keras has compiled, which refer to old values.

    Keras compiles them again.
    """
    for layer in layers(model):
        for name in ("train_function", "test_function", "predict_function"):
            if getattr(layer, name, None) is not None:
                # without this, Keras 3.15 keeps the function in its list of
                # things to save
                delattr(layer, name)
                setattr(layer, name, None)


def copies(models: list[Model]) -> list[Model]:
    """Copies of Keras's objects, made as Keras saves and loads them.

    The objects may be on any device. Layers that they share stay shared.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _NUMPY_WARNING, DeprecationWarning)
            return _copies(models)
    except NotSupportedError:
        raise
    except _COPYING_ERRORS as error:
        reason = " ".join(str(error).split())
        raise cannot_copy(models, reason) from error


def _copies(models: list[Model]) -> list[Model]:
    with_layers = [model for model in models if layers(model)]
    shared = _shared(with_layers)
    if shared:
        new_models = _copied_together(shared, with_layers)
    else:
        new_models = [copy.deepcopy(model) for model in with_layers]
    copy_of: dict[int, Model] = {}  # by the id of the original
    for model, new_model in zip(with_layers, new_models, strict=True):
        copy_of[id(model)] = new_model
        if getattr(model, "optimizer", None) is not None:
            copy_of[id(model.optimizer)] = new_model.optimizer
    for model in models:
        if id(model) not in copy_of:
            copy_of[id(model)] = _copy_of_part(model)
    return [copy_of[id(model)] for model in models]


def _copy_of_part(part: Model) -> Model:
    """A copy of an optimizer, a metric or a seed generator."""
    if getattr(part, "built", False) and hasattr(part, "apply_gradients"):
        hint = "copy the model that is compiled with it, or build another for the copy"
        raise NotSupportedError(
            f"this {type(part).__name__} was built for the variables of a model, "
            f"and so would be its copy; {hint}"
        )
    return copy.deepcopy(part)


def check_sharing(
    originals: Sequence[Sequence[Variable]],
    new_variables: Sequence[Sequence[Variable]],
    models: list[Model],
) -> None:
    """Raise unless the copies have the originals' variables, shared as there."""
    for model, old, new in zip(models, originals, new_variables, strict=True):
        if len(old) != len(new):
            raise cannot_copy([model], f"of {len(old)} variables {len(new)} came back")
    if _pattern(originals) != _pattern(new_variables):
        raise cannot_copy(models, "variables that they share would come apart")


def cannot_copy(models: list[Model], reason: str) -> NotSupportedError:
    classes = " and ".join(dict.fromkeys(type(model).__name__ for model in models))
    return NotSupportedError(
        f"keras cannot copy this {classes} ({reason}); give it a get_config(), or build another"
    )


def _weights_of(model: Model) -> list[Variable]:
    if hasattr(model, "weights"):
        return list(model.weights)
    if hasattr(model, "variables"):
        return list(model.variables)
    return [model.state]  # of a seed generator


def _shared(models: list[Model]) -> list[Layer]:
    """The layers that are in several models, inner ones before outer ones."""
    layer_of: dict[int, Layer] = {}  # by id
    counts = Counter[int]()
    for model in models:
        layers_of_model = {id(layer): layer for layer in layers(model)}
        layer_of.update(layers_of_model)
        counts.update(layers_of_model.keys())
    shared = [layer for key, layer in layer_of.items() if counts[key] > 1]
    return sorted(shared, key=lambda layer: len(layers(layer)))


def _copied_together(shared: list[Layer], models: list[Model]) -> list[Model]:
    """Copies of the models, made as parts of one layer.

    The shared layers come first: Keras finds them again in the models.
    """
    saving = sys.modules["keras"].saving

    class Bundle(sys.modules["keras"].layers.Layer):  # type: ignore[misc]  # known at run time
        def __init__(self, parts: list[Layer]) -> None:
            super().__init__()
            self.parts = list(parts)
            self.built = True

        def get_config(self) -> dict[str, Any]:
            return {"parts": [saving.serialize_keras_object(part) for part in self.parts]}

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> Bundle:
            load = saving.deserialize_keras_object
            return cls([load(part, safe_mode=False) for part in config["parts"]])

    with saving.custom_object_scope({"Bundle": Bundle}):
        bundle = copy.deepcopy(Bundle([*shared, *models]))
    new_parts: list[Layer] = list(bundle.parts)
    return new_parts[len(shared) :]


def _pattern(groups: Sequence[Sequence[Variable]]) -> list[int]:
    """For each variable the place of its first appearance."""
    first_places: dict[int, int] = {}
    for group in groups:
        for variable in group:
            first_places.setdefault(id(variable), len(first_places))
    return [first_places[id(variable)] for group in groups for variable in group]
