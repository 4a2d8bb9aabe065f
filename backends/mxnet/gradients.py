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
        hint = "call value_and_grad outside another's function"
        raise NotSupportedError(f"mxnet has no gradients of gradients for most operations; {hint}")
    with mx.util.np_shape(True):  # or MXNet takes a single number for an array of unknown shape
        variables = [arrays(p)[0].detach() for p in parameters]
        # which makes them variables; the gradients are returned, not left there, so nothing is to be filled with zeros
        empty: Any = mx.np.empty  # its types say float32 alone
        autograd.mark_variables(
            variables, [empty(v.shape, dtype=v.dtype, ctx=v.ctx) for v in variables]
        )
        training = (
            autograd.is_training() if autograd.is_recording() else True
        )  # the mode of the surrounding record()
        with autograd.record(training):
            value, aux = call(variables)
        found = _gradients(value, variables, training)
    pairs = zip(variables, found, strict=True)
    found = [dense(g).as_np_ndarray() if isinstance(v, mx.np.ndarray) else g for v, g in pairs]
    return value.detach(), aux, found


def _gradients(value: Any, variables: list[Any], training: bool) -> list[Any]:
    """Not by ``backward``, which would overwrite the gradients of arrays that the function has from elsewhere."""
    try:
        return list(autograd.grad(value, variables, train_mode=training))
    except mx.MXNetError as error:
        if "unreachable from the outputs" not in str(
            error
        ) and "not in a computational graph" not in str(error):
            raise
    # the value depends not on all of them: add nothing of each
    with autograd.record(training):
        value = value.as_np_ndarray()
        for variable in variables:
            nothing = variable.as_np_ndarray().reshape(-1)[:0].sum()
            value = value + nothing.as_in_ctx(value.ctx).astype(value.dtype)
    return list(autograd.grad(value, variables, train_mode=training))
