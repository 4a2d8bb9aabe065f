"""Gradients, by torch.autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xdevice.backends.torch import in_keras
from xdevice.errors import NotSupportedError


def is_floating(tensor: torch.Tensor) -> bool:
    return in_keras.plain(tensor).is_floating_point()


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[torch.Tensor], nested: bool
) -> tuple[Any, Any, list[Any]]:
    with torch.inference_mode(False), torch.enable_grad():
        variables = [_variable(in_keras.plain(p), nested) for p in parameters]
        value, aux = call(variables)
        if not value.requires_grad:  # it depends on no variable
            return value, aux, [torch.zeros_like(p) for p in variables]
        if nested and _through_compiled(value.grad_fn):
            raise NotSupportedError(
                "torch has no gradients of gradients of what torch.compile has compiled; differentiate the function "
                "itself"
            )
        found = torch.autograd.grad(value, variables, create_graph=nested, allow_unused=True, materialize_grads=True)
    return value if nested else value.detach(), aux, list(found)


def _through_compiled(node: Any) -> bool:
    """Whether a compiled graph is among the operations; the gradient of its gradient would be zero (2.13.0)."""
    seen, left = set[Any](), [node]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CompiledFunctionBackward":
            return True
        seen.add(node)
        left += [before for before, _ in node.next_functions]
    return False


def _variable(parameter: torch.Tensor, nested: bool) -> torch.Tensor:
    if nested and parameter.requires_grad:
        return parameter.view_as(parameter)  # a separate object through which the outer gradient flows
    own = parameter.clone() if parameter.is_inference() else parameter
    return own.detach().requires_grad_()
