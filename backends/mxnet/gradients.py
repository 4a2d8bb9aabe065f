"""Gradients, by mxnet.autograd."""

from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd

from xdevice.backends.mxnet.collectives import dense
from xdevice.backends.mxnet.placement import arrays
from xdevice.errors import NotSupportedError


def is_floating(tensor: Any) -> bool:
    return bool(np.dtype(arrays(tensor)[0].dtype).kind == "f")


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    if nested:
        raise NotSupportedError(
            "mxnet has no gradients of gradients for most operations; call value_and_grad outside another's function"
        )
    with mx.util.np_shape(True):  # or MXNet takes a single number for an array of unknown shape
        variables = [arrays(p)[0].detach() for p in parameters]
        # which makes them variables; the gradients are returned, not left there, so nothing is to be filled with zeros
        empty: Any = mx.np.empty  # its types say float32 alone
        autograd.mark_variables(variables, [empty(v.shape, dtype=v.dtype, ctx=v.ctx) for v in variables])
        training = autograd.is_training() if autograd.is_recording() else True  # the mode of the surrounding record()
        with autograd.record(training):
            value, aux = call(variables)
        found = _gradients(value, variables, training)
    in_np = [
        dense(g).as_np_ndarray() if isinstance(v, mx.np.ndarray) else g for v, g in zip(variables, found, strict=True)
    ]
    return value.detach(), aux, in_np


def _gradients(value: Any, variables: list[Any], training: bool) -> list[Any]:
    """Not by ``backward``, which would overwrite the gradients of arrays that the function has from elsewhere."""
    try:
        return list(autograd.grad(value, variables, train_mode=training))
    except mx.MXNetError as error:
        if "unreachable from the outputs" not in str(error) and "not in a computational graph" not in str(error):
            raise
    # the value depends not on all of them: add nothing of each
    with autograd.record(training):
        value = value.as_np_ndarray()
        for variable in variables:
            nothing = variable.as_np_ndarray().reshape(-1)[:0].sum()
            value = value + nothing.as_in_ctx(value.ctx).astype(value.dtype)
    return list(autograd.grad(value, variables, train_mode=training))
