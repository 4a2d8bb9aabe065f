"""New tensors of the chosen framework, or of the framework of the tensor ``like``.

Without ``device=`` they go where ``like`` is, else where the innermost `scope` says, else where the framework's own
default is. A dtype is a NumPy name (``"float32"``), a NumPy dtype, or the framework's own. What was made is checked.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat, SupportsIndex

from xdevice.device import Device, whole_number
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
from xdevice.hardware.devices import TracedDevice, as_device, has_cpu, require
from xdevice.hardware.scopes import innermost, sees_scope
from xdevice.tensors.arguments import (
    check_fit,
    check_together,
    filling,
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
    data: Any, *, dtype: Any = None, device: DeviceLike | None = None, like: Any = None
) -> Any:
    """A tensor with the given data, always a copy.

    ``data`` is a number, nested sequences of numbers, a NumPy array, or a tensor, whose copy is of its own framework
    and stays on its device unless a device or scope says otherwise. Gradients do not flow through it, except under JAX;
    through ``to_device(data, device, copy=True)`` they do.

    Raises
    ------
    MixedDeviceError
        A list of tensors on several devices, and neither ``device=`` nor a scope says where to.
    DeviceNotFoundError, DeviceSpellingError
        The framework does not have the device, or the string does not name one.
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
        raise ArgumentTypeError(
            f"like= is of {backend_of(like)}, but the data is a tensor of {owner}; use convert"
        )
    if device is None and like is None and innermost() is None:
        like = data
    return make(owner, "tensor", dtype, place(owner, device, like), data)


def empty(
    *shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None
) -> Any:
    """An uninitialized tensor of a shape, given as ``(2, 3)`` or as ``2, 3``.

    Raises
    ------
    DeviceNotFoundError, DeviceSpellingError
        The framework does not have the device, or the string does not name one.
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


def zeros(
    *shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None
) -> Any:
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
    *shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None
) -> Any:
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
    dtype: Any = None,
    device: DeviceLike | None = None,
    like: Any = None,
) -> Any:
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
    dtype: Any = None,
    device: DeviceLike | None = None,
    like: Any = None,
) -> Any:
    """The numbers from ``start`` up to, but excluding, ``stop``; a single argument is ``stop``.

    Raises
    ------
    ArgumentError
        A step of 0, no real numbers, or no such dtype. The other errors are those of `empty`.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     xdevice.arange(2, 8, 3)
    array([2, 5])
    """
    first, last = (0, start) if stop is None else (start, stop)
    low, high, by = (number(value) for value in (first, last, step))
    if by == 0 or not all(
        isinstance(v, (int, float)) and math.isfinite(v) for v in (low, high, by)
    ):
        raise ArgumentError(
            f"arange({low!r}, {high!r}, {by!r}) never arrives; give real numbers, the step not 0"
        )
    if (high - low) / by <= 0:
        # nothing lies between: an empty tensor under every framework, of floats if any of the numbers is one
        low = high = float(low) if any(isinstance(v, float) for v in (low, high, by)) else low
    return create("arange", dtype, device, like, low, high, by)


def rand(
    *shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None
) -> Any:
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
    *shape: Shape, dtype: Any = None, device: DeviceLike | None = None, like: Any = None
) -> Any:
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
    """Seed the chosen framework's random numbers on every device; frameworks draw different numbers.

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
    wrong = f"seed {n!r} is out of range; give an integer from 0 to {2**32 - 1}"
    backend().creation.seed(whole_number(n, wrong, end=2**32))


def create(factory: str, dtype: Any, device: Any, like: Any, *args: Any) -> Any:
    """What a factory makes under the chosen framework, or under the one of the tensor ``like``."""
    owner = backend() if like is None else backend_of(like)
    return make(owner, factory, dtype, place(owner, device, like), *args)


def place(owner: Backend, device: Any, like: Any = None) -> Device | None:
    """Where a new tensor goes: as told, else beside ``like``, else as the scope says; ``None``: by its framework."""
    if device is None and like is None:
        where = innermost()
        if (
            where is not None
            and owner.open("compiling").has("is_tracing")
            and owner.compiling.is_tracing()
        ):
            if not sees_scope(owner):
                raise NotSupportedError(
                    f"a function that {owner} compiles would keep the scope of {where} from its first call, since a "
                    "scope in a coroutine or generator is not the framework's own; give device=, or enter the scope in "
                    "a plain function"
                )
            return (
                None if owner.open("following").has("follow") else where
            )  # each call follows its own scope
    else:
        where = device_of(like) if device is None else device
        if isinstance(where, TracedDevice):
            return None  # the compiler decides
        where = as_device(where)
    if where is not None:
        require(owner, where)
    return where


def make(owner: Backend, factory: str, dtype: Any, where: Device | None, *args: Any) -> Any:
    """What that framework's factory makes on a device that is there, or on the framework's default device."""
    produce: Callable[..., Any] = getattr(owner.creation, factory)
    found = native_dtype(owner, dtype)
    if factory == "full":
        args = (args[0], filling(owner, args[1], found))
    try:
        if found is not None:
            check_fit(factory, args, found, owner)
            if factory == "full":
                args = (args[0], number_for(found, args[1], owner))
        made = produce(*args, found, where)
    except (
        TypeError,
        ValueError,
        OverflowError,
        SystemError,
    ) as error:  # the last: of integers that are too long
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
