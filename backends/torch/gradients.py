"""Gradients, by torch.autograd."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from torch.autograd.function import once_differentiable

from xdevice.backends.torch.placement import plain
from xdevice.contract import Call, Tensor
from xdevice.errors import NotSupportedError

GraphNode: TypeAlias = Any  # of autograd's graph; `torch.autograd.graph.Node` is new in torch 2.2

# The decorator gives every ``backward`` that it marks the same code.
_decorate: Callable[..., Any] = once_differentiable
_ONCE_DIFFERENTIABLE = _decorate(lambda: None).__code__


def is_floating(tensor: torch.Tensor) -> bool:
    return plain(tensor).is_floating_point()


def value_and_gradients(
    call: Call, parameters: list[Tensor], nested: bool
) -> tuple[torch.Tensor, object, list[torch.Tensor]]:
    with _outside_inference_mode(), torch.enable_grad():
        variables = [_variable(plain(p), nested) for p in parameters]
        value, other_results = call(variables)
        if not value.requires_grad:  # it depends on no variable
            return value, other_results, [torch.zeros_like(p) for p in variables]
        operation = _once_differentiable_operation(value.grad_fn) if nested else ""
        gradients = torch.autograd.grad(
            value, variables, create_graph=nested, allow_unused=True, materialize_grads=True
        )
        if operation:
            identity: Callable[..., torch.Tensor] = _OnceDifferentiable.apply
            gradients = tuple(identity(gradient, value, operation) for gradient in gradients)
    if not nested:
        value = value.detach()
    return value, other_results, list(gradients)


def _outside_inference_mode() -> AbstractContextManager[object]:
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    # `torch.inference_mode(False)` enables multithreading, which the program may
    # have disabled
    return nullcontext()


class _OnceDifferentiable(torch.autograd.Function):
    """The identity; differentiating it raises an error.

    A function marked ``once_differentiable`` has no gradient of its gradient;
    torch 2.13.0 returns zeros for it. So the gradient passes through this
    function, which depends on the value as well: differentiating the gradient
    for any variable of the value meets it.
    """

    @staticmethod
    def forward(
        ctx: Any, gradient: torch.Tensor, value: torch.Tensor, operation: str
    ) -> torch.Tensor:
        ctx.operation = operation
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> object:
        raise _no_second_gradient(ctx.operation)


def _no_second_gradient(operation: str) -> NotSupportedError:
    return NotSupportedError(
        f"torch has no gradients of gradients of {operation}; differentiate another function"
    )


def _once_differentiable_operation(node: GraphNode) -> str:
    """The operation in the graph that can be differentiated once only; empty if there is none."""
    visited = set[GraphNode]()
    pending = [node]
    while pending:
        node = pending.pop()
        if node is None or node in visited:
            continue
        if node.name() == "CompiledFunctionBackward":
            # torch may refuse a graph of its first gradient, too
            raise _no_second_gradient("what torch.compile has compiled")
        backward = getattr(getattr(node, "_forward_cls", None), "backward", None)
        if getattr(backward, "__code__", None) is _ONCE_DIFFERENTIABLE:
            return f"{node.name().removesuffix('Backward')}, which is marked once_differentiable"
        visited.add(node)
        pending += [next_node for next_node, _ in node.next_functions]
    return ""


def _variable(parameter: torch.Tensor, nested: bool) -> torch.Tensor:
    if nested and parameter.requires_grad:
        # a separate object through which the outer gradient flows
        return parameter.view_as(parameter)
    source = parameter.clone() if parameter.is_inference() else parameter
    return source.detach().requires_grad_()
