"""Gradients, by jax.value_and_grad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Callable


def is_floating(tensor: Any) -> bool:
    return bool(jnp.issubdtype(tensor.dtype, jnp.floating))


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[Any]
) -> tuple[Any, Any, list[Any]]:
    def scalar(variables: list[Any]) -> tuple[Any, Any]:
        value, aux = call(variables)
        return value.reshape(()), (value.shape, aux)  # JAX asks for no axes at all

    (value, (shape, aux)), found = jax.value_and_grad(scalar, has_aux=True)(parameters)
    return value.reshape(shape), aux, list(found)
