"""Gradients, by mxnet.autograd."""

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd

from xdevice.backends.mxnet.collectives import dense
from xdevice.backends.mxnet.placement import arrays
from xdevice.contract import Call
from xdevice.errors import NotSupportedError


def is_floating(tensor: Any) -> bool:
    return bool(np.dtype(arrays(tensor)[0].dtype).kind == "f")


def value_and_gradients(
    call: Call, parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    if nested:
        raise NotSupportedError(
            "mxnet has no gradients of gradients for most operations; "
            "call value_and_grad outside another's function"
        )
    # without NumPy's shapes, MXNet treats the shape of a single number as unknown
    with mx.util.np_shape(True):
        variables = [arrays(parameter)[0].detach() for parameter in parameters]
        _mark(variables)
        # within record(), its mode
        training = autograd.is_training() if autograd.is_recording() else True
        with autograd.record(training):
            value, aux = call(variables)
        gradients = _gradients(value, variables, training)
    for i, variable in enumerate(variables):
        if isinstance(variable, mx.np.ndarray):
            gradients[i] = dense(gradients[i]).as_np_ndarray()
    return value.detach(), aux, gradients


def _mark(variables: list[Any]) -> None:
    """Let MXNet record what is computed with the variables.

    Their gradients are returned by `autograd.grad`, so the arrays for gradients are not filled.
    """
    empty: Any = mx.np.empty  # its types allow float32 only
    gradients = [empty(array.shape, dtype=array.dtype, ctx=array.ctx) for array in variables]
    autograd.mark_variables(variables, gradients)


def _gradients(value: Any, variables: list[Any], training: bool) -> list[Any]:
    """The gradients by `autograd.grad`; ``backward`` would overwrite those of other arrays in the graph."""
    try:
        return list(autograd.grad(value, variables, train_mode=training))
    except mx.MXNetError as error:
        message = str(error)
        is_independent = (
            "unreachable from the outputs" in message or "not in a computational graph" in message
        )
        if not is_independent:
            raise
    # the value does not depend on all variables: an empty sum of each is added
    with autograd.record(training):
        value = value.as_np_ndarray()
        for variable in variables:
            zero = variable.as_np_ndarray().reshape(-1)[:0].sum()
            value = value + zero.as_in_ctx(value.ctx).astype(value.dtype)
    return list(autograd.grad(value, variables, train_mode=training))
