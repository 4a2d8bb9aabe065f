"""Modules, which move in place.

`Module.to` moves parameters in place, as on CUDA, so that an existing optimiser keeps them. On CUDA it sets their
``.data``, which torch does not allow between the CPU and PrivateUse1; it would create new parameters. torch has an
option for such devices that swaps tensors, but it fails while a graph refers to them, drops hooks, and changes
`load_state_dict`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from xdevice.backends.torch.models import refill
from xdevice.virtual.torch.private_names import in_place_of, names, own
from xdevice.virtual.torch.runtime import NAME

_is_wrapper = names.value("torch.utils._python_dispatch:is_traceable_wrapper_subclass")


def replace() -> None:
    """Let modules move in place, and storages and lazy parameters by ``vgpu``, as they do by ``cuda``."""

    @in_place_of("torch.nn:Module._apply")
    def apply_in_place(
        apply: Any, self: torch.nn.Module, fn: Any, *args: Any, **kwargs: Any
    ) -> Any:
        fn = fn if isinstance(fn, _InPlace) else _InPlace(fn)
        if isinstance(self, torch.jit.ScriptModule):
            return _apply_to_script(self, fn)
        return apply(self, fn, *args, **kwargs)

    others = dict.fromkeys(("for_tensor", "for_module", "for_packed_sequence"), False)
    own.utils.generate_methods_for_privateuse1_backend(**others, for_storage=True)
    if not names.has("lazy modules that move by vgpu()"):
        return
    allowed, move = (
        own.nn.parameter.UninitializedTensorMixin._allowed_methods,
        getattr(torch.Tensor, NAME),
    )
    if move not in allowed:
        allowed.append(move)


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
        return (
            self.on_parameter(tensor)
            if isinstance(tensor, torch.nn.Parameter)
            else self._fn(tensor)
        )

    def on_parameter(self, parameter: torch.Tensor) -> torch.Tensor:
        made = self._fn(parameter)
        wrapper = bool(_is_wrapper(made))  # its tensors are inside it
        if wrapper or {parameter.device.type, made.device.type} != {"cpu", NAME}:
            return made
        grad = parameter.grad if parameter.is_leaf else None
        grad = None if grad is None else self._fn(grad)
        refill(parameter, made)
        parameter.grad = grad
        return parameter
