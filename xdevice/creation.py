"""New tensors of the chosen framework, on a device.

Without ``device=`` they go where the innermost `scope` says, else where the framework's own
default is. Without ``dtype=`` they have the framework's own default for that kind of number. A
dtype is a NumPy name (``"float32"``), a NumPy dtype, or the framework's own.
"""

from __future__ import annotations

import math

from xdevice.device import as_integer
from xdevice.errors import ArgumentError, ArgumentTypeError, UnknownPlacementError
from xdevice.hardware import as_device, require, shortened
from xdevice.placement import device_of
from xdevice.registry import backend, role_of
from xdevice.scopes import innermost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from xdevice.adapters import Backend
    from xdevice.device import Device

    Shape = int | Sequence[int]

_MOST = 2**60  # numbers in a tensor: in bytes it still fits into 64 bits
# Words of which each framework has a width of its own in mind.
_AMBIGUOUS = frozenset({"float", "double", "half", "int", "uint", "long", "short", "complex", "cfloat", "cdouble"})
_BUILTIN_DTYPES = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """A tensor with that data, always a copy of it.

    ``data`` is a number, nested sequences of numbers, a NumPy array, or a tensor. A tensor's copy
    is of its own framework and stays on its device unless a device or scope says otherwise.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.tensor([[1.0, 2.0], [3.0, 4.0]])
    array([[1., 2.],
           [3., 4.]])

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    ArgumentError
        The data, or the dtype, cannot be a tensor's.
    """
    owned = role_of(type(data))
    if owned is None or owned[1] != "tensor":
        return _create(backend(), "tensor", dtype, device, data)
    if owned[0] == "numpy":
        return _create(backend(), "tensor", dtype, device, _plain(data))
    if device is None and innermost() is None:
        return _make(owned[0], "tensor", dtype, device_of(data), data)
    return _create(owned[0], "tensor", dtype, device, data)


def empty(*shape: Shape, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of that shape with whatever the memory held.

    ``empty((2, 3))`` and ``empty(2, 3)`` are the same.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.empty((2, 3)).shape
    (2, 3)

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    ArgumentError
        No such shape or dtype.
    """
    return _create(backend(), "empty", dtype, device, _shape(shape))


def zeros(*shape: Shape, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of that shape full of zeros.

    ``zeros((2, 3))`` and ``zeros(2, 3)`` are the same.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.zeros(3, dtype="int32")
    array([0, 0, 0], dtype=int32)

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    ArgumentError
        No such shape or dtype.
    """
    return _create(backend(), "zeros", dtype, device, _shape(shape))


def ones(*shape: Shape, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of that shape full of ones.

    ``ones((2, 3))`` and ``ones(2, 3)`` are the same.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.ones((1, 2))
    array([[1., 1.]])

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    ArgumentError
        No such shape or dtype.
    """
    return _create(backend(), "ones", dtype, device, _shape(shape))


def full(shape: Shape, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of that shape with one number everywhere.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.full((2,), 7.0)
    array([7., 7.])

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    ArgumentError
        No such shape or dtype.
    """
    return _create(backend(), "full", dtype, device, _shape((shape,)), _number(fill_value))


def arange(start: Any, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    """The numbers from ``start`` up to but without ``stop``; one number alone is ``stop``.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.arange(2, 8, 3)
    array([2, 5])

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    ArgumentError
        A step of 0, no real numbers, or no such dtype.
    """
    if stop is None:
        start, stop = 0, start
    start, stop, step = (_number(value) for value in (start, stop, step))
    if step == 0 or not all(isinstance(v, (int, float)) and math.isfinite(v) for v in (start, stop, step)):
        raise ArgumentError(f"arange({start!r}, {stop!r}, {step!r}) never arrives; give real numbers, the step not 0")
    if (stop - start) / step <= 0:
        stop = start  # nothing lies between: an empty tensor under every framework
    return _create(backend(), "arange", dtype, device, start, stop, step)


def rand(*shape: Shape, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of that shape, uniform random in [0, 1); `seed` makes it repeatable.

    ``rand((2, 3))`` and ``rand(2, 3)`` are the same.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     float(xdevice.rand((1000,)).max()) < 1
    True

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    ArgumentError
        No such shape or dtype.
    """
    return _create(backend(), "rand", dtype, device, _shape(shape))


def randn(*shape: Shape, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of that shape, normal random with mean 0 and variance 1; `seed` makes it repeatable.

    ``randn((2, 3))`` and ``randn(2, 3)`` are the same.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.randn(2, 3).shape
    (2, 3)

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    ArgumentError
        No such shape or dtype.
    """
    return _create(backend(), "randn", dtype, device, _shape(shape))


def seed(n: int) -> None:
    """Seed the chosen framework's random numbers, on every device.

    The same seed gives other numbers under another framework.

    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.seed(1)
    ...     a = xdevice.rand(3)
    ...     xdevice.seed(1)
    ...     bool((a == xdevice.rand(3)).all())
    True

    Raises
    ------
    ArgumentError
        No integer from 0 to ``2**32 - 1``, which is what every framework takes.
    """
    number = as_integer(n)
    if number is None:
        raise ArgumentTypeError(f"seed {n!r} is no integer; give one from 0 to {2**32 - 1}")
    if not 0 <= number < 2**32:
        raise ArgumentError(f"seed {n!r} is out of range; give an integer from 0 to {2**32 - 1}")
    backend().creation.seed(number)


def _create(owner: Backend, factory: str, dtype: Any, device: Any, *args: Any) -> Any:
    where = innermost() if device is None else as_device(device)
    if where is not None:
        require(owner, where)
    return _make(owner, factory, dtype, where, *args)


def _make(owner: Backend, factory: str, dtype: Any, where: Device | None, *args: Any) -> Any:
    make: Callable[..., Any] = getattr(owner.creation, factory)
    native_dtype = _dtype(owner, dtype)
    try:
        made = make(*args, native_dtype, where)
    except (TypeError, ValueError, OverflowError) as error:
        given = ", ".join(shortened(arg) for arg in args)
        raise ArgumentError(f"{factory}({given}) cannot be made under {owner}: {error}") from error
    if where is not None:
        _check_arrival(made, owner, where)
    return made


def _check_arrival(made: Any, owner: Backend, where: Device) -> None:
    try:
        there = device_of(made)
    except UnknownPlacementError:
        return  # a node of a graph: it carries the device with it, and is nowhere yet
    if there is not where:
        from xdevice.explain import misplaced

        raise misplaced(owner, where, {there})


def _dtype(owner: Backend, dtype: Any) -> Any:
    """The native dtype behind a NumPy name or dtype, one of Python's types, or a native dtype itself."""
    if dtype is None:
        return None
    name = _BUILTIN_DTYPES.get(dtype, dtype) if isinstance(dtype, type) else dtype
    root = type(dtype).__module__.partition(".")[0]
    if "numpy" in (root, getattr(dtype, "__module__", "")):
        import numpy as np

        try:
            name = np.dtype(dtype).name
        except TypeError:
            raise _no_dtype(owner, dtype) from None
    if not isinstance(name, str):
        if not root.startswith(owner):
            raise _no_dtype(owner, dtype)
        return dtype
    if name in _AMBIGUOUS:
        raise ArgumentError(f"dtype {name!r} differs in width by framework; write for example 'float32' or 'int64'")
    found = owner.creation.dtype(name)
    if found is None:
        raise _no_dtype(owner, dtype)
    return found


def _no_dtype(owner: Backend, dtype: Any) -> ArgumentError:
    return ArgumentError(f"dtype {dtype!r} does not exist under {owner}; write for example 'float32' or 'int64'")


def _number(value: Any) -> Any:
    """The value, if it is a finite or infinite number that a tensor can hold."""
    if isinstance(value, (int, float, complex)):
        return value
    owned = role_of(type(value))
    if owned is not None and owned[1] == "tensor" and getattr(value, "shape", None) == ():
        return value.item() if hasattr(value, "item") else value
    raise ArgumentTypeError(f"{shortened(value)} is no number; write for example 1.0")


def _plain(array: Any) -> Any:
    """The NumPy array in the one layout that every framework takes: C order, native bytes."""
    import numpy as np

    return np.asarray(array).astype(array.dtype.newbyteorder("="), order="C", copy=False)


def _shape(given: Sequence[Any]) -> tuple[int, ...]:
    sizes = given[0] if len(given) == 1 and as_integer(given[0]) is None else given
    try:
        shape = tuple(as_integer(size) for size in sizes)
    except TypeError:
        shape = (None,)
    whole = tuple(size for size in shape if size is not None)
    if len(whole) < len(shape):
        raise ArgumentTypeError(f"{_written(given)} is no shape; write (2, 3)")
    if any(size < 0 for size in whole):
        raise ArgumentError(f"shape {_written(given)} has a negative size; write (2, 3)")
    if max(whole, default=0) > _MOST or math.prod(whole) > _MOST:  # beyond it some frameworks count wrongly, or abort
        raise ArgumentError(
            f"shape {_written(given)} has over 2**60 numbers, more than any machine holds; make it smaller"
        )
    return whole


def _written(given: Sequence[Any]) -> str:
    return shortened(given[0] if len(given) == 1 else tuple(given))
