"""New tensors of the chosen framework, or of the framework of the tensor ``like``.

Without ``device=`` they go where ``like`` is, else where the innermost `scope` says, else where the framework's own
default is. A dtype is a NumPy name (``"float32"``), a NumPy dtype, or the framework's own.
"""

import math
from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

from xdevice.device import whole_number
from xdevice.errors import ArgumentError, ArgumentTypeError
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.scopes import innermost
from xdevice.tensors.arguments import number, plain_array, shape_of
from xdevice.tensors.making import create, make, place
from xdevice.tensors.numbers import check_together
from xdevice.tensors.owning import backend_of
from xdevice.typing import DeviceLike

Shape = int | SupportsIndex | Sequence[int]
Number = complex | SupportsFloat | SupportsIndex


def tensor(data: Any, *, dtype: Any = None, device: DeviceLike | None = None, like: Any = None) -> Any:
    """A tensor with that data, always a copy of it.

    ``data`` is a number, nested sequences of numbers, a NumPy array, or a tensor. A tensor's copy
    is of its own framework and stays on its device unless a device or scope says otherwise. Gradients do not flow
    through it, except under JAX; through ``to_device(data, device, copy=True)`` they do.

    Raises
    ------
    MixedDeviceError
        A list of tensors on several devices, and neither ``device=`` nor a scope says where to.
    DeviceNotFoundError
        The framework does not have the device.
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
        if device is None and like is None and innermost() is None:
            check_together(data)
        return create("tensor", dtype, device, like, data)
    if owner == "numpy":
        return create("tensor", dtype, device, like, plain_array(data))
    if like is not None and backend_of(like) != owner:
        raise ArgumentTypeError(f"like= is of {backend_of(like)}, but the data is a tensor of {owner}; use convert")
    if device is None and like is None and innermost() is None:
        like = data
    return make(owner, "tensor", dtype, place(owner, device, like), data)


def empty(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None) -> Any:
    """A tensor of that shape with whatever the memory held.

    ``empty((2, 3))`` and ``empty(2, 3)`` are the same.

    Raises
    ------
    DeviceNotFoundError
        The framework does not have the device.
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
    return create("empty", dtype, device, like, shape_of(shape))


def zeros(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None) -> Any:
    """A tensor of that shape full of zeros.

    ``zeros((2, 3))`` and ``zeros(2, 3)`` are the same. Errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.zeros(3, dtype="int32")
    array([0, 0, 0], dtype=int32)
    """
    return create("zeros", dtype, device, like, shape_of(shape))


def ones(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None) -> Any:
    """A tensor of that shape full of ones.

    ``ones((2, 3))`` and ``ones(2, 3)`` are the same. Errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.ones((1, 2))
    array([[1., 1.]])
    """
    return create("ones", dtype, device, like, shape_of(shape))


def full(
    shape: Shape, fill_value: Number, *, dtype: Any = None, device: DeviceLike | None = None, like: Any = None
) -> Any:
    """A tensor of that shape with one number everywhere. Errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.full((2,), 7.0)
    array([7., 7.])
    """
    return create("full", dtype, device, like, shape_of((shape,)), fill_value)


def arange(  # noqa: PLR0913  (a range has three numbers)
    start: Number,
    stop: Number | None = None,
    step: Number = 1,
    *,
    dtype: Any = None,
    device: DeviceLike | None = None,
    like: Any = None,
) -> Any:
    """The numbers from ``start`` up to but without ``stop``; one number alone is ``stop``.

    Raises
    ------
    DeviceNotFoundError
        The framework does not have the device.
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
    return create("arange", dtype, device, like, low, high, by)


def rand(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None) -> Any:
    """A tensor of that shape, uniform random in [0, 1); `seed` makes it repeatable.

    ``rand((2, 3))`` and ``rand(2, 3)`` are the same. Errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     float(xdevice.rand((1000,)).max()) < 1
    True
    """
    return create("rand", dtype, device, like, shape_of(shape))


def randn(*shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None) -> Any:
    """A tensor of that shape, normal random with mean 0 and variance 1; `seed` makes it repeatable.

    ``randn((2, 3))`` and ``randn(2, 3)`` are the same. Errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.randn(2, 3).shape
    (2, 3)
    """
    return create("randn", dtype, device, like, shape_of(shape))


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
    hint = f"give an integer from 0 to {2**32 - 1}"
    backend().creation.seed(whole_number(n, f"seed {n!r} is out of range; {hint}", end=2**32))
