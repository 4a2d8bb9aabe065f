"""Gluon's blocks, and what ``collect_params`` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.gluon import Block

from xdevice.backends.mxnet.hardware import native
from xdevice.backends.mxnet.placement import copy_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mxnet.gluon import Parameter, ParameterDict

    from xdevice.device import Device


def tensors_of(model: Block | ParameterDict) -> Iterator[tuple[str, Parameter]]:
    yield from _parameters(model).items()


def move_model(model: Any, device: Device) -> Any:
    _parameters(model).reset_ctx(native(device))
    return model


def copy_model(model: Any) -> Any:
    memo: dict[int, Any] = {}

    def leave_out_compiled_graph(block: Block) -> None:
        compiled = getattr(block, "_cached_op", None)  # of a hybridized block; rebuilt when it is called
        if compiled is not None:
            memo[id(compiled)] = None

    if isinstance(model, Block):
        model.apply(leave_out_compiled_graph)
    with mx.util.np_shape(True):
        return copy_parameters(model, list(_parameters(model).values()), memo)


def _parameters(model: Any) -> ParameterDict:
    return model.collect_params() if isinstance(model, Block) else model
