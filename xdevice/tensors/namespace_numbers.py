"""Python's numbers among the operands of a namespace's functions: those that the tensor's dtype cannot hold are errors.

Some frameworks raise; others compute with what is left of the number modulo a power of 2.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from xdevice.errors import ArgumentError
from xdevice.framework.adapters import Backend
from xdevice.tensors.arguments import complex_among_reals, dtype_name, limits_of, misfit, wider

_IN_DTYPE = (  # functions that compute in the tensor's dtype
    "add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor equal floor_divide greater "
    "greater_equal less less_equal maximum minimum multiply not_equal pow remainder subtract"
)
_WITH_OPTIONS = ("isin", "searchsorted")  # the same, with keywords beside the operands
_IN_FLOATS = (
    "atan2 copysign divide hypot logaddexp nextafter"  # functions that make floats of integers
)
_OF_TRUTH = "logical_and logical_or logical_xor"
_WIDE = (
    -(2**31),
    2**31 - 1,
)  # beyond these not every framework makes a float of an integer beside floats
_PLAIN = (int, float, complex)
_INFINITY = float("inf")
_LONGEST = (-(2**63), 2**63 - 1)  # of the integers that a boolean becomes beside one

Function = Callable[..., Any]
Fitting = Callable[
    [Any, Any], Any
]  # of a number, and of the tensor beside it: the number to compute with


class Numbers:
    """The functions of a namespace that take numbers beside tensors, each with a look at the numbers."""

    def __init__(self, owner: Backend) -> None:
        self._owner = owner
        self._limits: dict[Any, tuple[int, int] | None] = {}  # of the dtypes that were met

    def functions(self, own: Mapping[str, Any]) -> dict[str, Function]:
        fits = dict.fromkeys(_IN_DTYPE.split(), self.held) | dict.fromkeys(
            _IN_FLOATS.split(), self._real
        )
        fits |= dict.fromkeys(_OF_TRUTH.split(), _truth)
        made = {name: _of_two(own[name], fit) for name, fit in fits.items() if name in own}
        made |= {name: _among(own[name], self.held) for name in _WITH_OPTIONS if name in own}
        made |= {"where": _chosen(own["where"], self.held)} if "where" in own else {}
        return made | ({"clip": self._clip(own["clip"])} if "clip" in own else {})

    def held(self, value: Any, tensor: Any) -> Any:
        """The integer, if the tensor's dtype can hold it; a long one beside floats as a float."""
        dtype = getattr(tensor, "dtype", None)
        limits = self._limits_of(dtype)
        if limits is not None and not limits[0] <= value <= limits[1]:
            raise self._misfit(value, dtype)
        if limits is not None or _WIDE[0] <= value <= _WIDE[1]:
            return value
        if _LONGEST[0] <= value <= _LONGEST[1] or not self._is_bool(dtype):
            return self._float(value, dtype)
        raise ArgumentError(f"{misfit(value, 'int64')}; beside booleans, write it as a float")

    def _bound(self, value: Any, tensor: Any) -> Any:
        """The number, if it is a real one that the tensor's dtype can hold, or one without fraction near it."""
        if isinstance(value, int):
            return self.held(value, tensor)
        limits = self._limits_of(tensor.dtype)
        if isinstance(value, complex):
            raise ArgumentError(complex_among_reals(dtype_name(tensor.dtype, self._owner)))
        if limits is not None and not limits[0] - 1 < value < limits[1] + 1:
            raise self._misfit(value, tensor.dtype)
        return value

    def _real(self, value: Any, tensor: Any) -> Any:
        """The integer, as a float if the tensor's dtype cannot hold it."""
        dtype = getattr(tensor, "dtype", None)
        low, high = self._limits_of(dtype) or _WIDE
        return value if low <= value <= high else self._float(value, dtype)

    def _clip(self, own: Function) -> Function:
        bound = self._bound

        @wraps(own)
        def call(x: Any, /, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
            if type(min) in _PLAIN and min != -_INFINITY:
                min = bound(min, x)
            if type(max) in _PLAIN and max != _INFINITY:
                max = bound(max, x)
            return own(x, min, max, **kwargs)

        return call

    def _limits_of(self, dtype: Any) -> tuple[int, int] | None:
        try:
            return self._limits[dtype]
        except KeyError:
            found = None if dtype is None else limits_of(dtype_name(dtype, self._owner))
        self._limits[dtype] = found
        return found

    def _float(self, value: int, dtype: Any) -> Any:
        if dtype is None or self._is_bool(dtype):  # beside booleans it stays an integer
            return value
        try:
            return float(value)
        except OverflowError:
            raise ArgumentError(
                f"{misfit(value, 'float64')}, nor into any other dtype; make it smaller"
            ) from None

    def _is_bool(self, dtype: Any) -> bool:
        return dtype is not None and dtype_name(dtype, self._owner) == "bool"

    def _misfit(self, value: Any, dtype: Any) -> ArgumentError:
        name = dtype_name(dtype, self._owner)
        hint = f"convert the tensor, for example with astype(x, xp.{wider(value, name)})"
        return ArgumentError(f"{misfit(value, name)}; {hint}")


def _truth(value: Any, tensor: Any) -> bool:
    return bool(value)


def _of_two(own: Function, fit: Fitting) -> Function:
    """A function of two operands, of which one may be a number."""

    @wraps(own)
    def call(x1: Any, x2: Any, /) -> Any:
        if type(x2) is int:
            x2 = fit(x2, x1)
        elif type(x1) is int:
            x1 = fit(x1, x2)
        return own(x1, x2)

    return call


def _among(own: Function, fit: Fitting) -> Function:
    @wraps(own)
    def call(x1: Any, x2: Any, /, **options: Any) -> Any:
        return own(*_fitted(x1, x2, fit), **options)

    return call


def _chosen(own: Function, fit: Fitting) -> Function:
    @wraps(own)
    def call(condition: Any, x1: Any, x2: Any, /) -> Any:
        return own(condition, *_fitted(x1, x2, fit))

    return call


def _fitted(x1: Any, x2: Any, fit: Fitting) -> tuple[Any, Any]:
    first = fit(x1, x2) if type(x1) is int else x1
    second = fit(x2, x1) if type(x2) is int else x2
    return first, second
