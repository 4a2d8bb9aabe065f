"""Virtual GPUs written in Python.

torch's guard for devices written in Python reports device 0 as the current one
(torch/csrc/acc/Module.cpp), so the functions that use the guard are replaced here: those of
``torch.accelerator``, factories and `Tensor.to`, for which ``vgpu`` without an index means the
current device. Pinned memory needs an allocator in C++; here it is ordinary memory that is marked.
"""

import ctypes
import itertools
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
from torch.utils import _device, backend_registration

from xdevice.contract import Request
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
_torch_utils_device: Any = _device  # it lists the factories that a default device applies to
_registration: Any = backend_registration


class Guard(core._acc.DeviceGuard):  # type: ignore[misc]  # a C class, Any to checkers
    """The device guard that torch uses for a device written in Python; it ignores the index.

    torch also calls it while the exception of a gradient hook is pending. Python would raise an
    error when the call begins, and C++ would then abort the process, so the exception is set aside.
    """

    def type_(self) -> Any:
        try:
            ctypes.pythonapi.PyErr_Occurred()  # ctypes raises the pending exception
        except BaseException as error:
            autograd.pending.error = error
        return core._autograd.DeviceType.PrivateUse1


class InPython(Runtime):
    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.allocated = self.reserved = memory.allocated
        self.forget_memory = memory.forget
        self.peak = memory.peak
        self.reset_peak = memory.reset_peak
        self.visible = lambda: self.count
        self.unused = lambda index: max(self.capacity - memory.allocated(index), 0)
        self.new_stream = lambda index, priority: next(self._stream_ids)
        self._stream_ids = itertools.count(1)
        self.is_used = lambda: self._is_used
        self.is_forked = lambda: self._is_forked
        self._current = threading.local()
        self._is_used = False
        self._is_forked = False

    def current(self) -> int:
        return getattr(self._current, "index", 0)

    def exchange(self, index: int) -> int:
        previous = self.current()
        if index >= 0:
            self._current.index = index
            self._is_used = True
        return previous

    def use(self, value: bool) -> None:
        self._is_used = value

    def watch(self, value: bool) -> None:
        memory.watching = value

    def resize(self, storage: Any, size: int) -> None:
        if size != storage.nbytes():
            raise NotImplementedError(
                "torch resizes storages of devices written in C++ only, and "
                f"{storage.device} is written in Python; "
                "apt install g++, or resize the tensor with resize_"
            )

    def start(self) -> None:
        _registration._setup_privateuseone_for_python_backend(
            NAME, backend_module=vgpu, device_guard=Guard()
        )
        _register_operations()
        memory.register_for_python()
        _replace_accelerator()
        replace_name("torch:Generator", randomness.Generator)
        self.generators += [torch.Generator(f"{NAME}:{i}") for i in range(self.count)]
        _replace_factories()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: setattr(self, "_is_forked", self._is_used))


def _register_operations() -> None:
    """Register one kernel of each name, the last one: torch accepts only one from Python."""
    kernels.register_fallbacks(kernels_of("_"))
    library = kernels_of("aten")
    by_key = {**kernels.kernels(), **memory.kernels(), **nested.kernels(), **nn.kernels()}
    by_key["_pin_memory", "CPU"] = lambda tensor, device=None: _pinned(tensor.clone())
    by_key["is_pinned", "CPU"] = _is_pinned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that its own kernels are replaced
        for (name, key), kernel in by_key.items():
            library.impl(name, untraced(kernel), key, allow_override=True)


def _replace_accelerator() -> None:
    """Replace the functions under ``torch.accelerator``."""
    for name, function in {
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
        replace_name(f"torch._C:_accelerator_{name}", function)


def _stats(index: int) -> dict[str, dict[str, dict[str, int]]]:
    """Allocated bytes under torch's keys; reserved bytes are the same, since nothing is cached."""
    sums = {"all": {"current": memory.allocated(existing(index)), "peak": memory.peak(index)}}
    return {"allocated_bytes": sums, "reserved_bytes": sums}


_pinned_storages: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""The storages in pinned memory, by address."""


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, whose memory is marked as pinned."""
    if not tensor.is_cpu:
        raise RuntimeError(
            f"cannot pin a tensor on {tensor.device}: only dense CPU tensors can be pinned"
        )
    storage = storage_of(tensor)
    _pinned_storages[storage._cdata] = storage
    return tensor


def _is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
    return storage_of(tensor)._cdata in _pinned_storages


def _replace_factories() -> None:
    # caches the original functions, which modes such as that of a default device intercept
    _torch_utils_device._device_constructors()
    for name in FACTORIES.split():
        original = getattr(torch, name)
        factory = _factory(original)
        replace_name(f"torch:{name}", factory)
        # TorchScript cannot compile the wrapper
        _script._register_builtin(factory, _script._find_builtin(original))
    for name in ("to", "new_tensor"):
        replace_name(f"torch:Tensor.{name}", _Method(getattr(torch.Tensor, name)))

    @in_place_of("torch:Tensor.new")
    def new(original: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with vgpu.device_of(self):
            return original(self, *args, **kwargs)


def _with_current_index(device: Any) -> Any:
    """The device; the current virtual GPU if it is ``vgpu`` without an index."""
    if isinstance(device, (str, torch.device)) and str(device) == NAME:
        return torch.device(NAME, in_use().current())
    return device


def _factory(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(original)
    def factory(*args: Any, **kwargs: Any) -> torch.Tensor:
        if "device" in kwargs:
            kwargs["device"] = _with_current_index(kwargs["device"])
        pin_memory = kwargs.pop("pin_memory", False)
        tensor = original(*args, **kwargs)
        return _pinned(tensor) if pin_memory else tensor

    return factory


class _Method:
    """A tensor method in which ``vgpu`` means the current device."""

    def __init__(self, original: Callable[..., torch.Tensor]) -> None:
        self._original = original
        self.__name__ = original.__name__
        self.__doc__ = original.__doc__

    def __get__(self, tensor: torch.Tensor | None, owner: type | None = None) -> Any:
        if tensor is None:
            return self
        if in_use().current():
            return MethodType(self, tensor)
        return self._original.__get__(tensor)  # faster

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if in_use().current():  # torch assumes device 0
            args = tuple(
                arg if isinstance(arg, torch.Tensor) else _with_current_index(arg) for arg in args
            )
            if "device" in kwargs:
                kwargs["device"] = _with_current_index(kwargs["device"])
        return self._original(*args, **kwargs)

    # tensor subclasses look up torch's own method in their tables of methods
    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original

    def __hash__(self) -> int:
        return hash(self._original)
