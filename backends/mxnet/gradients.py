"""Gradients, by mxnet.autograd."""

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd

from xdevice.backends.mxnet.collectives import dense
from xdevice.backends.mxnet.placement import arrays
from xdevice.contract import Call, Tensor
from xdevice.errors import NotSupportedError


def is_floating(tensor: Tensor) -> bool:
    return bool(np.dtype(arrays(tensor)[0].dtype).kind == "f")


def value_and_gradients(
    call: Call, parameters: list[Tensor], nested: bool
) -> tuple[Tensor, Any, list[Tensor]]:
    if nested:
        raise NotSupportedError(
            "mxnet has no gradients of gradients for most operations; "
            "call value_and_grad outside another's function"
        )
    # without NumPy's shapes, MXNet treats the shape of a single number as unknown
    with mx.util.np_shape(True):
        variables = [arrays(parameter)[0].detach() for parameter in parameters]
        _mark(variables)
        # training mode, unless the user records in another
        training = not autograd.is_recording() or autograd.is_training()
        with autograd.record(training):
            value, aux = call(variables)
        gradients = _gradients(value, variables, training)
    for i, variable in enumerate(variables):
        if isinstance(variable, mx.np.ndarray):
            gradients[i] = dense(gradients[i]).as_np_ndarray()
    return value.detach(), aux, gradients


def _mark(variables: list[Tensor]) -> None:
    """Let MXNet record what is computed with the variables.

    Their gradients are returned by `autograd.grad`, so the arrays for gradients are not filled.
    """
    empty: Any = mx.np.empty  # its types allow float32 only
    gradients = [empty(array.shape, dtype=array.dtype, ctx=array.ctx) for array in variables]
    autograd.mark_variables(variables, gradients)


def _gradients(value: Tensor, variables: list[Tensor], training: bool) -> list[Tensor]:
    """The gradients by `autograd.grad`.

    ``backward`` would overwrite the gradients of other arrays in the graph.
    """
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
    with autograd.record():
        value = value.as_np_ndarray()
        for variable in variables:
            zero = variable.as_np_ndarray().reshape(-1)[:0].sum()
            value = value + zero.as_in_ctx(value.ctx).astype(value.dtype)
    return list(autograd.grad(value, variables, train_mode=training))
