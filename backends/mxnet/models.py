"""Gluon's blocks, the result of ``collect_params``, and the batches of MXNet's iterators."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import mxnet as mx
from mxnet.gluon import Block, Parameter, ParameterDict

from xdevice.backends.kit.nodes import by_attributes
from xdevice.backends.mxnet.hardware import native
from xdevice.backends.mxnet.placement import copy_parameters, reset
from xdevice.contract import Node, NodeParts
from xdevice.device import Device

Model: TypeAlias = Block | ParameterDict


def tensors_of(model: Model) -> Iterator[tuple[str, Parameter]]:
    yield from _parameters(model).items()


def move_model(model: Model, device: Device) -> Model:
    for parameter in _parameters(model).values():
        reset(parameter, native(device))
    return model


def keep(model: Model) -> Callable[[], None]:
    saved = [(parameter, dict(vars(parameter))) for parameter in _parameters(model).values()]

    def put_back() -> None:
        for parameter, attributes in saved:
            vars(parameter).update(attributes)

    return put_back


def copy_models(models: list[Model]) -> list[Model]:
    memo: dict[int, object] = {}

    def leave_out_compiled_graph(block: Block) -> None:
        # the graph of a hybridized block; the copy builds its own when it is called
        compiled = getattr(block, "_cached_op", None)
        if compiled is not None:
            memo[id(compiled)] = None

    for model in models:
        if isinstance(model, Block):
            model.apply(leave_out_compiled_graph)
    parameters = {id(p): p for model in models for p in _parameters(model).values()}
    with mx.util.np_shape(True):
        return list(copy_parameters(models, list(parameters.values()), memo))


def _parameters(model: Model) -> ParameterDict:
    return model.collect_params() if isinstance(model, Block) else model


def is_node(cls: type) -> bool:
    return issubclass(cls, mx.io.DataBatch)


def flatten_one_level(node: Node) -> NodeParts:
    return by_attributes(node, list(vars(node)))
