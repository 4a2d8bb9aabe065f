"""Python's numbers among the operands of a namespace's functions.

A number that the tensor's dtype cannot hold is an error. Some frameworks raise
one; others compute with the number modulo a power of 2.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeAlias

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
_LOGICAL = "logical_and logical_or logical_xor"
_SMALLEST_MAXIMUM = 127  # every numeric dtype holds the integers from 0 to 127
# not every framework converts integers outside of this range, beside floats,
# to a float
_SAFE_BESIDE_FLOATS = (-(2**31), 2**31 - 1)
_PLAIN_NUMBERS = (int, float, complex)
_INFINITY = float("inf")

Tensor: TypeAlias = Any
DType: TypeAlias = Any
Operand: TypeAlias = Any  # a tensor or a number
Number: TypeAlias = Any
Function = Callable[..., Any]
# from an integer and the operand beside it, the number to compute with
IntegerConversion = Callable[[int, Operand], Number]


class Range(NamedTuple):
    """The integers that need no conversion beside a tensor of a dtype."""

    low: int
    high: int
    dtype_name: str
    is_integer: bool


class Numbers:
    """The functions of a namespace that take numbers beside tensors, which are checked."""

    def __init__(self, owner: Backend, native: Mapping[str, Function]) -> None:
        self._owner = owner
        self._native = native
        self._ranges: dict[DType, Range] = {}

    def functions(self) -> dict[str, Function]:
        """The framework's functions, by name, that check the numbers among their arguments."""
        native = self._native
        conversions = dict.fromkeys(_IN_DTYPE.split(), self.held)
        conversions |= dict.fromkeys(_IN_FLOATS.split(), self._real)
        functions = {
            name: _of_two(native[name], conversion)
            for name, conversion in conversions.items()
            if name in native
        }
        for name in _NOT_NEGATIVE:
            if name in native:
                functions[name] = self._not_negative(name, functions[name])
        for name in _LOGICAL.split():
            if name in native:
                functions[name] = _logical(native[name])
        for name in _WITH_OPTIONS:
            if name in native:
                functions[name] = _with_options(native[name], self.held)
        if "where" in native:
            functions["where"] = _where(native["where"], self.held)
        if "clip" in native:
            functions["clip"] = self._clip(native["clip"])
        return functions

    def held(self, value: int, operand: Operand) -> Number:
        """The integer, if the operand's dtype can hold it; a long one beside floats as a float."""
        limits = self._range_of(operand)
        if limits is not None and limits.low <= value <= limits.high:
            return value
        if limits is not None and limits.is_integer:
            raise self._misfit(value, limits.dtype_name)
        is_beside_bool = limits is None or limits.dtype_name == "bool"
        if is_beside_bool and not isinstance(operand, (float, complex)):
            return self._default_integer(value)
        return _as_float(value)

    def filling(self, value: Number, dtype: DType) -> int | float | None:
        """The number with which a tensor of that dtype is filled; None if it has to be checked."""
        limits = self._range(dtype)
        if type(value) is float and not limits.is_integer:
            return value
        is_real = type(value) is int or type(value) is float
        if is_real and limits.low <= value <= limits.high:
            return int(value)
        return None

    def _bound(self, value: Number, x: Tensor) -> Number:
        """A number that is a bound of `clip`, if the tensor's dtype can hold it."""
        limits = self._range(x.dtype)
        if type(value) is complex:
            raise ArgumentError(complex_among_reals(limits.dtype_name))
        if limits.dtype_name == "bool":
            raise ArgumentError("clip of booleans is not defined; convert them with astype")
        if type(value) is int:
            return self.held(value, x)
        if not limits.is_integer:
            return value
        if not limits.low - 1 < value < limits.high + 1:
            raise self._misfit(value, limits.dtype_name)
        if not value.is_integer():
            raise ArgumentError(
                f"clip of {limits.dtype_name} keeps the dtype, which does not hold {value!r}; "
                f"give an integer, or convert the tensor, for example with astype(x, xp.float32)"
            )
        return int(value)

    def _tensor_bound(self, bound: Tensor, x: Tensor) -> Tensor:
        """A tensor that is a bound of `clip`, in the dtype of the tensor that is clipped."""
        if bound.dtype == x.dtype or tensor_owner(bound) != self._owner:
            return bound
        source, target = self._range(bound.dtype), self._range(x.dtype)
        fits = source.is_integer and target.low <= source.low and source.high <= target.high
        if target.is_integer and not fits:
            raise ArgumentError(
                f"clip of {target.dtype_name} keeps the dtype, which does not hold all of "
                f"{source.dtype_name}; convert the bound, or the tensor, with astype"
            )
        return self._native["astype"](bound, x.dtype)

    def _real(self, value: int, operand: Operand) -> int | float:
        """The integer, as a float if the operand's dtype cannot hold it."""
        limits = self._range_of(operand)
        if limits is None:
            low, high = _SAFE_BESIDE_FLOATS
        else:
            low, high = limits.low, limits.high
        if low <= value <= high:
            return value
        return _as_float(value)

    def _clip(self, native_clip: Function) -> Function:
        def converted(bound: Operand | None, x: Tensor, unbounded: float) -> Operand | None:
            if type(bound) in _PLAIN_NUMBERS:
                if bound == unbounded:
                    return None
                return self._bound(bound, x)
            if hasattr(bound, "dtype"):
                return self._tensor_bound(bound, x)
            return bound

        @wraps(native_clip)
        def call(
            x: Tensor,
            /,
            min: Operand | None = None,
            max: Operand | None = None,
            **options: object,
        ) -> Tensor:
            lowest = converted(min, x, -_INFINITY)
            highest = converted(max, x, _INFINITY)
            return native_clip(x, lowest, highest, **options)

        return call

    def _not_negative(self, name: str, native: Function) -> Function:
        """A function that refuses a negative number as the second operand of integers."""

        @wraps(native)
        def call(x1: Operand, x2: Operand, /) -> Tensor:
            if type(x2) is int and x2 < 0:
                limits = self._range_of(x1)
                if limits is not None and limits.is_integer:
                    raise ArgumentError(
                        f"{name} of {limits.dtype_name} by {x2!r} is not an integer; convert "
                        f"the tensor, for example with astype(x, xp.float32)"
                    )
            return native(x1, x2)

        return call

    def _range_of(self, operand: Operand) -> Range | None:
        dtype = getattr(operand, "dtype", None)
        if dtype is None:
            return None
        return self._range(dtype)

    def _range(self, dtype: DType) -> Range:
        try:
            return self._ranges[dtype]
        except KeyError:
            name = dtype_name(dtype, self._owner).removesuffix("_")  # bool_ under NumPy 1
        limits = limits_of(name)
        low, high = limits or _SAFE_BESIDE_FLOATS
        self._ranges[dtype] = Range(low, high, name, is_integer=limits is not None)
        return self._ranges[dtype]

    def _default_integer(self, value: int) -> int:
        """The number, if the default integer dtype, that of a boolean and 0, can hold it."""
        dtype = self._native["result_type"](self._owner.creation.dtype("bool"), 0)
        name = dtype_name(dtype, self._owner)  # int32 under JAX, unless 64 bits are enabled
        low, high = limits_of(name) or _SAFE_BESIDE_FLOATS
        if not low <= value <= high:
            raise ArgumentError(f"{misfit(value, name)}; beside booleans, write it as a float")
        return value

    def _misfit(self, value: Number, name: str) -> ArgumentError:
        hint = f"convert the tensor, for example with astype(x, xp.{wider(value, name)})"
        return ArgumentError(f"{misfit(value, name)}; {hint}")


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(
            f"{misfit(value, 'float64')}, nor into any other dtype; make it smaller"
        ) from None


def _of_two(native: Function, convert: IntegerConversion) -> Function:
    """A function of two operands, one of which may be a number."""

    @wraps(native)
    def call(x1: Operand, x2: Operand, /) -> Tensor:
        if type(x2) is int:
            if not 0 <= x2 <= _SMALLEST_MAXIMUM:
                x2 = convert(x2, x1)
        elif type(x1) is int and not 0 <= x1 <= _SMALLEST_MAXIMUM:
            x1 = convert(x1, x2)
        return native(x1, x2)

    return call


def _logical(native: Function) -> Function:
    """A function of two operands, for which an integer is true or false."""

    @wraps(native)
    def call(x1: Operand, x2: Operand, /) -> Tensor:
        if type(x1) is int:
            x1 = bool(x1)
        if type(x2) is int:
            x2 = bool(x2)
        return native(x1, x2)

    return call


def _with_options(native: Function, convert: IntegerConversion) -> Function:
    @wraps(native)
    def call(x1: Operand, x2: Operand, /, **options: object) -> Tensor:
        return native(*_both_converted(x1, x2, convert), **options)

    return call


def _where(native: Function, convert: IntegerConversion) -> Function:
    @wraps(native)
    def call(condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
        return native(condition, *_both_converted(x1, x2, convert))

    return call


def _both_converted(
    x1: Operand, x2: Operand, convert: IntegerConversion
) -> tuple[Operand, Operand]:
    first, second = x1, x2
    if type(x1) is int:
        first = convert(x1, x2)
    if type(x2) is int:
        second = convert(x2, x1)
    return first, second
