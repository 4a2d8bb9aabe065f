"""Gradients, by jax.value_and_grad."""

import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from xdevice.backends.jax.placement import concrete, described, is_sparse
from xdevice.contract import Call
from xdevice.errors import NotSupportedError

_Jitted = type(jax.jit(lambda: None))
_known: weakref.WeakKeyDictionary[Any, Callable[..., Any]] = weakref.WeakKeyDictionary()


def is_floating(tensor: Any) -> bool:
    return bool(jnp.issubdtype(tensor.dtype, jnp.floating))


def value_and_gradients(
    call: Call, parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    odd = next(filter(is_sparse, parameters), None)
    if odd is not None:
        raise NotSupportedError(f"jax.grad cannot differentiate for {described(odd)}")
    parameters = [
        p if isinstance(p, jax.Array) else concrete(p) for p in parameters
    ]  # Keras's variables
    if isinstance(call.fn, _Jitted):
        arrays, structure = jax.tree.flatten((call.args, call.kwargs))
        if all(isinstance(array, jax.Array) and not isinstance(array, Tracer) for array in arrays):
            found: tuple[Any, Any, list[Any]] = _compiled(call.fn)(
                (structure, call.how), parameters, arrays
            )
            return found
    value, aux, gradients = _differentiated(call, parameters)
    return value, aux, [_beside(p, g) for p, g in zip(parameters, gradients, strict=True)]


def _differentiated(call: Call, parameters: list[Any]) -> tuple[Any, Any, list[Any]]:
    def scalar(variables: list[Any]) -> tuple[Any, Any]:
        value, aux = call(variables)
        return value.reshape(()), (value.shape, aux)  # JAX asks for no axes at all

    (value, (shape, aux)), gradients = jax.value_and_grad(scalar, has_aux=True)(parameters)
    return value.reshape(shape), aux, gradients


def _compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The value and the gradients of a compiled function, compiled in their turn: else JAX traces them every time."""
    known = _known.get(fn)
    if known is not None:
        return known
    function = weakref.ref(fn)  # or the entry would keep its own key

    def compiled(fixed: tuple[Any, ...], parameters: list[Any], arrays: list[Any]) -> Any:
        structure, how = fixed
        args, kwargs = jax.tree.unflatten(structure, arrays)
        return _differentiated(how.bind(function(), args, kwargs), parameters)

    return _known.setdefault(fn, jax.jit(compiled, static_argnums=0))


def _beside(parameter: Any, gradient: Any) -> Any:
    """The gradient on its parameter's device: JAX makes zeros for an unused one on the default device."""
    if (
        isinstance(gradient, Tracer)
        or isinstance(parameter, Tracer)
        or gradient.sharding == parameter.sharding
    ):
        return gradient
    return jax.device_put(gradient, parameter.sharding)
