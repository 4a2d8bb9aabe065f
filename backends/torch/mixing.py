"""Operations on tensors of several devices: torch's error becomes a `MixedDeviceError`.

A mode translates torch's errors in the thread that opened the block; other
threads get torch's own error. Operations in which torch copies by itself, such
as ``x[0] = y``, are allowed. Devices that replace the GPUs may raise the error
themselves, in every thread (`is_forbidden`).
"""

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from xdevice.backends.torch.hardware import as_device, gpus
from xdevice.backends.torch.private_names import core, names
from xdevice.device import Device
from xdevice.errors import mixed

Function: TypeAlias = Callable[..., Any]

_DEVICE = re.compile(r"\b(?:cpu|cuda|xpu|mps|vgpu)(?::\d+)?\b")
_forbidden = False


def is_forbidden() -> bool:
    """Whether a strict block is open in any thread."""
    return _forbidden


@contextmanager
def forbid() -> Generator[None]:
    global _forbidden
    names.require("strict()")
    mode: Any = _TranslatingMode()
    thread = get_ident()
    _forbidden = True
    has_gpus = gpus()[1] > 0  # with one device there is nothing to mix
    if has_gpus:
        mode.__enter__()
    try:
        yield
    finally:
        _forbidden = False
        mode.is_closed = True  # another thread cannot remove it from this thread's stack
        if has_gpus and thread == get_ident():
            _remove(mode)


def _remove(mode: Any) -> None:
    """Take the mode off this thread's stack, and leave those that were entered later."""
    stack = [core._pop_torch_function_stack() for _ in range(core._len_torch_function_stack())]
    for other in reversed(stack):
        if other is not mode:
            core._push_on_torch_function_stack(other)


class _TranslatingMode(TorchFunctionMode):
    """Translates torch's error for mixed devices, in each call of torch."""

    is_closed = False

    def __torch_function__(
        self,
        func: Function,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        try:
            if kwargs:
                return func(*args, **kwargs)
            return func(*args)
        except RuntimeError as error:
            if self.is_closed:
                raise
            devices = _devices_in(error, args)
            if len(devices) < 2:
                raise
            name = resolve_name(func) or getattr(func, "__name__", "torch")
            raise mixed(name, devices) from error


def _devices_in(error: RuntimeError, args: Sequence[object]) -> set[Device]:
    """The devices of torch's error about devices.

    Empty for other errors, and for errors that are translated already.
    """
    message = str(error)
    if "device" not in message.lower() or hasattr(error, "devices"):
        return set()
    devices = {as_device(torch.device(name)) for name in _DEVICE.findall(message)}
    if len(devices) > 1:
        return devices
    return {as_device(tensor.device) for tensor in tensors_in(args)}


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """The tensors in arguments of a call: alone, and in lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
