"""Operations on tensors of several devices: torch raises an error, which becomes a `MixedDeviceError` here.

Virtual GPUs raise it themselves, in every thread. Errors that torch raises
earlier, and all errors on real GPUs, are translated by a mode of the thread that opened the block; other threads
get torch's own error. Operations in which torch copies by itself, such as ``x[0] = y``, are allowed.
"""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from xdevice.backends.torch.hardware import as_device, gpus
from xdevice.backends.torch.private_names import core, names
from xdevice.device import Device
from xdevice.errors import mixed

_DEVICE = re.compile(r"\b(?:cpu|cuda|xpu|mps|vgpu)(?::\d+)?\b")
_forbidden = False


def is_forbidden() -> bool:
    """Whether a strict block is open, in any thread: virtual GPUs ask before they raise their error."""
    return _forbidden


@contextmanager
def forbid() -> Generator[None]:
    global _forbidden
    names.require("strict()")
    mode: Any = _Translate()
    _forbidden, thread = True, get_ident()
    is_used = gpus()[1] > 0  # with one device there is nothing to mix
    if is_used:
        mode.__enter__()
    try:
        yield
    finally:
        _forbidden, mode.over = False, True  # the mode stack of another thread is out of reach
        if (
            is_used and thread == get_ident()
        ):  # from anywhere in the stack: modes entered later stay
            stack = [
                core._pop_torch_function_stack() for _ in range(core._len_torch_function_stack())
            ]
            for other in reversed(stack):
                if other is not mode:
                    core._push_on_torch_function_stack(other)


class _Translate(TorchFunctionMode):
    """Translates torch's error for mixed devices, in each call of torch."""

    over = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        try:
            return func(*args, **kwargs) if kwargs else func(*args)
        except RuntimeError as error:
            found = set() if self.over else _found(error, args)
            if len(found) < 2:
                raise
            raise mixed(resolve_name(func) or getattr(func, "__name__", "torch"), found) from error


def _found(error: RuntimeError, args: tuple[Any, ...]) -> set[Device]:
    """The devices named in torch's error; empty for other errors, and for those already translated."""
    text = str(error)
    if "device" not in text.lower() or hasattr(error, "devices"):
        return set()
    named = {as_device(torch.device(word)) for word in _DEVICE.findall(text)}
    return named if len(named) > 1 else {as_device(tensor.device) for tensor in tensors_in(args)}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in arguments of a call: alone, and in lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
