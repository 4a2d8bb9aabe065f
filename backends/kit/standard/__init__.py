"""The array API standard's functions, over a framework's own operations.

The adapter provides plain operations, *raw* ones. They take tensors of one
dtype, a tuple of axes counted from 0, and complete shapes and lists. This
package adds what else the standard asks for, and composes the functions that
the framework does not have.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from xdevice.backends.kit.standard.axes import Axes, Function, Functions, Tensor, axes_of
from xdevice.backends.kit.standard.dtypes import (
    COMPLEX,
    FLOAT,
    INTEGER,
    WHOLE,
    DataTypes,
    Dtypes,
    Operand,
    Operations,
    kind_of,
)
from xdevice.backends.kit.standard.linalg import Products
from xdevice.backends.kit.standard.manipulation import Manipulation
from xdevice.backends.kit.standard.searching import Searching
from xdevice.backends.kit.standard.sets import Sets
from xdevice.backends.kit.standard.statistics import Statistics
from xdevice.contract import NativeDtype
from xdevice.errors import ArgumentTypeError

UFunc: TypeAlias = Any
"""An elementwise function with NumPy's attributes, as `numpy.ufunc` has them."""

_UNCHANGED = """
    abs bitwise_invert empty_like negative ones_like sign tril triu zeros_like
"""
# Functions of two operands, which get one dtype.
_PROMOTED = """
    add atan2 bitwise_left_shift bitwise_right_shift copysign divide equal floor_divide greater
    greater_equal hypot less less_equal logaddexp maximum minimum multiply nextafter not_equal pow
    subtract
"""
# Those of them for which integers become floats.
_PROMOTED_TO_FLOATS = ("atan2", "copysign", "divide", "hypot", "nextafter")
# Functions of one operand, for which integers become floats.
_OF_FLOATS = """
    acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 signbit sin sinh sqrt
    tan tanh
"""
# Functions of bits, with those that replace them for booleans. Frameworks have
# functions of bits for integers only.
_OF_BITS = {f"bitwise_{name}": f"logical_{name}" for name in ("and", "or", "xor")}
# Functions of real numbers, with the one that combines the results for real
# and imaginary parts.
_OF_PARTS = {"isfinite": "logical_and", "isinf": "logical_or", "isnan": "logical_or"}


def standard(raw: Functions, dtypes: Dtypes) -> dict[str, Function]:
    """Every function of the standard that can be made of these operations."""
    functions = {name: raw[name] for name in _UNCHANGED.split() if name in raw}
    for make, names in _Adjusted(raw, functions, dtypes).makers().items():
        for name in names:
            if name in raw:
                function = make(name)
                function.__name__ = function.__qualname__ = name
                functions[name] = function
    composed = dict(Composed(raw, functions, dtypes))
    return composed | functions  # the framework's own function if it has one


def elementwise(ufunc: UFunc, name: str) -> Function:
    """The ufunc with the standard's signature, which names no arguments."""

    def unary(x: Any, /) -> Any:
        return ufunc(x)

    def binary(x1: Any, x2: Any, /) -> Any:
        return ufunc(x1, x2)

    function: Function = unary if ufunc.nin == 1 else binary
    function.__name__ = name
    function.__doc__ = ufunc.__doc__
    return function


class _Adjusted(Operations):
    """Operations that only need a dtype or an axis adjusted."""

    def makers(self) -> dict[Callable[[str], Function], Iterable[str]]:
        """What makes a function from an operation's name, with the names."""
        return {
            self._promoted: _PROMOTED.split(),
            self._of_bits: _OF_BITS,
            self._of_floats: _OF_FLOATS.split(),
            self._of_parts: _OF_PARTS,
            self._of_truth: ("logical_and", "logical_not", "logical_or", "logical_xor"),
            self._to_whole: ("ceil", "floor", "round", "trunc"),
            self._remainder: ("remainder",),
            self._reduction: ("all", "any", "max", "mean", "min", "prod", "sum"),
        }

    def _promoted(self, name: str) -> Function:
        op = self._raw[name]
        promote = self._operands
        least = FLOAT if name in _PROMOTED_TO_FLOATS else None
        return lambda x1, x2, /: op(*promote(x1, x2, least=least))

    def _remainder(self, name: str) -> Function:
        """The remainder.

        A zero gets the divisor's sign, which frameworks do not ensure.
        """
        raw = self._raw

        def remainder(x1: Tensor, x2: Tensor, /) -> Tensor:
            x1, x2 = self._promote(x1, x2)
            result = raw[name](x1, x2)
            if self._kind(result) <= WHOLE:
                return result
            zero = self._number(0.0, result)
            # -(0 - 0) is -0, and -0 + 0 is 0; these change no other number
            with_negative_zeros = raw["negative"](raw["subtract"](zero, result))
            with_positive_zeros = raw["add"](result, zero)
            is_negative = raw["less"](x2, zero)
            return raw["where"](is_negative, with_negative_zeros, with_positive_zeros)

        return remainder

    def _of_bits(self, name: str) -> Function:
        def of_bits(x1: Tensor, x2: Tensor, /) -> Tensor:
            x1, x2 = self._operands(x1, x2)
            if "bool" in (self._dtypes.dtype_name(x1), self._dtypes.dtype_name(x2)):
                return self._raw[_OF_BITS[name]](x1, x2)
            return self._raw[name](x1, x2)

        return of_bits

    def _of_floats(self, name: str) -> Function:
        op = self._raw[name]
        return lambda x, /: op(self._real(x))

    def _of_parts(self, name: str) -> Function:
        op, combine = self._raw[name], self._raw[_OF_PARTS[name]]

        def of_parts(x: Tensor, /) -> Tensor:
            if self._kind(x) == COMPLEX:
                return combine(op(self._raw["real"](x)), op(self._raw["imag"](x)))
            return op(self._real(x))

        return of_parts

    def _of_truth(self, name: str) -> Function:
        op = self._raw[name]
        if name == "logical_not":
            return lambda x, /: op(self._truth(x))

        def of_truth(x1: Tensor, x2: Tensor, /) -> Tensor:
            like = x1
            if self._dtypes.dtype_name(x1) is None:
                like = x2
            return op(self._truth(x1, like), self._truth(x2, like))

        return of_truth

    def _to_whole(self, name: str) -> Function:
        op = self._raw[name]

        def to_whole(x: Tensor, /) -> Tensor:
            if self._kind(x) <= WHOLE:
                return x
            return op(x)

        return to_whole

    def _reduction(self, name: str) -> Function:
        op = self._raw[name]
        adjustments = {"all": self._truth, "any": self._truth, "mean": self._real}
        adjust = adjustments.get(name)

        def reduce(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
            if adjust is not None:
                x = adjust(x)
            axes = axes_of(axis, len(x.shape))
            if not axes:
                return x
            return op(x, axes, keepdims)

        def reduce_wide(
            x: Tensor, /, *, axis: Axes = None, dtype: NativeDtype = None, keepdims: bool = False
        ) -> Tensor:
            x = self._wide(x, dtype)
            result = reduce(x, axis=axis, keepdims=keepdims)
            return self._kept(result, self._dtypes.dtype_name(x))

        if name in ("sum", "prod"):
            return reduce_wide
        return reduce


class Composed(DataTypes, Manipulation, Statistics, Searching, Sets, Products):
    """The functions that are composed of others, by the standard's names.

    Those in this class are elementwise; the base classes have the others.
    """

    def positive(self, x: Tensor, /) -> Tensor:
        return x

    def square(self, x: Tensor, /) -> Tensor:
        return self._f["multiply"](x, x)

    def reciprocal(self, x: Tensor, /) -> Tensor:
        return self._f["divide"](1, x)

    def where(self, condition: Tensor, x1: Operand, x2: Operand, /) -> Tensor:
        are_numbers = self._dtypes.dtype_name(x1) is None and self._dtypes.dtype_name(x2) is None
        if are_numbers:
            has_float = isinstance(x1, float) or isinstance(x2, float)
            dtype = FLOAT if has_float else INTEGER
            x1 = self._dtypes.number(x1, dtype, condition)
        return self._raw["where"](self._truth(condition), *self._promote(x1, x2))

    def clip(self, x: Tensor, /, min: Operand = None, max: Operand = None) -> Tensor:
        name = self._dtypes.dtype_name(x)
        if min is not None:
            x = self._f["maximum"](x, min)
        if max is not None:
            x = self._f["minimum"](x, max)
        return self._kept(x, name)

    def hypot(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        x1, x2 = (self._f["abs"](x) for x in self._promote(x1, x2, least=FLOAT))
        high, low = self._f["maximum"](x1, x2), self._f["minimum"](x1, x2)
        # Scaled, so that the squares stay within the dtype's range. There is
        # no ratio if both numbers are 0, or one is infinite.
        is_positive = self._f["greater"](high, 0)
        has_ratio = self._f["logical_and"](self._f["isfinite"](high), is_positive)
        dividend = self.where(has_ratio, low, 0.0)
        divisor = self.where(has_ratio, high, 1.0)
        ratio = self._f["divide"](dividend, divisor)
        scaled_length = self._f["sqrt"](self._f["add"](self.square(ratio), 1))
        length = self._f["multiply"](high, scaled_length)
        infinite = self._f["logical_or"](self._f["isinf"](x1), self._f["isinf"](x2))
        return self.where(infinite, float("inf"), length)

    def logaddexp(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        x1, x2 = self._promote(x1, x2, least=FLOAT)
        difference = self._f["abs"](self._f["subtract"](x1, x2))
        # the difference of equal numbers is 0, also if both are infinite
        difference = self.where(self._f["equal"](x1, x2), 0.0, difference)
        correction = self._f["log1p"](self._f["exp"](self._f["negative"](difference)))
        return self._f["add"](self._f["maximum"](x1, x2), correction)

    def signbit(self, x: Tensor, /) -> Tensor:
        is_negative = self._f["less"](x, 0)
        # 1 divided by -0.0 is -inf, the only difference from 0.0 that every
        # framework computes
        has_negative_reciprocal = self._f["less"](self.reciprocal(x), 0)
        return self._f["logical_or"](is_negative, has_negative_reciprocal)

    def copysign(self, x1: Tensor, x2: Tensor, /) -> Tensor:
        x1, x2 = self._promote(x1, x2, least=FLOAT)
        size = self._f["abs"](x1)
        signbit = self._f.get("signbit", self.signbit)
        return self.where(signbit(x2), self._f["negative"](size), size)

    def real(self, x: Tensor, /) -> Tensor:
        if self._kind(x) != COMPLEX:
            return x
        return self._raw["real"](x)

    def imag(self, x: Tensor, /) -> Tensor:
        if self._kind(x) != COMPLEX:
            return self._f["zeros_like"](x)
        return self._raw["imag"](x)

    def conj(self, x: Tensor, /) -> Tensor:
        if self._kind(x) != COMPLEX:
            return x
        return self._raw["conj"](x)

    def full_like(self, x: Tensor, /, fill_value: complex, *, dtype: NativeDtype = None) -> Tensor:
        zeros = self._f["zeros_like"](x, dtype=dtype)
        if self._dtypes.dtype_name(zeros) == "bool":
            return self._f["equal"](zeros, not fill_value)
        if isinstance(fill_value, float) and self._kind(zeros) == WHOLE:
            fill_value = int(fill_value)
        return self._f["add"](zeros, fill_value)

    def astype(self, x: Tensor, dtype: NativeDtype, /, *, copy: bool = True) -> Tensor:
        old_name = self._dtypes.dtype_name(x)
        new_name = self._dtypes.name_of(dtype)
        if kind_of(old_name) == COMPLEX > kind_of(new_name):
            raise ArgumentTypeError(
                f"{old_name} does not become {new_name}; give real(x), imag(x) or abs(x)"
            )
        if old_name == new_name and not copy:
            return x
        return self._dtypes.cast(x, dtype)
