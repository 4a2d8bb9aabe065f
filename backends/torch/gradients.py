"""Gradients, by torch.autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


def is_floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[torch.Tensor]
) -> tuple[Any, Any, list[Any]]:
    variables = [p.detach().requires_grad_() for p in parameters]
    with torch.enable_grad():
        value, aux = call(variables)
        if not value.requires_grad:  # it depends on none of them
            return value, aux, [torch.zeros_like(p) for p in variables]
        found = torch.autograd.grad(value, variables, allow_unused=True, materialize_grads=True)
    return value.detach(), aux, list(found)
