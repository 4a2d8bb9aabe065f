"""New tensors of the chosen framework, or of the framework of the tensor ``like``.

Without ``device=`` a new tensor is on the device of ``like``, else on the one of the innermost
`scope`, else on the framework's default device. A dtype is a NumPy name (``"float32"``), a NumPy
dtype, or a native dtype. It is checked that a new tensor is there, unless the framework chose.
"""

import math
from collections.abc import Sequence
from typing import Any, SupportsFloat, SupportsIndex

from xdevice.contract import Tensor
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    shortened,
)
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.scopes import innermost
from xdevice.integers import whole_number
from xdevice.tensors.arguments import (
    Dtype,
    check_same_device_in_list,
    number,
    plain_array,
    shape_of,
)
from xdevice.tensors.making import create, make, place
from xdevice.tensors.placement import backend_of
from xdevice.typing import DeviceLike

__all__ = ["arange", "empty", "full", "ones", "rand", "randn", "seed", "tensor", "zeros"]

Shape = int | SupportsIndex | Sequence[int]
Number = complex | SupportsFloat | SupportsIndex


def tensor(
    data: Any, *, dtype: Dtype = None, device: DeviceLike | None = None, like: Tensor = None
) -> Tensor:
    """A tensor with the given data, always a copy.

    ``data`` is a number, nested sequences of numbers, a NumPy array, or a tensor. The copy of a
    tensor is of the same framework, and on the same device unless a device or scope says otherwise.
    Gradients do not flow through the copy, except under JAX; they flow through
    ``to_device(data, device, copy=True)``.

    Raises
    ------
    MixedDeviceError
        The data is a list of tensors on several devices, and there is no ``device=`` and no scope.
    DeviceNotFoundError, DeviceSpellingError
        The framework does not have the device, or the string does not name one.
    ArgumentError
        There is no tensor of that data or dtype; or the dtype cannot hold a number in the data.

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
            check_same_device_in_list(data)
        return create("tensor", dtype, device, like, data)
    if owner == "numpy":
        return create("tensor", dtype, device, like, plain_array(data))
    if like is not None and backend_of(like) != owner:
        raise ArgumentTypeError(
            f"like= is of {backend_of(like)}, but the data is a tensor of {owner}; use convert"
        )
    if device is None and like is None and innermost() is None:
        like = data
    return make(owner, "tensor", dtype, place(owner, device, like), data)


def empty(
    *shape: Shape, dtype: Dtype = None, device: DeviceLike | None = None, like: Tensor = None
) -> Tensor:
    """An uninitialized tensor of a shape, given as ``(2, 3)`` or as ``2, 3``.

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        The framework does not have the device, or the string does not name one.
    ArgumentError
        There is no such shape or dtype.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.empty((2, 3)).shape
    (2, 3)
    """
    return create("empty", dtype, device, like, shape_of(shape))


def zeros(
    *shape: Shape, dtype: Dtype = None, device: DeviceLike | None = None, like: Tensor = None
) -> Tensor:
    """A tensor of a shape, filled with zeros. Shapes and errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.zeros(3, dtype="int32")
    array([0, 0, 0], dtype=int32)
    """
    return create("zeros", dtype, device, like, shape_of(shape))


def ones(
    *shape: Shape, dtype: Dtype = None, device: DeviceLike | None = None, like: Tensor = None
) -> Tensor:
    """A tensor of a shape, filled with ones. Shapes and errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.ones((1, 2))
    array([[1., 1.]])
    """
    return create("ones", dtype, device, like, shape_of(shape))


def full(
    shape: Shape,
    fill_value: Number,
    *,
    dtype: Dtype = None,
    device: DeviceLike | None = None,
    like: Tensor = None,
) -> Tensor:
    """A tensor of a shape, filled with one number. Errors are those of `empty`.

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
    dtype: Dtype = None,
    device: DeviceLike | None = None,
    like: Tensor = None,
) -> Tensor:
    """The numbers from ``start`` up to, but excluding, ``stop``; a single argument is ``stop``.

    Raises
    ------
    ArgumentError
        The step is 0, a number is not real, or there is no such dtype. The other errors are those
        of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.arange(2, 8, 3)
    array([2, 5])
    """
    if stop is None:
        start, stop = 0, start
    low, high, increment = number(start), number(stop), number(step)
    numbers = (low, high, increment)
    are_real = all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers)
    if increment == 0 or not are_real:
        raise ArgumentError(
            f"arange({low!r}, {high!r}, {increment!r}) never arrives; give real numbers, "
            "the step not 0"
        )
    if (high - low) / increment <= 0:
        # an empty tensor under every framework, of floats if any of the numbers is a float
        if any(isinstance(value, float) for value in numbers):
            low = float(low)
        high = low
    return create("arange", dtype, device, like, low, high, increment)


def rand(
    *shape: Shape, dtype: Dtype = None, device: DeviceLike | None = None, like: Tensor = None
) -> Tensor:
    """A tensor of uniform random numbers in [0, 1), repeatable with `seed`.

    Shapes and errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     float(xdevice.rand((1000,)).max()) < 1
    True
    """
    return create("rand", dtype, device, like, shape_of(shape))


def randn(
    *shape: Shape, dtype: Dtype = None, device: DeviceLike | None = None, like: Tensor = None
) -> Tensor:
    """A tensor of normal random numbers with mean 0 and variance 1; otherwise as `rand`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.randn(2, 3).shape
    (2, 3)
    """
    return create("randn", dtype, device, like, shape_of(shape))


def seed(n: int) -> None:
    """Seed the chosen framework's random numbers on every device.

    Frameworks draw different numbers from the same seed.

    Raises
    ------
    ArgumentError
        ``n`` is not an integer from 0 to ``2**32 - 1``, the range that every framework accepts.

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
    message = f"seed {shortened(n)} is not possible; give an integer from 0 to {2**32 - 1}"
    backend().creation.seed(whole_number(n, message, end=2**32))
