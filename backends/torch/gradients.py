"""Gradients, by torch.autograd."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from xdevice.backends.torch.placement import plain
from xdevice.errors import NotSupportedError

# The decorator gives every ``backward`` that it marks the same code.
_decorate: Any = once_differentiable
_ONCE_DIFFERENTIABLE = _decorate(lambda: None).__code__


def is_floating(tensor: torch.Tensor) -> bool:
    return plain(tensor).is_floating_point()


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[torch.Tensor], nested: bool
) -> tuple[Any, Any, list[Any]]:
    with torch.inference_mode(False), torch.enable_grad():
        variables = [_variable(plain(p), nested) for p in parameters]
        value, aux = call(variables)
        if not value.requires_grad:  # it depends on no variable
            return value, aux, [torch.zeros_like(p) for p in variables]
        once = _only_once(value.grad_fn) if nested else ""
        gradients = torch.autograd.grad(
            value, variables, create_graph=nested, allow_unused=True, materialize_grads=True
        )
        if once:
            refuse_second: Any = _Once.apply
            gradients = tuple(refuse_second(gradient, value, once) for gradient in gradients)
    return value if nested else value.detach(), aux, list(gradients)


class _Once(torch.autograd.Function):
    """The identity, of which a second gradient raises an error: torch 2.13.0 would return zero."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, value: torch.Tensor, once: str) -> torch.Tensor:
        ctx.once = once
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise _refused(ctx.once)


def _refused(what: str) -> NotSupportedError:
    return NotSupportedError(
        f"torch has no gradients of gradients of {what}; differentiate another function"
    )


def _only_once(node: Any) -> str:
    """The operation in the graph that can be differentiated once only; empty if there is none."""
    visited = set[Any]()
    pending = [node]
    while pending:
        node = pending.pop()
        if node is None or node in visited:
            continue
        if node.name() == "CompiledFunctionBackward":
            # torch may refuse a graph of its first gradient, too
            raise _refused("what torch.compile has compiled")
        backward = getattr(getattr(node, "_forward_cls", None), "backward", None)
        if getattr(backward, "__code__", None) is _ONCE_DIFFERENTIABLE:
            return f"{node.name().removesuffix('Backward')}, which is marked once_differentiable"
        visited.add(node)
        pending += [following for following, _ in node.next_functions]
    return ""


def _variable(parameter: torch.Tensor, nested: bool) -> torch.Tensor:
    if nested and parameter.requires_grad:
        # a separate object through which the outer gradient flows
        return parameter.view_as(parameter)
    source = parameter.clone() if parameter.is_inference() else parameter
    return source.detach().requires_grad_()
