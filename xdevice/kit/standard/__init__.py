"""The array API standard's functions, over a framework's own operations.

The adapter gives plain operations, *raw* ones: tensors of one dtype, axes counted from 0 in a tuple, shapes and lists
complete. What the standard asks for beyond that, and what can be composed of others, is written here once.
"""

from collections.abc import Callable, Mapping
from typing import Any

from xdevice.kit.standard.axes import axes_of
from xdevice.kit.standard.dtypes import DataTypes
from xdevice.kit.standard.elementwise import Elementwise
from xdevice.kit.standard.products import Products
from xdevice.kit.standard.promotion import COMPLEX, FLOAT, WHOLE, Dtypes, kind_of, promotion, real, truth, wide
from xdevice.kit.standard.searching import Searching
from xdevice.kit.standard.sets import Sets
from xdevice.kit.standard.shapes import Shapes
from xdevice.kit.standard.statistics import Statistics

PROMOTED = (
    *("add", "atan2", "bitwise_left_shift", "bitwise_right_shift", "copysign", "divide", "equal", "floor_divide"),
    *("greater", "greater_equal", "hypot", "less", "less_equal", "logaddexp", "maximum", "minimum", "multiply"),
    *("nextafter", "not_equal", "pow", "subtract"),
)
TO_REALS = ("atan2", "copysign", "divide", "hypot", "nextafter")
"""Functions of two operands that convert integers to floats."""

OF_BITS = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}
"""Functions of bits, and those of booleans that replace them: frameworks have bits of integers only."""

OF_REALS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1", "log", "log10", "log1p"),
    *("log2", "signbit", "sin", "sinh", "sqrt", "tan", "tanh"),
)
PARTED = {"isfinite": "logical_and", "isinf": "logical_or", "isnan": "logical_or"}
"""Functions of real numbers, and how the results for the real and imaginary parts are combined."""

OF_TRUTH = ("logical_and", "logical_not", "logical_or", "logical_xor")
TO_WHOLE = ("ceil", "floor", "round", "trunc")
REDUCED = ("all", "any", "max", "mean", "min", "prod", "sum")
AS_THEY_ARE = (*("abs", "bitwise_invert", "empty_like", "negative", "ones_like", "sign", "tril", "triu"), "zeros_like")


class Composed(DataTypes, Elementwise, Statistics, Shapes, Searching, Sets, Products):
    """Functions that are composed of others, or take arguments in several forms: each a method of the standard's name.

    The base classes are the sections of the standard.
    """


def standard(raw: Mapping[str, Any], dtypes: Dtypes) -> dict[str, Any]:
    """Every function of the standard that can be made of these operations."""
    made: dict[str, Any] = {name: raw[name] for name in AS_THEY_ARE if name in raw}
    promote, operands = (promotion(dtypes, number) for number in (dtypes.number, dtypes.operand))
    simple = {
        name: _binary(raw[name], operands, FLOAT if name in TO_REALS else None) for name in PROMOTED if name in raw
    }
    simple |= {name: _of_bits(raw[name], raw[OF_BITS[name]], operands, dtypes) for name in OF_BITS}
    simple |= {name: _of_reals(raw[name], dtypes) for name in OF_REALS if name in raw}
    simple |= {name: _of_parts(raw, name, dtypes) for name in PARTED if name in raw}
    simple |= {name: _of_truth(raw[name], dtypes, 1 if name == "logical_not" else 2) for name in OF_TRUTH}
    simple |= {name: _to_whole(raw[name], dtypes) for name in TO_WHOLE if name in raw}
    simple["remainder"] = _remainder(raw, promote, dtypes)
    simple |= {name: _reduction(name, raw[name], dtypes) for name in REDUCED if name in raw}
    for name, function in simple.items():
        function.__name__ = function.__qualname__ = name
    made |= simple
    composed = dict(Composed(raw, made, dtypes))
    return composed | made  # the framework's own where it has one


def _binary(op: Callable[..., Any], promote: Callable[..., list[Any]], least: str | None) -> Callable[..., Any]:
    return lambda x1, x2, /: op(*promote(x1, x2, least=least))


def _remainder(raw: Mapping[str, Any], promote: Callable[..., list[Any]], dtypes: Dtypes) -> Callable[..., Any]:
    """The remainder; where it is 0 it has the divisor's sign, which frameworks do not ensure."""
    add, subtract, negative = raw["add"], raw["subtract"], raw["negative"]

    def call(x1: Any, x2: Any, /) -> Any:
        x1, x2 = promote(x1, x2)
        found = raw["remainder"](x1, x2)
        name = dtypes.dtype_name(found)
        if kind_of(name) <= WHOLE:
            return found
        zero = dtypes.number(0.0, str(name), found)
        of_negative = negative(subtract(zero, found))  # -(0 - 0) is -0, and 0 + -0 is 0: no other number changes
        return raw["where"](raw["less"](x2, zero), of_negative, add(found, zero))

    return call


def _of_bits(
    op: Callable[..., Any], of_booleans: Callable[..., Any], promote: Callable[..., list[Any]], dtypes: Dtypes
) -> Callable[..., Any]:
    def call(x1: Any, x2: Any, /) -> Any:
        x1, x2 = promote(x1, x2)
        return (of_booleans if "bool" in (dtypes.dtype_name(x1), dtypes.dtype_name(x2)) else op)(x1, x2)

    return call


def _of_reals(op: Callable[..., Any], dtypes: Dtypes) -> Callable[..., Any]:
    return lambda x, /: op(real(x, dtypes))


def _of_parts(raw: Mapping[str, Any], name: str, dtypes: Dtypes) -> Callable[..., Any]:
    op, joined = raw[name], raw[PARTED[name]]

    def call(x: Any, /) -> Any:
        if kind_of(dtypes.dtype_name(x)) == COMPLEX:
            return joined(op(raw["real"](x)), op(raw["imag"](x)))
        return op(real(x, dtypes))

    return call


def _of_truth(op: Callable[..., Any], dtypes: Dtypes, operands: int) -> Callable[..., Any]:
    if operands == 1:
        return lambda x, /: op(truth(x, dtypes))

    def join(x1: Any, x2: Any, /) -> Any:
        like = x2 if dtypes.dtype_name(x1) is None else x1
        return op(truth(x1, dtypes, like), truth(x2, dtypes, like))

    return join


def _to_whole(op: Callable[..., Any], dtypes: Dtypes) -> Callable[..., Any]:
    return lambda x, /: x if kind_of(dtypes.dtype_name(x)) <= WHOLE else op(x)


def _reduction(name: str, op: Callable[..., Any], dtypes: Dtypes) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        if name in ("all", "any"):
            x = truth(x, dtypes)
        elif name == "mean":
            x = real(x, dtypes)
        axes = axes_of(axis, len(x.shape))
        return op(x, axes, keepdims) if axes else x

    def add_up(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        x = wide(x, dtype, dtypes)
        found, wanted = reduce(x, axis=axis, keepdims=keepdims), dtypes.dtype_name(x)
        return found if dtypes.dtype_name(found) == wanted else dtypes.cast(found, wanted)

    return add_up if name in ("sum", "prod") else reduce
