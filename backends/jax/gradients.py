"""Gradients, by jax.value_and_grad."""

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.core import Tracer

from xdevice.backends.jax.placement import concrete, described, is_sparse
from xdevice.contract import Call, Differentiation, Tensor
from xdevice.errors import NotSupportedError

Function: TypeAlias = Callable[..., Any]
Results: TypeAlias = tuple[Tensor, object, list[Tensor]]
"""The value, the function's other results, and the gradients."""

_JittedFunction = type(jax.jit(lambda: None))
_compiled_gradients: weakref.WeakKeyDictionary[Function, Function] = weakref.WeakKeyDictionary()


def is_floating(tensor: Tensor) -> bool:
    return bool(jnp.issubdtype(tensor.dtype, jnp.floating))


def value_and_gradients(call: Call, parameters: list[Tensor], nested: bool) -> Results:
    for parameter in parameters:
        if is_sparse(parameter):
            raise NotSupportedError(f"jax.grad cannot differentiate for {described(parameter)}")
    arrays = [_array_of(parameter) for parameter in parameters]
    if isinstance(call.fn, _JittedFunction):
        arguments, structure = jax.tree.flatten((call.args, call.kwargs))
        if all(_has_values(argument) for argument in arguments):
            results: Results = _compiled(call.fn)((structure, call.how), arrays, arguments)
            return results
    value, other_results, gradients = _differentiated(call, arrays)
    pairs = zip(arrays, gradients, strict=True)
    return value, other_results, [_on_device_of(array, gradient) for array, gradient in pairs]


def _array_of(parameter: Tensor) -> jax.Array:
    """The parameter, or the array of a Keras variable."""
    array: jax.Array = parameter if isinstance(parameter, jax.Array) else concrete(parameter)
    return array


def _has_values(argument: object) -> bool:
    return isinstance(argument, jax.Array) and not isinstance(argument, Tracer)


def _differentiated(call: Call, parameters: list[jax.Array]) -> Results:
    def scalar(variables: list[jax.Array]) -> tuple[Tensor, object]:
        value, other_results = call(variables)
        # JAX differentiates only an array without axes
        return value.reshape(()), (value.shape, other_results)

    differentiated = jax.value_and_grad(scalar, has_aux=True)
    (value, (shape, other_results)), gradients = differentiated(parameters)
    return value.reshape(shape), other_results, gradients


def _compiled(fn: Function) -> Function:
    """A compiled function for the value and the gradients of the jitted function.

    It is kept as long as the jitted function: JAX would trace ``value_and_grad``
    anew in each call.
    """
    if fn in _compiled_gradients:
        return _compiled_gradients[fn]
    function = weakref.ref(fn)  # a strong reference would keep the entry's key alive

    def compiled(
        fixed: tuple[Any, Differentiation], parameters: list[jax.Array], arguments: list[jax.Array]
    ) -> Results:
        structure, differentiation = fixed
        args, kwargs = jax.tree.unflatten(structure, arguments)
        referent: Any = function()
        return _differentiated(differentiation.bind(referent, args, kwargs), parameters)

    return _compiled_gradients.setdefault(fn, jax.jit(compiled, static_argnums=0))


def _on_device_of(parameter: jax.Array, gradient: jax.Array) -> jax.Array:
    """The gradient on its parameter's device.

    JAX makes the zeros for an unused parameter on the default device.
    """
    if isinstance(gradient, Tracer) or isinstance(parameter, Tracer):
        return gradient
    if gradient.sharding == parameter.sharding:
        return gradient
    moved: jax.Array = jax.device_put(gradient, parameter.sharding)
    return moved
