"""Gradients, by torch.autograd."""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from xdevice.backends.torch.placement import plain
from xdevice.errors import NotSupportedError

_marked: Any = once_differentiable
_ONCE_DIFFERENTIABLE = _marked(
    lambda: None
).__code__  # the code of every ``backward`` that is marked so


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
        found = torch.autograd.grad(
            value, variables, create_graph=nested, allow_unused=True, materialize_grads=True
        )
        if once:
            checked: Any = _Once.apply
            found = tuple(checked(gradient, value, once) for gradient in found)
    return value if nested else value.detach(), aux, list(found)


class _Once(torch.autograd.Function):
    """A gradient that cannot be differentiated for what the value depends on: it would be zero (2.13.0)."""

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
    """The operation that can be differentiated once only; empty if there is none."""
    seen, left = set[Any](), [node]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CompiledFunctionBackward":
            raise _refused(
                "what torch.compile has compiled"
            )  # torch may refuse a graph of its first gradient, too
        backward = getattr(getattr(node, "_forward_cls", None), "backward", None)
        if getattr(backward, "__code__", None) is _ONCE_DIFFERENTIABLE:
            return f"{node.name().removesuffix('Backward')}, which is marked once_differentiable"
        seen.add(node)
        left += [before for before, _ in node.next_functions]
    return ""


def _variable(parameter: torch.Tensor, nested: bool) -> torch.Tensor:
    if nested and parameter.requires_grad:
        return parameter.view_as(
            parameter
        )  # a separate object through which the outer gradient flows
    own = parameter.clone() if parameter.is_inference() else parameter
    return own.detach().requires_grad_()
