"""``vgpu`` without an index, and pinned memory: torch handles both in C++, before a virtual GPU is called.

The C++ guard of a device written in Python always reports device 0 as current, so factories and `Tensor.to` are
wrapped. Pinned memory needs an allocator in C++; here it is ordinary memory that is marked as pinned.
"""

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.jit import _builtins
from torch.utils._device import (
    _device_constructors,  # pyright: ignore[reportPrivateUsage]  # the factories that a default device applies to
)

from xdevice.backends.torch.private_names import FACTORIES, own, replace_name, storage_of
from xdevice.backends.torch.virtual.runtime import NAME, in_use

_script: Any = _builtins

_pinned: WeakValueDictionary[int, Any] = WeakValueDictionary()  # storages, by address


def pin(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    return _marked(tensor.clone())


def is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
    return storage_of(tensor)._cdata in _pinned


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cpu:
        raise RuntimeError(f"cannot pin a tensor on {tensor.device}: only dense CPU tensors can be pinned")
    storage = storage_of(tensor)
    _pinned[storage._cdata] = storage
    return tensor


def _meant(device: Any) -> Any:
    """The device, with the current index where it is ``vgpu`` without one."""
    here = isinstance(device, (str, torch.device)) and str(device) == NAME
    return torch.device(NAME, in_use().current()) if here else device


def _factory(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(make)
    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        if "device" in kwargs:
            kwargs["device"] = _meant(kwargs["device"])
        pinned = kwargs.pop("pin_memory", False)
        return _marked(make(*args, **kwargs)) if pinned else make(*args, **kwargs)

    return made


class _Method:
    """A tensor method in which ``vgpu`` means the current device.

    It compares equal to torch's method, which tensor subclasses list among those that they pass on.
    """

    def __init__(self, plain: Callable[..., torch.Tensor]) -> None:
        self._plain, self.__name__, self.__doc__ = plain, plain.__name__, plain.__doc__

    def __get__(self, tensor: torch.Tensor | None, owner: type | None = None) -> Any:
        if tensor is None:
            return self
        return MethodType(self, tensor) if in_use().current() else self._plain.__get__(tensor)  # the cheaper way

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if in_use().current():  # torch assumes 0
            args = tuple(arg if isinstance(arg, torch.Tensor) else _meant(arg) for arg in args)
            kwargs = {name: _meant(value) if name == "device" else value for name, value in kwargs.items()}
        return self._plain(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._plain

    def __hash__(self) -> int:
        return hash(self._plain)


def replace() -> None:
    _device_constructors()  # caches the unwrapped functions, which modes such as a default device see
    for name in FACTORIES.split():
        plain = getattr(own, name)
        made = _factory(plain)
        replace_name(f"torch:{name}", made)
        _script._register_builtin(made, _script._find_builtin(plain))  # TorchScript cannot compile the wrapper
    for name in ("to", "new_tensor"):
        replace_name(f"torch:Tensor.{name}", _Method(getattr(torch.Tensor, name)))
