"""`Module.to` moves parameters in place, as on CUDA, so that an existing optimiser keeps them.

On CUDA it sets their ``.data``, which torch does not allow between the CPU and PrivateUse1; it would create new
parameters. torch has an option for such devices that swaps tensors, but it fails while a graph refers to them,
drops hooks, and changes `load_state_dict`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import parameter as parameters
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from xdevice.backends.torch.virtual.devices import NAME
from xdevice.backends.torch.virtual.internals import core

if TYPE_CHECKING:
    from collections.abc import Callable


def keep() -> None:
    """Replace `Module._apply`."""
    module: Any = torch.nn.Module
    apply = module._apply

    def _apply(self: torch.nn.Module, fn: Any, *args: Any, **kwargs: Any) -> Any:
        fn = fn if isinstance(fn, _InPlace) else _InPlace(fn)
        if isinstance(self, torch.jit.ScriptModule):
            return _apply_to_script(self, fn)
        return apply(self, fn, *args, **kwargs)

    module._apply = _apply


def name_methods() -> None:
    """Let storages and lazy parameters move by ``vgpu``, as they do by ``cuda``."""
    inside: Any = torch.utils
    others = dict.fromkeys(("for_tensor", "for_module", "for_packed_sequence"), False)
    inside.generate_methods_for_privateuse1_backend(**others, for_storage=True)
    lazy: Any = getattr(parameters, "UninitializedTensorMixin")  # noqa: B009  (which checkers do not find)
    if getattr(torch.Tensor, NAME) not in lazy._allowed_methods:
        lazy._allowed_methods.append(getattr(torch.Tensor, NAME))


def _apply_to_script(module: Any, fn: _InPlace) -> Any:
    """The same for TorchScript, which refers to the C++ tensor and so needs the new one."""
    for child in module.children():
        child._apply(fn)
    for name, parameter in list(module._parameters.items()):
        made = fn.on_parameter(parameter)
        if made is not parameter:
            grad, parameter.grad = parameter.grad, None
            parameter.data = made.detach()
            parameter.grad = None if grad is None else fn(grad)
        module._c.setattr(name, parameter)
    for name, buffer in list(module._buffers.items()):
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


class _InPlace:
    """A function of tensors, such as a move, that is applied to parameters in place."""

    def __init__(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._fn = fn

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.on_parameter(tensor) if isinstance(tensor, torch.nn.Parameter) else self._fn(tensor)

    def on_parameter(self, parameter: torch.Tensor) -> torch.Tensor:
        made = self._fn(parameter)
        wrapper = bool(is_traceable_wrapper_subclass(made))  # its tensors are inside it
        if wrapper or {parameter.device.type, made.device.type} != {"cpu", NAME}:
            return made
        grad = parameter.grad if parameter.is_leaf else None
        grad = None if grad is None else self._fn(grad)
        refill(parameter, made)
        parameter.grad = grad
        return parameter


def refill(parameter: torch.Tensor, data: torch.Tensor) -> None:
    """Give the parameter other data, on any device."""
    if {parameter.device.type, data.device.type} == {"cpu", NAME}:
        if data.is_inference() and (is_lazy(parameter) or not parameter.is_inference()):
            with torch.inference_mode(False):
                data = data.clone()  # or the parameter would take no gradient from now on
        _exchange(parameter, torch.nn.Parameter(data, parameter.requires_grad))
    else:
        parameter.data = data


def _exchange(parameter: Any, other: torch.Tensor) -> None:
    """Swap the C++ tensors of two parameters. Existing graphs keep the tensor that they refer to."""
    if parameter.requires_grad and not (is_lazy(parameter) or parameter.is_inference()):  # no graph knows these
        with torch.inference_mode(False):
            torch.autograd.graph.get_gradient_edge(parameter).node.register_prehook(_refuse)
    inside: Any = parameter
    backward, accumulated = inside._backward_hooks, inside._post_accumulate_grad_hooks
    core._swap_tensor_impl(inside, other)
    inside._backward_hooks, inside._post_accumulate_grad_hooks = backward, accumulated


def _refuse(gradients: Any) -> Any:
    raise RuntimeError(
        "a parameter was moved to another device between forward and backward, so its gradient has nowhere to go; "
        "move the model before forward, or after backward"
    )
