"""The array API standard's meaning, over a framework's own operations.

For frameworks whose functions have other names, know no promotion of dtypes, or differ in their
arguments. The adapter gives plain operations, *raw* ones: tensors of one dtype, axes counted from 0 in
a tuple, shapes and lists complete. What the standard says beyond that, and what can be built of other
functions, is here, once.
"""

from __future__ import annotations

import math
from functools import cache

from xdevice.errors import ArgumentError, CopyNeededError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    class Dtypes(Protocol):
        """How a framework's numbers are named and made: an adapter's module has these."""

        def dtype_name(self, x: Any) -> str | None:
            """NumPy's name for the dtype of a tensor; ``None`` for what is no tensor."""
            ...

        def cast(self, x: Any, name: str) -> Any:
            """The tensor in another dtype, on its device; gradients flow through."""
            ...

        def number(self, value: Any, name: str, like: Any) -> Any:
            """A tensor of one number, beside another tensor."""
            ...

        def operand(self, value: Any, name: str, like: Any) -> Any:
            """The same for an operation of two tensors, if some take a plain number at less cost."""
            ...


FLOAT, INTEGER = "float32", "int64"
"""What becomes of whole numbers in a function of real ones, and what they are added up in."""

_ORDER = {"bool": 0, "uint8": 1, "int8": 1, "int16": 1, "int32": 1, "int64": 1}  # all others are floats: 2

PROMOTED = (
    *("add", "divide", "equal", "floor_divide", "greater", "greater_equal", "less", "less_equal", "logaddexp"),
    *("maximum", "minimum", "multiply", "not_equal", "pow", "remainder", "subtract"),
)
OF_REALS = (
    *("cos", "cosh", "exp", "expm1", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "sin", "sinh"),
    *("sqrt", "tan", "tanh"),
)
OF_TRUTH = ("logical_and", "logical_not", "logical_or", "logical_xor")
TO_WHOLE = ("ceil", "floor", "round")
REDUCED = ("all", "any", "max", "mean", "min", "prod", "sum")
AS_THEY_ARE = ("abs", "empty_like", "negative", "nonzero", "ones_like", "sign", "tril", "triu", "zeros_like")


def standard(raw: Mapping[str, Any], dtypes: Any) -> dict[str, Any]:
    """Every function of the standard that these operations are enough for."""
    from xdevice.kit.composed import Composed  # which is built on this

    made: dict[str, Any] = {name: raw[name] for name in AS_THEY_ARE if name in raw}
    promote, operands = (promotion(dtypes, number) for number in (dtypes.number, dtypes.operand))
    simple = {name: _binary(raw[name], operands, name == "divide") for name in PROMOTED if name in raw}
    simple |= {name: _of_reals(raw[name], dtypes) for name in OF_REALS if name in raw}
    simple |= {name: _of_truth(raw[name], dtypes) for name in OF_TRUTH if name in raw}
    simple |= {name: _to_whole(raw[name], dtypes) for name in TO_WHOLE if name in raw}
    simple |= {name: _reduction(name, raw[name], dtypes) for name in REDUCED if name in raw}
    for name, function in simple.items():
        function.__name__ = function.__qualname__ = name
    made |= simple
    whole = Composed(raw, made, dtypes, promote)
    methods = {name: getattr(whole, name) for name in vars(Composed) if not name.startswith("_")}
    return methods | made  # the framework's own where it has one


@cache
def common(*names: str) -> str:
    """The dtype of a result: among those of one kind as NumPy has it; of several kinds the highest alone counts."""
    import numpy as np

    kinds = [_ORDER.get(name, 2) for name in names]
    highest = {name for name, kind in zip(names, kinds, strict=True) if kind == max(kinds)}
    known = highest - {"bfloat16"}  # which NumPy does not have
    if len(known) < len(highest):
        return "bfloat16" if not known else "float32" if known == {"float16"} else common(*known)
    return np.result_type(*known).name


def promotion(dtypes: Any, number: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A function that brings tensors and Python's numbers to one dtype; the numbers follow the tensors."""
    name_of, cast = dtypes.dtype_name, dtypes.cast

    def promote(*operands: Any, least: str | None = None) -> list[Any]:
        names = [name_of(operand) for operand in operands]
        if least is None and names[0] is not None and names.count(names[0]) == len(names):
            return list(operands)
        found = [name for name in names if name is not None]
        if not found:
            raise ArgumentError(f"{operands!r} has no tensor; give one, asarray makes it")
        numbers = [_lowest(o) for o, name in zip(operands, names, strict=True) if name is None]
        target = common(*found)
        if numbers and max(_ORDER.get(n, 2) for n in numbers) > _ORDER.get(target, 2):
            target = max(numbers, key=lambda n: _ORDER.get(n, 2))
        if least is not None and _ORDER.get(target, 2) < _ORDER.get(least, 2):
            target = least
        like = next(o for o, name in zip(operands, names, strict=True) if name is not None)
        return [
            number(o, target, like) if name is None else o if name == target else cast(o, target)
            for o, name in zip(operands, names, strict=True)
        ]

    return promote


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes meant, counted from 0: all of them for ``None``."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    for each in given:
        if not -ndim <= each < ndim:
            raise ArgumentError(
                f"axis {each!r} does not exist in a tensor of {ndim} axes; count from 0, or from -1 back"
            )
    found = tuple(each % ndim for each in given)
    if len(set(found)) < len(found):
        raise ArgumentError(f"axis={axis!r} names an axis twice; name each once")
    return found


def no_copy(copy: bool | None) -> None:
    """Raise where ``copy=False`` cannot be promised."""
    if copy is False:
        raise CopyNeededError("copy=False, but only a copy could be given; leave copy out")


def real(x: Any, dtypes: Any) -> Any:
    """The tensor, in floats if it was of whole numbers."""
    return dtypes.cast(x, FLOAT) if dtypes.dtype_name(x) in _ORDER else x


def wide(x: Any, dtype: Any, dtypes: Any) -> Any:
    """The tensor in the dtype in which it is added up."""
    if dtype is not None:
        return dtypes.cast(x, dtype)
    return dtypes.cast(x, INTEGER) if dtypes.dtype_name(x) in _ORDER else x


def size_of(shape: Any, axes: tuple[int, ...]) -> int:
    """How many numbers lie along these axes."""
    return math.prod(shape[axis] for axis in axes)


def _lowest(value: Any) -> str:
    """The least dtype that a number of Python's needs."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return INTEGER
    if isinstance(value, float):
        return FLOAT
    raise ArgumentError(f"a {type(value).__name__} is neither a tensor nor a number; asarray makes a tensor of it")


def _binary(op: Callable[..., Any], promote: Callable[..., list[Any]], of_reals: bool) -> Callable[..., Any]:
    least = FLOAT if of_reals else None

    def call(x1: Any, x2: Any, /) -> Any:
        return op(*promote(x1, x2, least=least))

    return call


def _of_reals(op: Callable[..., Any], dtypes: Any) -> Callable[..., Any]:
    def call(x: Any, /) -> Any:
        return op(real(x, dtypes))

    return call


def _of_truth(op: Callable[..., Any], dtypes: Any) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        tensor = next((o for o in operands if dtypes.dtype_name(o) is not None), None)
        return op(*(truth(o, dtypes, tensor) for o in operands))

    return call


def truth(x: Any, dtypes: Any, like: Any = None) -> Any:
    """The tensor, or Python's number, as booleans."""
    name = dtypes.dtype_name(x)
    if name is None:
        return dtypes.number(bool(x), "bool", like)
    return x if name == "bool" else dtypes.cast(x, "bool")


def _to_whole(op: Callable[..., Any], dtypes: Any) -> Callable[..., Any]:
    def call(x: Any, /) -> Any:
        return x if dtypes.dtype_name(x) in _ORDER else op(x)

    return call


def _reduction(name: str, op: Callable[..., Any], dtypes: Any) -> Callable[..., Any]:
    def reduce(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        if name in ("all", "any"):
            x = truth(x, dtypes)
        elif name == "mean":
            x = real(x, dtypes)
        axes = axes_of(axis, len(x.shape))
        return op(x, axes, keepdims) if axes else x

    def add_up(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return reduce(wide(x, dtype, dtypes), axis=axis, keepdims=keepdims)

    return add_up if name in ("sum", "prod") else reduce
