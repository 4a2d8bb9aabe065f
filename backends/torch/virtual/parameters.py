"""`Module.to` moves parameters in place, as on CUDA, so that an optimiser made earlier keeps them.

On CUDA it sets their ``.data``, which torch does not allow between the CPU and PrivateUse1: there it would make
new parameters. torch has a switch for such devices, which exchanges the insides of tensors; but that refuses
while a graph refers to them, forgets hooks, and changes `load_state_dict`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from xdevice.backends.torch.virtual.devices import NAME
from xdevice.backends.torch.virtual.internals import core

if TYPE_CHECKING:
    from collections.abc import Callable


def keep() -> None:
    """From now on parameters are moved in place."""
    module: Any = torch.nn.Module
    apply = module._apply

    def _apply(self: torch.nn.Module, fn: Any, *args: Any, **kwargs: Any) -> Any:
        return apply(self, fn if isinstance(fn, _InPlace) else _InPlace(fn), *args, **kwargs)

    module._apply = _apply


class _InPlace:
    """A function of tensors, such as a move, that leaves a parameter the object that it is."""

    def __init__(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._fn = fn

    def __call__(self, tensor: Any) -> torch.Tensor:
        made = self._fn(tensor)
        if not isinstance(tensor, torch.nn.Parameter) or {tensor.device.type, made.device.type} != {"cpu", NAME}:
            return made
        if is_traceable_wrapper_subclass(tensor):  # its tensors are inside it
            return made
        grad = None if tensor.grad is None else self._fn(tensor.grad)
        _exchange(tensor, torch.nn.Parameter(made, tensor.requires_grad))
        tensor.grad = grad
        return tensor


def _exchange(parameter: Any, other: torch.Tensor) -> None:
    """Exchange the insides of two parameters. A graph that refers to them keeps the insides that it knows."""
    if parameter.requires_grad and not is_lazy(parameter):  # before its first batch no graph knows it
        torch.autograd.graph.get_gradient_edge(parameter).node.register_prehook(_refuse)
    backward, accumulated = parameter._backward_hooks, parameter._post_accumulate_grad_hooks
    core._swap_tensor_impl(parameter, other)
    parameter._backward_hooks, parameter._post_accumulate_grad_hooks = backward, accumulated


def _refuse(gradients: Any) -> Any:
    raise RuntimeError(
        "a parameter was moved to another device between forward and backward, so its gradient has nowhere to go; "
        "move the model before forward, or after backward"
    )
