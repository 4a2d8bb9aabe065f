"""The array API standard's functions, over a framework's own operations.

The adapter gives plain operations, *raw* ones: tensors of one dtype, axes counted from 0 in a tuple, shapes and lists
complete. What the standard asks for beyond that, and what can be composed of others, is written here once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from xdevice.errors import ArgumentTypeError
from xdevice.kit.standard.axes import AlongAxes, axes_of
from xdevice.kit.standard.dtypes import (
    COMPLEX,
    FLOAT,
    INTEGER,
    WHOLE,
    DataTypes,
    Dtypes,
    Operations,
    kind_of,
)
from xdevice.kit.standard.linalg import Products

Function = Callable[..., Any]

_PROMOTED = (
    "add atan2 bitwise_left_shift bitwise_right_shift copysign divide equal floor_divide greater greater_equal hypot "
    "less less_equal logaddexp maximum minimum multiply nextafter not_equal pow subtract"
)
_TO_REALS = (
    "atan2",
    "copysign",
    "divide",
    "hypot",
    "nextafter",
)  # of two operands; integers become floats
# functions of bits, and those of booleans that replace them: frameworks have bits of integers only
_OF_BITS = {f"bitwise_{name}": f"logical_{name}" for name in ("and", "or", "xor")}
_OF_REALS = "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 signbit sin sinh sqrt tan tanh"
# functions of real numbers, and how the results for the real and imaginary parts are combined
_PARTED = {"isfinite": "logical_and", "isinf": "logical_or", "isnan": "logical_or"}
_AS_THEY_ARE = "abs bitwise_invert empty_like negative ones_like sign tril triu zeros_like"


def standard(raw: Mapping[str, Any], dtypes: Dtypes) -> dict[str, Any]:
    """Every function of the standard that can be made of these operations."""
    made: dict[str, Any] = {name: raw[name] for name in _AS_THEY_ARE.split() if name in raw}
    makers = _Adjusted(raw, made, dtypes).makers()
    for name, make in (
        (name, make) for make, names in makers.items() for name in names if name in raw
    ):
        made[name] = function = make(name)
        function.__name__ = function.__qualname__ = name
    return dict(Composed(raw, made, dtypes)) | made  # the framework's own where it has one


def elementwise(ufunc: Any, name: str) -> Any:
    """The ufunc with the standard's signature: one of a framework's does not name its arguments."""

    call: Any = (lambda x, /: ufunc(x)) if ufunc.nin == 1 else (lambda x1, x2, /: ufunc(x1, x2))
    call.__name__, call.__doc__ = name, ufunc.__doc__
    return call


class _Adjusted(Operations):
    """Operations that only need a dtype or an axis adjusted."""

    def makers(self) -> dict[Callable[[str], Function], Iterable[str]]:
        """What makes a function of an operation's name, with the names."""
        return {
            self._promoted: _PROMOTED.split(),
            self._of_bits: _OF_BITS,
            self._of_reals: _OF_REALS.split(),
            self._of_parts: _PARTED,
            self._of_truth: ("logical_and", "logical_not", "logical_or", "logical_xor"),
            self._to_whole: ("ceil", "floor", "round", "trunc"),
            self._remainder: ("remainder",),
            self._reduction: ("all", "any", "max", "mean", "min", "prod", "sum"),
        }

    def _promoted(self, name: str) -> Function:
        op, promote, least = self._raw[name], self._operands, FLOAT if name in _TO_REALS else None
        return lambda x1, x2, /: op(*promote(x1, x2, least=least))

    def _remainder(self, name: str) -> Function:
        """The remainder; where it is 0 it has the divisor's sign, which frameworks do not ensure."""
        op, add, subtract, negative = (
            self._raw[each] for each in (name, "add", "subtract", "negative")
        )

        def call(x1: Any, x2: Any, /) -> Any:
            x1, x2 = self._promote(x1, x2)
            found = op(x1, x2)
            if self._kind(found) <= WHOLE:
                return found
            zero = self._number(0.0, found)
            of_negative = negative(
                subtract(zero, found)
            )  # -(0 - 0) is -0, and 0 + -0 is 0: no other number changes
            return self._raw["where"](self._raw["less"](x2, zero), of_negative, add(found, zero))

        return call

    def _of_bits(self, name: str) -> Function:
        def call(x1: Any, x2: Any, /) -> Any:
            x1, x2 = self._operands(x1, x2)
            names = self._dtypes.dtype_name(x1), self._dtypes.dtype_name(x2)
            return self._raw[_OF_BITS[name] if "bool" in names else name](x1, x2)

        return call

    def _of_reals(self, name: str) -> Function:
        op = self._raw[name]
        return lambda x, /: op(self._real(x))

    def _of_parts(self, name: str) -> Function:
        op, joined = self._raw[name], self._raw[_PARTED[name]]

        def call(x: Any, /) -> Any:
            if self._kind(x) == COMPLEX:
                return joined(op(self._raw["real"](x)), op(self._raw["imag"](x)))
            return op(self._real(x))

        return call

    def _of_truth(self, name: str) -> Function:
        op = self._raw[name]
        if name == "logical_not":
            return lambda x, /: op(self._truth(x))

        def join(x1: Any, x2: Any, /) -> Any:
            like = x2 if self._dtypes.dtype_name(x1) is None else x1
            return op(self._truth(x1, like), self._truth(x2, like))

        return join

    def _to_whole(self, name: str) -> Function:
        op = self._raw[name]
        return lambda x, /: x if self._kind(x) <= WHOLE else op(x)

    def _reduction(self, name: str) -> Function:
        op, adjust = (
            self._raw[name],
            {"all": self._truth, "any": self._truth, "mean": self._real}.get(name),
        )

        def reduce(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
            x = adjust(x) if adjust else x
            axes = axes_of(axis, len(x.shape))
            return op(x, axes, keepdims) if axes else x

        def add_up(
            x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False
        ) -> Any:
            x = self._wide(x, dtype)
            return self._kept(reduce(x, axis=axis, keepdims=keepdims), self._dtypes.dtype_name(x))

        return add_up if name in ("sum", "prod") else reduce


class Composed(DataTypes, AlongAxes, Products):
    """Functions that are composed of others, by the standard's names; here those applied element by element."""

    def positive(self, x: Any, /) -> Any:
        return x

    def square(self, x: Any, /) -> Any:
        return self._f["multiply"](x, x)

    def reciprocal(self, x: Any, /) -> Any:
        return self._f["divide"](1, x)

    def where(self, condition: Any, x1: Any, x2: Any, /) -> Any:
        if (
            self._dtypes.dtype_name(x1) is None and self._dtypes.dtype_name(x2) is None
        ):  # Python's numbers
            least = FLOAT if isinstance(x1, float) or isinstance(x2, float) else INTEGER
            x1 = self._dtypes.number(x1, least, condition)
        return self._raw["where"](self._truth(condition), *self._promote(x1, x2))

    def clip(self, x: Any, /, min: Any = None, max: Any = None) -> Any:
        name = self._dtypes.dtype_name(x)
        for bound, limit in ((min, "maximum"), (max, "minimum")):
            if bound is not None:
                x = self._f[limit](x, bound)
        return self._kept(x, name)

    def hypot(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = (self._f["abs"](x) for x in self._promote(x1, x2, least=FLOAT))
        high, low = self._f["maximum"](x1, x2), self._f["minimum"](x1, x2)
        # scaled, so that the squares stay within the dtype; where both are 0 or one is infinite there is no ratio
        plain = self._f["logical_and"](self._f["isfinite"](high), self._f["greater"](high, 0))
        ratio = self._f["divide"](self.where(plain, low, 0.0), self.where(plain, high, 1.0))
        length = self._f["multiply"](high, self._f["sqrt"](self._f["add"](self.square(ratio), 1)))
        infinite = self._f["logical_or"](self._f["isinf"](x1), self._f["isinf"](x2))
        return self.where(infinite, float("inf"), length)

    def logaddexp(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self._promote(x1, x2, least=FLOAT)
        # the difference of equal numbers is 0, also where both are infinite
        apart = self.where(
            self._f["equal"](x1, x2), 0.0, self._f["abs"](self._f["subtract"](x1, x2))
        )
        return self._f["add"](
            self._f["maximum"](x1, x2), self._f["log1p"](self._f["exp"](self._f["negative"](apart)))
        )

    def signbit(self, x: Any, /) -> Any:
        # 1 divided by -0.0 is -inf, the only difference from 0.0 that every framework computes
        return self._f["logical_or"](self._f["less"](x, 0), self._f["less"](self.reciprocal(x), 0))

    def copysign(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self._promote(x1, x2, least=FLOAT)
        size = self._f["abs"](x1)
        return self.where(self._f.get("signbit", self.signbit)(x2), self._f["negative"](size), size)

    def real(self, x: Any, /) -> Any:
        return self._raw["real"](x) if self._kind(x) == COMPLEX else x

    def imag(self, x: Any, /) -> Any:
        return self._raw["imag"](x) if self._kind(x) == COMPLEX else self._f["zeros_like"](x)

    def conj(self, x: Any, /) -> Any:
        return self._raw["conj"](x) if self._kind(x) == COMPLEX else x

    def full_like(self, x: Any, /, fill_value: Any, *, dtype: Any = None) -> Any:
        zeros = self._f["zeros_like"](x, dtype=dtype)
        if self._dtypes.dtype_name(zeros) == "bool":
            return self._f["equal"](zeros, not fill_value)
        is_cut = isinstance(fill_value, float) and self._kind(zeros) == WHOLE
        return self._f["add"](zeros, int(fill_value) if is_cut else fill_value)

    def astype(self, x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
        given, wanted = self._dtypes.dtype_name(x), self._dtypes.name_of(dtype)
        if kind_of(given) == COMPLEX > kind_of(wanted):
            raise ArgumentTypeError(
                f"{given} does not become {wanted}; give real(x), imag(x) or abs(x)"
            )
        return x if given == wanted and not copy else self._dtypes.cast(x, dtype)
