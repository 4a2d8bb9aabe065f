"""Gradients, by mxnet.autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet import autograd

from xdevice.backends.mxnet.placement import arrays
from xdevice.errors import NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Callable


def is_floating(tensor: Any) -> bool:
    return bool(np.dtype(tensor.dtype).kind == "f")


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[Any], nested: bool
) -> tuple[Any, Any, list[Any]]:
    if nested:
        raise NotSupportedError(
            "mxnet has no gradients of gradients for most operations; call value_and_grad outside another's function"
        )
    with mx.util.np_shape(True):  # or MXNet takes a single number for an array of unknown shape
        variables = [arrays(p)[0].detach() for p in parameters]
        for variable in variables:
            variable.attach_grad()  # zeros, and so they stay for what is not used
        with autograd.record():
            value, aux = call(variables)
        try:
            value.backward()
        except mx.MXNetError as error:
            if "not in a computational graph" not in str(error):
                raise  # else the value depends on none of them
    return value.detach(), aux, [variable.grad for variable in variables]
