"""New tensors of the chosen framework, on a device.

Without ``device=`` they go where the innermost `scope` says, else where the framework's own
default is. Without ``dtype=`` they have the framework's own default for that kind of number. A
dtype is a NumPy name (``"float32"``), a NumPy dtype, or the framework's own.
"""

from __future__ import annotations

import math

from xdevice.device import Device, as_integer
from xdevice.errors import ArgumentError, ArgumentTypeError, UnknownPlacementError, shortened
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import check_arrival, tensor_owner
from xdevice.hardware.devices import as_device, has_cpu, require
from xdevice.hardware.scopes import innermost
from xdevice.tensors.arguments import dtype_name, native_dtype, number, plain_array, shape_of
from xdevice.tensors.numbers import check_fit, check_together, numbers_given
from xdevice.tensors.placement import device_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, SupportsFloat, SupportsIndex

    from xdevice.framework.adapters import Backend
    from xdevice.typing import DeviceLike

    Shape = int | SupportsIndex | Sequence[int]
    Number = complex | SupportsFloat | SupportsIndex


def tensor(data: Any, *, dtype: Any = None, device: DeviceLike | None = None) -> Any:
    """A tensor with that data, always a copy of it.

    ``data`` is a number, nested sequences of numbers, a NumPy array, or a tensor. A tensor's copy
    is of its own framework and stays on its device unless a device or scope says otherwise.

    Raises
    ------
    MixedDeviceError
        A list of tensors on several devices, and neither ``device=`` nor a scope says where to.
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    ArgumentError
        The data, or the dtype, cannot be a tensor's: also numbers of Python or NumPy that the dtype cannot hold.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.tensor([[1.0, 2.0], [3.0, 4.0]])
    array([[1., 2.],
           [3., 4.]])
    """
    owner = tensor_owner(data)
    if owner is None:
        if device is None and innermost() is None:
            check_together(data)
        return _create(backend(), "tensor", dtype, device, data)
    if owner == "numpy":
        return _create(backend(), "tensor", dtype, device, plain_array(data))
    if device is None and innermost() is None:
        return _make(owner, "tensor", dtype, device_of(data), data)
    return _create(owner, "tensor", dtype, device, data)


def empty(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None) -> Any:
    """A tensor of that shape with whatever the memory held.

    ``empty((2, 3))`` and ``empty(2, 3)`` are the same.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    ArgumentError
        No such shape or dtype.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.empty((2, 3)).shape
    (2, 3)
    """
    return _create(backend(), "empty", dtype, device, shape_of(shape))


def zeros(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None) -> Any:
    """A tensor of that shape full of zeros.

    ``zeros((2, 3))`` and ``zeros(2, 3)`` are the same.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    ArgumentError
        No such shape or dtype.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.zeros(3, dtype="int32")
    array([0, 0, 0], dtype=int32)
    """
    return _create(backend(), "zeros", dtype, device, shape_of(shape))


def ones(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None) -> Any:
    """A tensor of that shape full of ones.

    ``ones((2, 3))`` and ``ones(2, 3)`` are the same.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    ArgumentError
        No such shape or dtype.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.ones((1, 2))
    array([[1., 1.]])
    """
    return _create(backend(), "ones", dtype, device, shape_of(shape))


def full(shape: Shape, fill_value: Number, *, dtype: Any = None, device: DeviceLike | None = None) -> Any:
    """A tensor of that shape with one number everywhere.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    ArgumentError
        No such shape or dtype.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.full((2,), 7.0)
    array([7., 7.])
    """
    return _create(backend(), "full", dtype, device, shape_of((shape,)), number(fill_value))


def arange(
    start: Number, stop: Number | None = None, step: Number = 1, *, dtype: Any = None, device: DeviceLike | None = None
) -> Any:
    """The numbers from ``start`` up to but without ``stop``; one number alone is ``stop``.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    ArgumentError
        A step of 0, no real numbers, or no such dtype.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.arange(2, 8, 3)
    array([2, 5])
    """
    first, last = (0, start) if stop is None else (start, stop)
    low, high, by = (number(value) for value in (first, last, step))
    if by == 0 or not all(isinstance(v, (int, float)) and math.isfinite(v) for v in (low, high, by)):
        raise ArgumentError(f"arange({low!r}, {high!r}, {by!r}) never arrives; give real numbers, the step not 0")
    if (high - low) / by <= 0:
        # nothing lies between: an empty tensor under every framework, of floats if any of the numbers is one
        low = high = float(low) if any(isinstance(v, float) for v in (low, high, by)) else low
    return _create(backend(), "arange", dtype, device, low, high, by)


def rand(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None) -> Any:
    """A tensor of that shape, uniform random in [0, 1); `seed` makes it repeatable.

    ``rand((2, 3))`` and ``rand(2, 3)`` are the same.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    ArgumentError
        No such shape or dtype.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     float(xdevice.rand((1000,)).max()) < 1
    True
    """
    return _create(backend(), "rand", dtype, device, shape_of(shape))


def randn(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None) -> Any:
    """A tensor of that shape, normal random with mean 0 and variance 1; `seed` makes it repeatable.

    ``randn((2, 3))`` and ``randn(2, 3)`` are the same.

    Raises
    ------
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    ArgumentError
        No such shape or dtype.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.randn(2, 3).shape
    (2, 3)
    """
    return _create(backend(), "randn", dtype, device, shape_of(shape))


def seed(n: int) -> None:
    """Seed the chosen framework's random numbers, on every device.

    The same seed gives other numbers under another framework.

    Raises
    ------
    ArgumentError
        No integer from 0 to ``2**32 - 1``, which is what every framework takes.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.seed(1)
    ...     a = xdevice.rand(3)
    ...     xdevice.seed(1)
    ...     bool((a == xdevice.rand(3)).all())
    True
    """
    value = as_integer(n)
    if value is None:
        raise ArgumentTypeError(f"seed {n!r} is not an integer; give one from 0 to {2**32 - 1}")
    if not 0 <= value < 2**32:
        raise ArgumentError(f"seed {n!r} is out of range; give an integer from 0 to {2**32 - 1}")
    backend().creation.seed(value)


def tensor_of(owner: Backend, array: Any, dtype: Any, where: Device) -> Any:
    """A tensor of that framework, with the array's numbers, on a device that is there."""
    return _make(owner, "tensor", dtype, where, array)


def _create(owner: Backend, factory: str, dtype: Any, device: Any, *args: Any) -> Any:
    where = innermost() if device is None else as_device(device)
    if where is not None:
        require(owner, where)
    return _make(owner, factory, dtype, where, *args)


def _make(owner: Backend, factory: str, dtype: Any, where: Device | None, *args: Any) -> Any:
    make: Callable[..., Any] = getattr(owner.creation, factory)
    found = native_dtype(owner, dtype)
    try:
        if found is not None:
            check_fit(numbers_given(factory, args), dtype_name(found))
        made = make(*args, found, where)
    except (TypeError, ValueError, OverflowError) as error:
        given = ", ".join(shortened(arg) for arg in args)
        raise ArgumentError(f"{factory}({given}) cannot be made under {owner}: {error}") from error
    except RuntimeError:  # as of CUDA without a driver
        if where is None and not has_cpu(owner):
            require(owner, Device("gpu", 0))
        raise
    if where is not None:
        try:
            check_arrival(made, owner, where)
        except UnknownPlacementError:
            pass  # a node of a graph: it carries the device with it, and is not placed yet
    return made
