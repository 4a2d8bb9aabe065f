"""Python's numbers among the operands of a namespace's functions: those that the tensor's dtype cannot hold are errors.

Some frameworks raise; others compute with what is left of the number modulo a power of 2.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple

from xdevice.errors import ArgumentError
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import tensor_owner
from xdevice.tensors.arguments import complex_among_reals, dtype_name, limits_of, misfit, wider

_IN_DTYPE = (  # functions that compute in the tensor's dtype
    "add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor equal "
    "floor_divide greater greater_equal less less_equal maximum minimum multiply not_equal pow "
    "remainder subtract"
)
_WITH_OPTIONS = ("isin", "searchsorted")  # the same, with keywords beside the operands
# functions that make floats of integers
_IN_FLOATS = "atan2 copysign divide hypot logaddexp nextafter"
# functions of integers that have no integer for a negative second operand
_NOT_NEGATIVE = ("bitwise_left_shift", "bitwise_right_shift", "pow")
_OF_TRUTH = "logical_and logical_or logical_xor"
_LEAST_MAXIMUM = 127  # every numeric dtype holds the integers from 0 to 127
# beyond these not every framework makes a float of an integer beside floats
_WIDE = (-(2**31), 2**31 - 1)
_PLAIN = (int, float, complex)
_INFINITY = float("inf")

Function = Callable[..., Any]
# of a number, and of the operand beside it: the number to compute with
Fitting = Callable[[Any, Any], Any]


class Range(NamedTuple):
    """The integers that a tensor of a dtype is computed with as they are."""

    low: int
    high: int
    name: str  # of the dtype
    is_integer: bool


class Numbers:
    """The functions of a namespace that take numbers beside tensors, each with a check of the numbers."""

    def __init__(self, owner: Backend, own: Mapping[str, Any]) -> None:
        self._owner, self._own = owner, own
        self._ranges: dict[Any, Range] = {}  # of the dtypes that were met

    def functions(self) -> dict[str, Function]:
        """The framework's functions, by name, that check the numbers among their arguments."""
        own = self._own
        fits = dict.fromkeys(_IN_DTYPE.split(), self.held)
        fits |= dict.fromkeys(_IN_FLOATS.split(), self._real)
        made = {name: _of_two(own[name], fit) for name, fit in fits.items() if name in own}
        made |= {
            name: self._not_negative(name, made[name]) for name in _NOT_NEGATIVE if name in own
        }
        made |= {name: _of_truth(own[name]) for name in _OF_TRUTH.split() if name in own}
        made |= {name: _among(own[name], self.held) for name in _WITH_OPTIONS if name in own}
        if "where" in own:
            made["where"] = _chosen(own["where"], self.held)
        if "clip" in own:
            made["clip"] = self._clip(own["clip"])
        return made

    def held(self, value: int, operand: Any) -> Any:
        """The integer, if the operand's dtype can hold it; a long one beside floats as a float."""
        found = self._range_of(operand)
        if found is not None and found.low <= value <= found.high:
            return value
        if found is not None and found.is_integer:
            raise self._misfit(value, found.name)
        if (found is None or found.name == "bool") and not isinstance(operand, (float, complex)):
            return self._default_integer(value)
        return _as_float(value)

    def filling(self, value: Any, dtype: Any) -> Any:
        """The number as a tensor of that dtype is filled with it; ``None`` if it needs a closer look."""
        found = self._range(dtype)
        if type(value) is float and not found.is_integer:
            return value
        is_plain = type(value) is int or type(value) is float
        return int(value) if is_plain and found.low <= value <= found.high else None

    def _bound(self, value: Any, x: Any) -> Any:
        """A number that is a bound of `clip`, if the tensor's dtype can hold it."""
        found = self._range(x.dtype)
        if type(value) is complex:
            raise ArgumentError(complex_among_reals(found.name))
        if found.name == "bool":
            raise ArgumentError("clip of booleans is not defined; convert them with astype")
        if type(value) is int:
            return self.held(value, x)
        if not found.is_integer:
            return value
        if not found.low - 1 < value < found.high + 1:
            raise self._misfit(value, found.name)
        if not value.is_integer():
            raise ArgumentError(
                f"clip of {found.name} keeps the dtype, which does not hold {value!r}; "
                f"give an integer, or convert the tensor, for example with astype(x, xp.float32)"
            )
        return int(value)

    def _tensor_bound(self, bound: Any, x: Any) -> Any:
        """A tensor that is a bound of `clip`, in the dtype of the tensor that is clipped."""
        if bound.dtype == x.dtype or tensor_owner(bound) != self._owner:
            return bound
        given, kept = self._range(bound.dtype), self._range(x.dtype)
        fits = given.is_integer and kept.low <= given.low and given.high <= kept.high
        if kept.is_integer and not fits:
            raise ArgumentError(
                f"clip of {kept.name} keeps the dtype, which does not hold all of {given.name}; "
                f"convert the bound, or the tensor, with astype"
            )
        return self._own["astype"](bound, x.dtype)

    def _real(self, value: int, operand: Any) -> Any:
        """The integer, as a float if the operand's dtype cannot hold it."""
        found = self._range_of(operand)
        low, high = _WIDE if found is None else found[:2]
        return value if low <= value <= high else _as_float(value)

    def _clip(self, own: Function) -> Function:
        def fitted(bound: Any, x: Any, unbounded: float) -> Any:
            if type(bound) in _PLAIN:
                return None if bound == unbounded else self._bound(bound, x)
            return self._tensor_bound(bound, x) if hasattr(bound, "dtype") else bound

        @wraps(own)
        def call(x: Any, /, min: Any = None, max: Any = None, **kwargs: Any) -> Any:
            lowest = None if min is None else fitted(min, x, -_INFINITY)
            highest = None if max is None else fitted(max, x, _INFINITY)
            return own(x, lowest, highest, **kwargs)

        return call

    def _not_negative(self, name: str, own: Function) -> Function:
        """A function of two operands, which refuses a negative number as the second one of integers."""

        @wraps(own)
        def call(x1: Any, x2: Any, /) -> Any:
            if type(x2) is int and x2 < 0:
                found = self._range_of(x1)
                if found is not None and found.is_integer:
                    raise ArgumentError(
                        f"{name} of {found.name} by {x2!r} is not an integer; convert "
                        f"the tensor, for example with astype(x, xp.float32)"
                    )
            return own(x1, x2)

        return call

    def _range_of(self, operand: Any) -> Range | None:
        dtype = getattr(operand, "dtype", None)
        return None if dtype is None else self._range(dtype)

    def _range(self, dtype: Any) -> Range:
        try:
            return self._ranges[dtype]
        except KeyError:
            name = dtype_name(dtype, self._owner).removesuffix("_")  # bool_ under NumPy 1
        limits = limits_of(name)
        found = Range(*(limits or _WIDE), name, limits is not None)
        self._ranges[dtype] = found
        return found

    def _default_integer(self, value: int) -> int:
        """The number, if it fits into the integers that become of booleans, and of numbers alone."""
        dtype = self._own["result_type"](self._owner.creation.dtype("bool"), 0)
        name = dtype_name(dtype, self._owner)  # int32 under JAX, unless 64 bits are enabled
        low, high = limits_of(name) or _WIDE
        if not low <= value <= high:
            raise ArgumentError(f"{misfit(value, name)}; beside booleans, write it as a float")
        return value

    def _misfit(self, value: Any, name: str) -> ArgumentError:
        hint = f"convert the tensor, for example with astype(x, xp.{wider(value, name)})"
        return ArgumentError(f"{misfit(value, name)}; {hint}")


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(
            f"{misfit(value, 'float64')}, nor into any other dtype; make it smaller"
        ) from None


def _of_two(own: Function, fit: Fitting) -> Function:
    """A function of two operands, of which one may be a number."""

    @wraps(own)
    def call(x1: Any, x2: Any, /) -> Any:
        if type(x2) is int:
            if not 0 <= x2 <= _LEAST_MAXIMUM:
                x2 = fit(x2, x1)
        elif type(x1) is int and not 0 <= x1 <= _LEAST_MAXIMUM:
            x1 = fit(x1, x2)
        return own(x1, x2)

    return call


def _of_truth(own: Function) -> Function:
    """A function of two operands, of which an integer counts as true or false."""

    @wraps(own)
    def call(x1: Any, x2: Any, /) -> Any:
        first = bool(x1) if type(x1) is int else x1
        second = bool(x2) if type(x2) is int else x2
        return own(first, second)

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
