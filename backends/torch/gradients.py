"""Gradients, by torch.autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch import in_keras

if TYPE_CHECKING:
    from collections.abc import Callable


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
        found = torch.autograd.grad(value, variables, create_graph=nested, allow_unused=True, materialize_grads=True)
    return value if nested else value.detach(), aux, list(found)


def _variable(parameter: torch.Tensor, nested: bool) -> torch.Tensor:
    if nested and parameter.requires_grad:
        return parameter.view_as(parameter)  # a separate object through which the outer gradient flows
    own = parameter.clone() if parameter.is_inference() else parameter
    return own.detach().requires_grad_()
