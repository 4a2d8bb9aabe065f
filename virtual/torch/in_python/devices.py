"""Virtual GPUs written in Python.

torch's guard for devices written in Python says that device 0 is always current (torch/csrc/acc/Module.cpp), so the
functions that ask it are replaced here: those of ``torch.accelerator``, factories, `Tensor.to`, which mean the current
one by ``vgpu`` without an index. Pinned memory needs an allocator in C++; here it is ordinary memory that is marked.
"""

import ctypes
import os
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.jit import _builtins
from torch.utils import _device, backend_registration  # pyright: ignore[reportPrivateUsage]

from xdevice.virtual.torch import autograd, runtime, streams, vgpu
from xdevice.virtual.torch.in_python import kernels, memory, nested, nn, randomness
from xdevice.virtual.torch.private_names import (
    FACTORIES,
    core,
    in_place_of,
    kernels_of,
    replace_name,
    storage_of,
    untraced,
)
from xdevice.virtual.torch.runtime import NAME, Runtime, existing, in_use

_script: Any = _builtins
_inside: Any = _device  # of which come the factories that a default device applies to
_registration: Any = backend_registration


class Guard(core._acc.DeviceGuard):  # type: ignore[misc]  # a C class, Any to checkers
    """The device guard that torch asks for a device written in Python; it does not distinguish the devices.

    torch also asks while the exception of a gradient hook is pending. C++ ends the process if Python raises there,
    as it does when a call begins with a pending exception, so the exception is set aside.
    """

    def type_(self) -> Any:
        try:
            ctypes.pythonapi.PyErr_Occurred()  # ctypes raises the pending exception
        except BaseException as error:
            autograd.pending.error = error
        return core._autograd.DeviceType.PrivateUse1


class InPython(Runtime):
    def __init__(self, name: str, count: int, capacity: int, limited: bool) -> None:
        super().__init__(name, count, capacity, limited)
        self.allocated, self.peak, self.reset_peak = (
            memory.allocated,
            memory.peak,
            memory.reset_peak,
        )
        self._current, self._used, self._forked = threading.local(), False, False
        self.visible, self.is_used, self.is_forked = (
            lambda: count,
            lambda: self._used,
            lambda: self._forked,
        )

    def current(self) -> int:
        return getattr(self._current, "index", 0)

    def exchange(self, index: int) -> int:
        before = self.current()
        if index >= 0:
            self._current.index, self._used = index, True
        return before

    def use(self, whether: bool) -> None:
        self._used = whether

    def watch(self, whether: bool) -> None:
        memory.watching = whether

    def resize(self, storage: Any, size: int) -> None:
        if size != storage.nbytes():
            raise NotImplementedError(
                f"torch resizes storages of devices written in C++ only, and {storage.device} is written in Python; "
                "apt install g++, or resize the tensor with resize_"
            )

    def start(self) -> None:
        _registration._setup_privateuseone_for_python_backend(
            NAME, backend_module=vgpu, device_guard=Guard()
        )
        _register_operations()
        memory.register_for_python()
        _answer_for_accelerator()
        replace_name("torch:Generator", randomness.Generator)
        self.generators += [torch.Generator(f"{NAME}:{i}") for i in range(self.count)]
        autograd.run_in_calling_thread()
        _replace_factories()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: setattr(self, "_forked", self._used))


def _register_operations() -> None:
    """Register the kernels together, the last one of each name: torch takes only one from Python."""
    kernels.register_fallbacks(kernels_of("_"))
    ours = kernels_of("aten")
    by_name = {**kernels.kernels(), **memory.kernels(), **nested.kernels(), **nn.kernels()}
    by_name["_pin_memory", "CPU"] = lambda tensor, device=None: _marked(tensor.clone())
    by_name["is_pinned", "CPU"] = lambda tensor, device=None: storage_of(tensor)._cdata in _pinned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its own kernels are replaced
        for (name, key), kernel in by_name.items():
            ours.impl(name, untraced(kernel), key, allow_override=True)


def _answer_for_accelerator() -> None:
    for name, answer in {
        **dict.fromkeys(
            ("setDeviceIndex", "exchangeDevice", "maybeExchangeDevice"), runtime.exchange
        ),
        **dict.fromkeys(("synchronizeDevice", "resetAccumulatedStats"), existing),
        **dict.fromkeys(("emptyCache", "emptyHostCache"), vgpu.empty_cache),
        "getDeviceIndex": in_use().current,
        "getStream": streams.current_stream,
        "setStream": streams.set_stream,
        "isAllocatorInitialized": vgpu.is_available,
        "getDeviceStats": _stats,
        "resetPeakStats": memory.reset_peak,
        "getMemoryInfo": vgpu.mem_get_info,
    }.items():
        replace_name(f"torch._C:_accelerator_{name}", answer)


def _stats(index: int) -> dict[str, dict[str, dict[str, int]]]:
    """Allocated bytes under torch's keys; reserved is the same, since freed memory is returned immediately."""
    sums = {"all": {"current": memory.allocated(existing(index)), "peak": memory.peak(index)}}
    return {"allocated_bytes": sums, "reserved_bytes": sums}


_pinned: WeakValueDictionary[int, Any] = WeakValueDictionary()  # storages, by address


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cpu:
        raise RuntimeError(
            f"cannot pin a tensor on {tensor.device}: only dense CPU tensors can be pinned"
        )
    storage = storage_of(tensor)
    _pinned[storage._cdata] = storage
    return tensor


def _replace_factories() -> None:
    _inside._device_constructors()  # caches the unwrapped functions, which modes such as a default device see
    for name in FACTORIES.split():
        plain = getattr(torch, name)
        made = _factory(plain)
        replace_name(f"torch:{name}", made)
        _script._register_builtin(
            made, _script._find_builtin(plain)
        )  # TorchScript cannot compile the wrapper
    for name in ("to", "new_tensor"):
        replace_name(f"torch:Tensor.{name}", _Method(getattr(torch.Tensor, name)))

    @in_place_of("torch:Tensor.new")
    def new(make: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with vgpu.device_of(self):
            return make(self, *args, **kwargs)


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
    """A tensor method in which ``vgpu`` means the current device."""

    def __init__(self, plain: Callable[..., torch.Tensor]) -> None:
        self._plain, self.__name__, self.__doc__ = plain, plain.__name__, plain.__doc__

    def __get__(self, tensor: torch.Tensor | None, owner: type | None = None) -> Any:
        if tensor is None:
            return self
        return (
            MethodType(self, tensor) if in_use().current() else self._plain.__get__(tensor)
        )  # the cheaper way

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if in_use().current():  # torch assumes 0
            args = tuple(arg if isinstance(arg, torch.Tensor) else _meant(arg) for arg in args)
            kwargs = {
                name: _meant(value) if name == "device" else value for name, value in kwargs.items()
            }
        return self._plain(*args, **kwargs)

    def __eq__(
        self, other: object
    ) -> bool:  # tensor subclasses list torch's method among those that they pass on
        return other is self or other is self._plain

    def __hash__(self) -> int:
        return hash(self._plain)
