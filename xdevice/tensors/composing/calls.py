"""`compose`: a tensor, or a library, for libraries that do not know the tensor's framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import (
    BuiltinFunctionType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, TypeAlias

from xdevice.errors import ArgumentError, NotSupportedError
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors.composing.arguments import (
    Arguments,
    LastPlace,
    Place,
    Wrapped,
    as_array,
    run_at,
)
from xdevice.tensors.composing.arrays import Array
from xdevice.tensors.creation import tensor as new_tensor

__all__ = ["compose"]

Result: TypeAlias = Any

_FUNCTIONS = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)
_ITERATORS = (GeneratorType, map, zip, filter, enumerate)
_DEPTH = 4  # of objects in objects that are searched for arrays


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
        return Composed(obj._object, allow_host, obj._last)
    if isinstance(obj, Array):
        return obj
    owner = tensor_owner(obj)
    if owner is None:
        return Composed(obj, allow_host, None if callable(obj) else LastPlace())
    if allow_host:
        raise ArgumentError(
            "allow_host is for a library, not for a tensor: compose(function, allow_host=True)(x)"
        )
    return as_array(obj, owner, allow_host)


class Composed(Wrapped):
    """A library's object that takes and returns tensors."""

    __slots__ = ("__weakref__", "_allow_host", "_last")

    _allow_host: bool
    _last: LastPlace | None  # None for functions, classes and modules: they keep no arrays

    def __init__(self, obj: Any, allow_host: bool, last: LastPlace | None = None) -> None:
        object.__setattr__(self, "_object", obj)
        object.__setattr__(self, "_allow_host", allow_host)
        object.__setattr__(self, "_last", None if isinstance(obj, ModuleType) else last)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        called = self._object
        call = _Call(args, kwargs, self._allow_host, self._place())
        result = call(called)
        last = self._last
        if last is not None:
            last.place = call.place
        if isinstance(called, type):
            return Composed(result, self._allow_host, LastPlace(call.place))
        if result is called or result is getattr(called, "__self__", None):
            return Composed(result, self._allow_host, last or LastPlace(call.place))
        return result

    def _place(self) -> Place | None:
        return None if self._last is None else self._last.place

    def __getattr__(self, name: str) -> Any:
        if name in ("__copy__", "__deepcopy__"):
            raise AttributeError(f"{self!r} has no {name!r}")

        def read() -> Any:
            value = getattr(self._object, name)
            if isinstance(value, ModuleType) or callable(value):
                return Composed(value, self._allow_host, self._last)
            return self._results()(value)

        return run_at(self._place(), self._allow_host, read)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._object, name, self._arrays(value))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, if it is a function in a class."""
        if instance is None or not isinstance(self._object, FunctionType):
            return self
        return Composed(MethodType(self._object, instance), self._allow_host)

    def __getitem__(self, key: Any) -> Any:
        def read() -> Any:
            return self._results()(self._object[self._arrays(key)])

        return run_at(self._place(), self._allow_host, read)

    def __iter__(self) -> Iterator[Any]:
        return self._results().each(iter(self._object))

    def _arrays(self, x: Any) -> Any:
        return Arguments(self._allow_host).arrays(x)

    def _results(self) -> _Results:
        return _Results(self._place(), self._allow_host)

    def __len__(self) -> int:
        return len(self._object)

    def __bool__(self) -> bool:  # Python would ask for the length
        return bool(self._object)

    def __dir__(self) -> list[str]:
        return dir(self._object)

    def __repr__(self) -> str:
        return f"<composed {self._object!r}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Composed, (self._object, self._allow_host, self._last)


class _Call:
    """A call of a library, with arrays for the tensors among the arguments."""

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        allow_host: bool,
        last_place: Place | None,
    ) -> None:
        self.arguments = Arguments(allow_host)
        self.args = self.arguments.arrays(args)
        self.kwargs = self.arguments.arrays(kwargs)
        self.place = self.arguments.place()
        if self.place is None and not self.arguments.has_numpy:
            self.place = last_place

    def __call__(self, called: Any) -> Result:
        """The result, with tensors for arrays unless it is the object itself, or a new one."""
        allow_host = self.arguments.allow_host

        def run() -> Result:
            result = called(*self.args, **self.kwargs)
            if self.place is None:
                # of the tensors that the user's functions returned
                self.place = self.arguments.place()
            is_itself = result is called or result is getattr(called, "__self__", None)
            if is_itself or isinstance(called, type):
                return result
            return _Results(self.place, allow_host)(result)

        return run_at(self.place, allow_host, run)


class _Results:
    """Makes tensors of the arrays in a result."""

    def __init__(self, place: Place | None, allow_host: bool, path: str = "") -> None:
        self.place = place
        self.allow_host = allow_host
        self.path = path  # to the part of the result, for an error

    def at(self, key: object) -> _Results:
        """The same, for a part of the result."""
        return _Results(self.place, self.allow_host, f"{self.path}[{key!r}]")

    def __call__(self, x: Any) -> Result:
        if isinstance(x, Array):
            return x.tensor
        owner = tensor_owner(x)
        if owner == "numpy":
            return self._from_host(x)
        if owner is not None or isinstance(x, _FUNCTIONS):
            return x
        return self._container(x)

    def _container(self, x: Any) -> Result:
        cls = type(x)
        if cls is dict:
            return {key: self.at(key)(part) for key, part in x.items()}
        if cls in (list, tuple):
            return cls(self.at(i)(part) for i, part in enumerate(x))
        if isinstance(x, tuple) and hasattr(cls, "_make"):
            return cls._make(self.at(i)(part) for i, part in enumerate(x))
        if isinstance(x, _ITERATORS):
            return self.each(iter(x))
        if self._holds_arrays(x, _DEPTH):
            return Composed(x, self.allow_host, LastPlace(self.place))
        return x

    def each(self, iterator: Iterator[Any]) -> Iterator[Result]:
        """What an iterator of the library yields; it computes where the call did."""
        end = object()
        while True:
            part = run_at(self.place, self.allow_host, lambda: self(next(iterator, end)))
            if part is end:
                return
            yield part

    def _takes_host(self) -> bool:
        """Whether NumPy's arrays among the results become tensors."""
        return self.place is not None and self.place.owner != "numpy"

    def _holds_arrays(self, x: Any, depth: int) -> bool:
        if isinstance(x, Array):
            return True
        owner = tensor_owner(x)
        if owner is not None:
            return owner == "numpy" and self._takes_host() and len(x.shape) > 0
        if not depth or isinstance(x, _FUNCTIONS):
            return False
        parts = [*getattr(x, "__dict__", {}).values()]
        if isinstance(x, (list, tuple)):
            parts += x
        if isinstance(x, dict):
            parts += x.values()
        return any(self._holds_arrays(part, depth - 1) for part in parts)

    def _from_host(self, x: Any) -> Any:
        """A NumPy array that a library returned, as a tensor of the place."""
        from numpy import generic, ma

        place = self.place
        if isinstance(x, generic) or place is None or place.owner == "numpy":
            return x
        if x.dtype.kind == "V" or isinstance(x, ma.MaskedArray):
            # it consists of several arrays
            return Composed(x, self.allow_host, LastPlace(self.place))
        if x.dtype.kind not in "biufc":
            return x  # strings and dates are not numbers
        if place.device != "cpu" and not self.allow_host:
            at_path = f" at {self.path}" if self.path else ""
            raise NotSupportedError(
                f"the library returned a NumPy array{at_path} for {place.owner} tensors on "
                f"{place.device}: it computed on the host; move the tensors to the CPU, or compose "
                f"it with allow_host=True"
            )
        return new_tensor(x, dtype=str(x.dtype), device=place.device)
