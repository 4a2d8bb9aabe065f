"""`compose`: a tensor, or a library, for libraries that do not know the tensor's framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.errors import ArgumentError, NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.scopes import scope
from xdevice.hardware.traced import TracedDevice
from xdevice.tensors.composing.arrays import Array, host_rule
from xdevice.tensors.composing.functions import namespace_of_arrays
from xdevice.tensors.creation import tensor as new_tensor
from xdevice.tensors.placement import check_same_device, device_of, owner_of

__all__ = ["compose"]

Result: TypeAlias = Any


def compose(obj: Any, *, allow_host: bool = False) -> Any:
    """A library that takes and returns the framework's tensors, or a tensor that a library takes.

    For libraries that compute with any array of the array API standard, such as SciPy and
    scikit-learn, and do not know the framework.

    Parameters
    ----------
    obj
        A function, class, module or other object of a library; or a tensor.
    allow_host
        Let a library that computes in NumPy do so for tensors of a GPU: they are copied to the
        host, and the results to the GPU. Watchers and `transfer_guard` see these copies.

    Returns
    -------
    Composed or Array
        The library's object: a call of it, or of its attributes, takes tensors, passes them on as
        arrays of the standard, and returns tensors on the same device. A tensor: an array of the
        standard, whose attribute ``tensor`` is the framework's tensor; or the tensor itself, if
        libraries know its framework (NumPy, PyTorch, JAX, CuPy).

    Raises
    ------
    NotSupportedError
        In a call: the library asks for a NumPy array of a tensor that needs a gradient, or, without
        ``allow_host``, of one that is not on the CPU.
    MixedDeviceError
        In a call: the tensors are on several devices.

    Examples
    --------
    >>> import numpy, xdevice
    >>> range_of = xdevice.compose(numpy.ptp)
    >>> float(range_of(numpy.asarray([1.0, 2.0, 4.0])))
    3.0
    """
    if isinstance(obj, Composed):
        return Composed(obj._object, allow_host)
    if isinstance(obj, Array):
        return obj
    owner = tensor_owner(obj)
    if owner is None:
        return Composed(obj, allow_host)
    if allow_host:
        raise ArgumentError(
            "allow_host is for a library, not for a tensor: compose(function, allow_host=True)(x)"
        )
    return as_array(obj, owner, allow_host)


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


class Composed:
    """A library's object that takes and returns tensors."""

    __slots__ = ("__weakref__", "_allow_host", "_object")

    _object: Any
    _allow_host: bool

    def __init__(self, obj: Any, allow_host: bool) -> None:
        object.__setattr__(self, "_object", obj)
        object.__setattr__(self, "_allow_host", allow_host)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = _Call(args, kwargs, self._allow_host)
        called = self._object
        result = call(called)
        is_itself = result is called or result is getattr(called, "__self__", None)
        if is_itself or isinstance(called, type):
            return Composed(result, self._allow_host)
        return result

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._object, name)
        if isinstance(value, ModuleType) or callable(value):
            return Composed(value, self._allow_host)
        return self._tensors(value)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._object, name, self._arrays(value))

    def __getitem__(self, key: Any) -> Any:
        return self._tensors(self._object[self._arrays(key)])

    def __iter__(self) -> Iterator[Any]:
        return map(self._tensors, self._object)

    def _arrays(self, x: Any) -> Any:
        return _arrays(x, [], self._allow_host)

    def _tensors(self, x: Any) -> Any:
        return _tensors(x, None, self._allow_host)

    def __len__(self) -> int:
        return len(self._object)

    def __bool__(self) -> bool:  # Python would ask for the length
        return bool(self._object)

    def __dir__(self) -> list[str]:
        return dir(self._object)

    def __repr__(self) -> str:
        return f"<composed {self._object!r}>"


class _Place(NamedTuple):
    """A framework and a device."""

    owner: Backend
    device: Device | TracedDevice

    def scope(self) -> Any:
        """Where the library makes new tensors."""
        if isinstance(self.device, TracedDevice):
            return nullcontext()
        return scope(self.device)


class _Call:
    """A call of a library, with arrays for the tensors among the arguments."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], allow_host: bool) -> None:
        tensors: list[Tensor] = []
        self.allow_host = allow_host
        self.args = [_arrays(arg, tensors, allow_host) for arg in args]
        self.kwargs = {name: _arrays(kwargs[name], tensors, allow_host) for name in kwargs}
        self.place: _Place | None = None
        if tensors:
            if len(tensors) > 1:
                check_same_device(*tensors)
            self.place = _Place(owner_of(tensors[0]), device_of(tensors[0]))

    def __call__(self, called: Any) -> Result:
        if self.place is None:
            return _tensors(called(*self.args, **self.kwargs), None, self.allow_host)
        token = host_rule.set("always" if self.allow_host else "cpu")
        try:
            with using(self.place.owner), self.place.scope():
                result = called(*self.args, **self.kwargs)
                return _tensors(result, self.place, self.allow_host)
        finally:
            host_rule.reset(token)


def _arrays(x: Any, tensors: list[Tensor], allow_host: bool) -> Any:
    """An argument with arrays for tensors, which are collected."""
    if isinstance(x, Composed):
        return x._object
    if isinstance(x, Array):
        tensors.append(x.tensor)
        return x
    if type(x) in (list, tuple):
        return type(x)(_arrays(part, tensors, allow_host) for part in x)
    if type(x) is dict:
        return {key: _arrays(part, tensors, allow_host) for key, part in x.items()}
    owner = tensor_owner(x)
    if owner is None or owner == "numpy":
        return x
    tensors.append(x)
    return as_array(x, owner, allow_host)


def _tensors(x: Any, place: _Place | None, allow_host: bool) -> Any:
    """A result with tensors for arrays."""
    cls = type(x)
    if isinstance(x, Array):
        return x.tensor
    if cls is dict:
        return {key: _tensors(part, place, allow_host) for key, part in x.items()}
    make: Any = None
    if cls in (list, tuple):
        make = cls
    elif isinstance(x, tuple):
        make = getattr(cls, "_make", None)
    if make is not None:
        return make([_tensors(part, place, allow_host) for part in x])
    owner = tensor_owner(x)
    if owner == "numpy" and place is not None and place.owner != "numpy":
        return _from_host(x, place, allow_host)
    if owner is None and not isinstance(x, _FUNCTIONS) and _holds_arrays(x):
        return Composed(x, allow_host)
    return x


_FUNCTIONS = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)


def _holds_arrays(x: Any) -> bool:
    parts = [*getattr(x, "__dict__", {}).values()]
    if isinstance(x, (list, tuple)):
        parts += x
    if isinstance(x, dict):
        parts += x.values()
    return any(map(_has_arrays, parts))


def _has_arrays(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_has_arrays, x))
    return isinstance(x, Array)


def _from_host(x: Any, place: _Place, allow_host: bool) -> Any:
    """A NumPy array that a library returned, as a tensor of the place."""
    if not x.shape:
        return x  # a number
    if place.device != "cpu" and not allow_host:
        raise NotSupportedError(
            f"the library returned a NumPy array for {place.owner} tensors on {place.device}: it "
            f"computed on the host; move the tensors to the CPU, or compose it with allow_host=True"
        )
    return new_tensor(x, dtype=str(x.dtype), device=place.device)
