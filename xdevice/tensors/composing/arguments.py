"""The arguments of a call of a library: arrays of the standard for tensors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, wraps
from types import FunctionType, GeneratorType, MethodType
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.scopes import scope
from xdevice.hardware.traced import TracedDevice
from xdevice.tensors.composing.arrays import Array, host_rule
from xdevice.tensors.composing.functions import namespace_of_arrays
from xdevice.tensors.placement import check_same_device, device_of, owner_of

Argument: TypeAlias = Any
Function: TypeAlias = Callable[..., Any]

_ITERATORS = (GeneratorType, map, zip)
_CALLBACKS = (FunctionType, MethodType, partial)


class Place(NamedTuple):
    """A framework and a device."""

    owner: Backend
    device: Device | TracedDevice

    def scope(self) -> Any:
        """Where the library makes new tensors."""
        if isinstance(self.device, TracedDevice):
            return nullcontext()
        return scope(self.device)


class LastPlace:
    """Where an object of a library computed last: what it shows in NumPy belongs there."""

    __slots__ = ("place",)

    def __init__(self, place: Place | None = None) -> None:
        self.place = place


class Wrapped:
    """An object of a library, which `compose` wrapped."""

    __slots__ = ("_object",)

    _object: Any


class Arguments:
    """Converts the arguments of a call, and notes of which framework and device they are."""

    def __init__(self, allow_host: bool) -> None:
        self.allow_host = allow_host
        self.has_numpy = False
        self._tensors: list[Tensor] = []

    def place(self) -> Place | None:
        """The place of the tensors; `MixedDeviceError` if they are on several devices."""
        tensors = self._tensors
        if not tensors:
            return None
        if len(tensors) > 1:
            check_same_device(*tensors)
        return Place(owner_of(tensors[0]), device_of(tensors[0]))

    def arrays(self, x: Argument) -> Argument:
        """An argument with arrays for tensors."""
        if isinstance(x, Wrapped):
            return x._object
        if isinstance(x, Array):
            self._tensors.append(x.tensor)
            return x
        if isinstance(x, _CALLBACKS):
            return self._callback(x)
        owner = tensor_owner(x)
        if owner is None:
            return self._container(x)
        if owner == "numpy":
            self.has_numpy = self.has_numpy or len(x.shape) > 0
            return x
        self._tensors.append(x)
        return as_array(x, owner, self.allow_host)

    def _container(self, x: Argument) -> Argument:
        cls = type(x)
        if cls in (list, tuple):
            return cls(self.arrays(part) for part in x)
        if cls is dict:
            return {key: self.arrays(part) for key, part in x.items()}
        if isinstance(x, tuple) and hasattr(cls, "_make"):
            return cls._make(self.arrays(part) for part in x)
        if isinstance(x, _ITERATORS):
            return (self.arrays(part) for part in x)
        return x

    def _callback(self, function: Function) -> Function:
        """A function of the user, which may return tensors to the library."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.arrays(function(*args, **kwargs))

        return call


def as_array(tensor: Tensor, owner: Backend, allow_host: bool) -> Any:
    """The tensor as an array, unless libraries know its framework.

    If they may compute on the host, a tensor of a GPU is an array in any case: NumPy refuses such
    tensors of the frameworks that libraries know.
    """
    from array_api_compat import is_array_api_obj

    if is_array_api_obj(tensor) and not (allow_host and _is_elsewhere(tensor)):
        return tensor
    return Array(tensor, namespace_of_arrays(owner))


def _is_elsewhere(tensor: Tensor) -> bool:
    """Whether the tensor is known not to be on the CPU."""
    device = device_of(tensor)
    return not isinstance(device, TracedDevice) and device.kind != "cpu"


def run_at(place: Place | None, allow_host: bool, function: Function) -> Any:
    """Call a function where the library computes for tensors of a place."""
    token = host_rule.set("always" if allow_host else "cpu")
    try:
        if place is None:
            return function()
        with using(place.owner), place.scope():
            return function()
    finally:
        host_rule.reset(token)
