"""New tensors of the chosen framework, or of the framework of the tensor ``like``.

Without ``device=`` a new tensor is on the device of ``like``, else on the one of the innermost
`scope`, else on the framework's default device. A dtype is a NumPy name (``"float32"``), a NumPy
dtype, or a native dtype. It is checked that a new tensor is there, unless the framework chose.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat, SupportsIndex

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotSupportedError,
    UnknownPlacementError,
    shortened,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import check_arrival, tensor_owner
from xdevice.hardware.devices import as_device, has_cpu, native_of, require
from xdevice.hardware.scopes import innermost, sees_scope
from xdevice.hardware.traced import TracedDevice
from xdevice.integers import whole_number
from xdevice.tensors.arguments import (
    Dtype,
    check_fit,
    check_same_device_in_list,
    fill_value_for,
    native_dtype,
    number,
    number_for,
    plain_array,
    shape_of,
)
from xdevice.tensors.placement import backend_of, device_of
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


def create(
    factory: str, dtype: Dtype, device: DeviceLike | None, like: Tensor, *args: Any
) -> Tensor:
    """A new tensor of the framework of ``like``, or of the chosen framework."""
    owner = backend() if like is None else backend_of(like)
    return make(owner, factory, dtype, place(owner, device, like), *args)


def place(owner: Backend, device: DeviceLike | None, like: Tensor = None) -> Device | None:
    """The device of a new tensor: ``device``, else that of ``like``, else that of the scope.

    ``None`` leaves the choice to the framework.
    """
    if device is None and like is None:
        target = innermost()
        if target is None:
            return None
        if owner.load("compiling").has("is_tracing") and owner.compiling.is_tracing():
            _check_scope_while_tracing(owner, target)
            return None  # each call of the compiled function follows the framework's scope
    elif type(device) is Device:
        target = device
    else:
        requested = device_of(like) if device is None else device
        if isinstance(requested, TracedDevice):
            return None  # the compiler decides
        target = as_device(requested)
    native_of(owner, target)  # raises an error if the device does not exist
    return target


def _check_scope_while_tracing(owner: Backend, scope_device: Device) -> None:
    """Raise an error if the framework does not see the scope of a function that it is compiling."""
    if not sees_scope(owner):
        raise NotSupportedError(
            f"a function that {owner} compiles does not follow the scope of {scope_device}, since "
            "a scope in a coroutine or generator is not the framework's own; "
            "give device=, or enter the scope in a plain function"
        )


def make(owner: Backend, factory: str, dtype: Dtype, target: Device | None, *args: Any) -> Tensor:
    """A new tensor on a device that the framework has, or on its default device if that is None."""
    native_factory: Callable[..., Tensor] = getattr(owner.creation, factory)
    new_dtype = None if dtype is None else native_dtype(owner, dtype)
    if factory == "full":
        args = (args[0], fill_value_for(owner, args[1], new_dtype))
    try:
        if new_dtype is not None:
            check_fit(factory, args, new_dtype, owner)
            if factory == "full":
                args = (args[0], number_for(new_dtype, args[1], owner))
        new_tensor = native_factory(*args, new_dtype, target)
    # SystemError: Python's for integers that are too long
    except (TypeError, ValueError, OverflowError, SystemError) as error:
        arguments = ", ".join(shortened(arg) for arg in args)
        message = f"{factory}({arguments}) cannot be made under {owner}: {error}"
        raise ArgumentError(message) from error
    except RuntimeError:  # CUDA's without a driver, for example
        if target is None and not has_cpu(owner):
            require(owner, Device("gpu", 0))
        raise
    if target is not None:
        try:
            check_arrival(new_tensor, owner, target)
        except UnknownPlacementError:
            pass  # a node of a graph has no device before it is run
    return new_tensor
