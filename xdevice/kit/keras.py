"""Keras's models, layers, optimizers, metrics, seed generators and variables, on any framework that Keras runs on.

Where a variable's values are, and how they are exchanged, is each adapter's.
Keras is never imported here: a program that has not imported it has no Keras
object.
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
from typing import Any

from xdevice.contract import Role
from xdevice.errors import NotSupportedError, UnknownPlacementError


def choose(framework: str) -> None:
    """Set the framework that Keras uses when it is imported, here and in child processes, if Keras supports it."""
    spec = find_spec("keras")  # does not import it
    if (
        spec is not None
        and spec.origin
        and Path(spec.origin).with_name("src").joinpath("backend", framework).is_dir()
    ):
        os.environ["KERAS_BACKEND"] = framework


def running_on(framework: str) -> Any:
    """The module ``keras``, if it is imported and runs on that framework.

    Else ``None``.
    """
    keras: Any = sys.modules.get("keras")
    loaded = hasattr(keras, "Variable") and hasattr(keras, "Model")  # else half imported
    return keras if loaded and keras.config.backend() == framework else None


def role(cls: type, framework: str) -> Role | None:
    """What the class is to Keras, if Keras runs on that framework."""
    keras = running_on(framework)
    if keras is None:
        return None
    # the class that Variable extends: up to Keras 3.5 at least, layers make
    # theirs of that
    if issubclass(cls, (keras.Variable.__base__, keras.KerasTensor)):
        return "tensor"
    holders = (
        keras.layers.Layer,
        keras.optimizers.Optimizer,
        keras.metrics.Metric,
        keras.random.SeedGenerator,
    )
    return "model" if issubclass(cls, holders) else None


def value_of(tensor: Any) -> Any:
    """The framework's own tensor behind a Keras variable."""
    value = getattr(tensor, "_value", None)
    if value is not None:
        return value
    what = f"keras {type(tensor).__name__} {getattr(tensor, 'name', '')!r}"
    if hasattr(tensor, "_value"):
        raise UnknownPlacementError(
            f"{what} is not built yet and has no device; build it inside scope(device)"
        )
    raise UnknownPlacementError(
        f"{what} is symbolic and has no device; ask about a model's weights or a batch"
    )


def with_value(variable: Any, value: Any) -> Any:
    """Another Keras variable like that one, with the value.

    With its path, constraint and regularizer.
    """
    another = copy.copy(variable)
    another._value = value
    return another


def layers(model: Any) -> list[Any]:
    """Every layer of the model, itself included.

    None of an optimizer, metric or seed generator.
    """
    return list(model._flatten_layers()) if hasattr(model, "_flatten_layers") else []


def weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Each weight of a model or layer, and each variable of anything else, with its dotted name."""
    unbuilt = [layer.name for layer in layers(model) if not layer.built]
    if unbuilt and (not model.built or not model.weights):
        hint = "call its build(…), or give it a first batch, inside scope(device)"
        what = f"{type(model).__name__} {model.name!r}"
        raise UnknownPlacementError(
            f"{what} is not built, so its weights have no device yet; {hint}"
        )
    for variable in _own(model):
        yield getattr(variable, "path", variable.name).replace("/", "."), variable


def variables(model: Any) -> list[Any]:
    """Each variable once, with those of optimizers, metrics and random numbers, which belong to training."""
    found = list(_own(model))
    for layer in layers(model):
        found += [*layer.variables, *getattr(layer, "metrics_variables", ())]
        found += getattr(getattr(layer, "optimizer", None), "variables", ())
    return list({id(variable): variable for variable in found}.values())


def forget_compiled(model: Any) -> None:
    """Drop the functions that Keras has compiled, which refer to the old values; it compiles them again."""
    for layer in layers(model):
        for name in ("train_function", "test_function", "predict_function"):
            if getattr(layer, name, None) is not None:
                delattr(
                    layer, name
                )  # or Keras 3.15 keeps the function in its list of things to save
                setattr(layer, name, None)


def copies(models: list[Any]) -> list[Any]:
    """Copies of Keras's objects, on any device, as Keras saves and loads them.

    Layers that they share stay shared.
    """
    ours = [model for model in models if layers(model)]
    shared = _shared(ours)
    try:
        with warnings.catch_warnings():
            # Keras 3.15 reads its variables in a way that NumPy 2 warns of
            warnings.filterwarnings(
                "ignore", "__array__ implementation doesn't accept a copy", DeprecationWarning
            )
            made = _together(shared, ours) if shared else [copy.deepcopy(model) for model in ours]
            found = dict(zip(map(id, ours), made, strict=True))
            for model, new in zip(ours, made, strict=True):
                if getattr(model, "optimizer", None) is not None:
                    found[id(model.optimizer)] = new.optimizer
            return [found[id(model)] if id(model) in found else _copy_of(model) for model in models]
    except NotSupportedError:
        raise
    except (
        NotImplementedError,
        UnknownPlacementError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise cannot_copy(models, " ".join(str(error).split())) from error


def _copy_of(part: Any) -> Any:
    """A copy of what is not a layer: an optimizer, a metric, a seed generator."""
    if getattr(part, "built", False) and hasattr(part, "apply_gradients"):
        hint = "copy the model that is compiled with it, or build another for the copy"
        what = f"this {type(part).__name__} was built for the variables of a model, and so would be its copy"
        raise NotSupportedError(f"{what}; {hint}")
    return copy.deepcopy(part)


def check_sharing(
    before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]], models: list[Any]
) -> None:
    """Raise unless the copies have as many variables as the originals, and share them as these do."""
    for model, old, new in zip(models, before, after, strict=True):
        if len(old) != len(new):
            raise cannot_copy([model], f"of {len(old)} variables {len(new)} came back")
    if _pattern(before) != _pattern(after):
        raise cannot_copy(models, "variables that they share would come apart")


def cannot_copy(models: list[Any], reason: str) -> NotSupportedError:
    what = " and ".join(dict.fromkeys(type(model).__name__ for model in models))
    return NotSupportedError(
        f"keras cannot copy this {what} ({reason}); give it a get_config(), or build another"
    )


def _own(model: Any) -> list[Any]:
    if hasattr(model, "weights"):
        return list(model.weights)
    return (
        list(model.variables) if hasattr(model, "variables") else [model.state]
    )  # a seed generator


def _shared(models: list[Any]) -> list[Any]:
    """The layers that are in several of the models, inner ones before those around them."""
    found = {id(layer): layer for model in models for layer in layers(model)}
    counts = Counter(key for model in models for key in {id(layer) for layer in layers(model)})
    return sorted(
        (layer for key, layer in found.items() if counts[key] > 1),
        key=lambda layer: len(layers(layer)),
    )


def _together(shared: list[Any], models: list[Any]) -> list[Any]:
    """Copies of all as parts of one layer.

    What comes first is what Keras finds again in what comes later.
    """
    saving = sys.modules["keras"].saving

    class Bundle(sys.modules["keras"].layers.Layer):  # type: ignore[misc]  # known at run time
        def __init__(self, parts: list[Any]) -> None:
            super().__init__()
            self.parts, self.built = list(parts), True

        def get_config(self) -> dict[str, Any]:
            return {"parts": [saving.serialize_keras_object(part) for part in self.parts]}

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> Bundle:
            return cls(
                [saving.deserialize_keras_object(part, safe_mode=False) for part in config["parts"]]
            )

    with saving.custom_object_scope({"Bundle": Bundle}):
        made: list[Any] = list(copy.deepcopy(Bundle([*shared, *models])).parts)
    return made[len(shared) :]


def _pattern(groups: Sequence[Sequence[Any]]) -> list[int]:
    """For each variable the place of its first appearance."""
    first: dict[int, int] = {}
    return [first.setdefault(id(variable), len(first)) for group in groups for variable in group]
