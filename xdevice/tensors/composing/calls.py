"""`compose`: a tensor, or a library, for libraries that do not know the tensor's framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.errors import NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import using
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.scopes import scope
from xdevice.hardware.traced import TracedDevice
from xdevice.tensors.composing.arrays import Array, on_host
from xdevice.tensors.composing.functions import namespace_of_arrays
from xdevice.tensors.creation import tensor as new_tensor
from xdevice.tensors.placement import check_same_device, device_of, owner_of

__all__ = ["compose"]

Result: TypeAlias = Any


def compose(obj: Any) -> Any:
    """A library that takes and returns the framework's tensors, or a tensor that a library takes.

    For libraries that compute with any array of the array API standard, such as SciPy and
    scikit-learn, and do not know the framework.

    Parameters
    ----------
    obj
        A function, class, module or other object of a library; or a tensor.

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
        In a call: the library asks for a NumPy array of a tensor that is not on the CPU, or that
        needs a gradient.
    MixedDeviceError
        In a call: the tensors are on several devices.

    Examples
    --------
    >>> import numpy, xdevice
    >>> range_of = xdevice.compose(numpy.ptp)
    >>> float(range_of(numpy.asarray([1.0, 2.0, 4.0])))
    3.0
    """
    if isinstance(obj, (Array, Composed)):
        return obj
    owner = tensor_owner(obj)
    if owner is not None:
        return as_array(obj, owner)
    return Composed(obj)


def as_array(tensor: Tensor, owner: Backend) -> Any:
    """The tensor as an array, unless libraries know its framework."""
    from array_api_compat import is_array_api_obj

    if is_array_api_obj(tensor):
        return tensor
    return Array(tensor, namespace_of_arrays(owner))


class Composed:
    """A library's object that takes and returns tensors."""

    __slots__ = ("__weakref__", "_object")

    _object: Any

    def __init__(self, obj: Any) -> None:
        object.__setattr__(self, "_object", obj)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = _Call(args, kwargs)
        called = self._object
        result = call(called)
        if result is called or result is getattr(called, "__self__", None):
            return Composed(result)
        if isinstance(called, type):
            return Composed(result)
        return result

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._object, name)
        if isinstance(value, ModuleType) or callable(value):
            return Composed(value)
        return _tensors(value, None)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._object, name, _arrays(value, []))

    def __getitem__(self, key: Any) -> Any:
        return _tensors(self._object[_arrays(key, [])], None)

    def __iter__(self) -> Iterator[Any]:
        return (_tensors(part, None) for part in self._object)

    def __len__(self) -> int:
        return len(self._object)

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

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors: list[Tensor] = []
        self.args = [_arrays(arg, tensors) for arg in args]
        self.kwargs = {name: _arrays(kwargs[name], tensors) for name in kwargs}
        self.place: _Place | None = None
        if tensors:
            if len(tensors) > 1:
                check_same_device(*tensors)
            self.place = _Place(owner_of(tensors[0]), device_of(tensors[0]))

    def __call__(self, called: Any) -> Result:
        if self.place is None:
            return _tensors(called(*self.args, **self.kwargs), None)
        token = on_host.set(True)
        try:
            with using(self.place.owner), self.place.scope():
                result = called(*self.args, **self.kwargs)
                return _tensors(result, self.place)
        finally:
            on_host.reset(token)


def _arrays(x: Any, tensors: list[Tensor]) -> Any:
    """An argument with arrays for tensors, which are collected."""
    if isinstance(x, Composed):
        return x._object
    if isinstance(x, Array):
        tensors.append(x.tensor)
        return x
    if type(x) in (list, tuple):
        return type(x)(_arrays(part, tensors) for part in x)
    if type(x) is dict:
        return {key: _arrays(part, tensors) for key, part in x.items()}
    owner = tensor_owner(x)
    if owner is None or owner == "numpy":
        return x
    tensors.append(x)
    return as_array(x, owner)


def _tensors(x: Any, place: _Place | None) -> Any:
    """A result with tensors for arrays."""
    cls = type(x)
    if isinstance(x, Array):
        return x.tensor
    if cls is dict:
        return {key: _tensors(part, place) for key, part in x.items()}
    make: Any = None
    if cls in (list, tuple):
        make = cls
    elif isinstance(x, tuple):
        make = getattr(cls, "_make", None)
    if make is not None:
        return make([_tensors(part, place) for part in x])
    if place is not None and place.owner != "numpy" and tensor_owner(x) == "numpy":
        return _from_host(x, place)
    if not isinstance(x, _FUNCTIONS) and _holds_arrays(x):
        return Composed(x)
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


def _from_host(x: Any, place: _Place) -> Any:
    """A NumPy array that a library returned, as a tensor on the CPU; elsewhere it is an error."""
    if not x.shape:
        return x  # a number
    if place.device != "cpu":
        raise NotSupportedError(
            f"the library returned a NumPy array for {place.owner} tensors on {place.device}: it "
            f"computed on the host; move the tensors to the CPU first"
        )
    return new_tensor(x, dtype=str(x.dtype), device=place.device)
