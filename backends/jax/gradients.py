"""Gradients, by jax.value_and_grad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

if TYPE_CHECKING:
    from collections.abc import Callable


def is_floating(tensor: Any) -> bool:
    return bool(jnp.issubdtype(tensor.dtype, jnp.floating))


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    def scalar(variables: list[Any]) -> tuple[Any, Any]:
        value, aux = call(variables)
        return value.reshape(()), (value.shape, aux)  # JAX asks for no axes at all

    (value, (shape, aux)), found = jax.value_and_grad(scalar, has_aux=True)(parameters)
    return value.reshape(shape), aux, [_beside(p, g) for p, g in zip(parameters, found, strict=True)]


def _beside(parameter: Any, gradient: Any) -> Any:
    """The gradient on its parameter's device: JAX makes zeros for an unused one on the default device."""
    if isinstance(gradient, Tracer) or isinstance(parameter, Tracer) or gradient.sharding == parameter.sharding:
        return gradient
    return jax.device_put(gradient, parameter.sharding)
