"""Move modules in place.

`Module.to` moves parameters in place, as on CUDA, so that an existing optimiser keeps them. On CUDA
it sets their ``.data``, which torch does not allow between the CPU and PrivateUse1: it would create
new parameters. torch has an option for such devices that swaps tensors, but it fails while a graph
refers to them, drops hooks, and changes `load_state_dict`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xdevice.backends.torch.models import refill
from xdevice.virtual.torch.private_names import Function, in_place_of, names, untyped_torch
from xdevice.virtual.torch.runtime import NAME

_is_wrapper = names.value("torch.utils._python_dispatch:is_traceable_wrapper_subclass")


def replace() -> None:
    """Make modules move in place, and give storages and lazy parameters the method ``vgpu``."""

    @in_place_of("torch.nn:Module._apply")
    def apply_in_place(
        native: Function, self: torch.nn.Module, fn: Function, *args: object, **kwargs: object
    ) -> Any:
        if not isinstance(fn, _InPlace):
            fn = _InPlace(fn)
        if isinstance(self, torch.jit.ScriptModule):
            return _apply_to_script(self, fn)
        return native(self, fn, *args, **kwargs)

    untyped_torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=False, for_module=False, for_packed_sequence=False, for_storage=True
    )
    if not names.has("lazy modules that move by vgpu()"):
        return
    allowed_methods = untyped_torch.nn.parameter.UninitializedTensorMixin._allowed_methods
    vgpu_method = getattr(torch.Tensor, NAME)
    if vgpu_method not in allowed_methods:
        allowed_methods.append(vgpu_method)


def _apply_to_script(module: Any, fn: _InPlace) -> Any:
    """Apply the function to a TorchScript module, which must be given each new C++ tensor."""
    for child in module.children():
        child._apply(fn)
    for name, parameter in list(module._parameters.items()):
        new_parameter = fn.on_parameter(parameter)
        if new_parameter is not parameter:
            grad = parameter.grad
            parameter.grad = None
            parameter.data = new_parameter.detach()
            if grad is not None:
                parameter.grad = fn(grad)
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
        if isinstance(tensor, torch.nn.Parameter):
            return self.on_parameter(tensor)
        return self._fn(tensor)

    def on_parameter(self, parameter: torch.Tensor) -> torch.Tensor:
        result = self._fn(parameter)
        if bool(_is_wrapper(result)):  # a subclass that contains other tensors
            return result
        if {parameter.device.type, result.device.type} != {"cpu", NAME}:
            return result
        grad = None
        if parameter.is_leaf and parameter.grad is not None:
            grad = self._fn(parameter.grad)
        refill(parameter, result)
        parameter.grad = grad
        return parameter
