"""Dtypes by the array API standard's rules, and the functions of dtypes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol, TypeAlias

import numpy as np

from xdevice.backends.kit.standard.axes import Function, Functions, Tensor
from xdevice.contract import NativeDtype
from xdevice.errors import ArgumentError, ArgumentTypeError, did_you_mean

Operand: TypeAlias = Any
"""A tensor, or one of Python's numbers."""


class Dtypes(Protocol):
    """A framework's dtypes and conversions.

    They are functions of an adapter's ``maths`` module.
    """

    def dtype(self, name: str) -> NativeDtype | None:
        """The framework's dtype of that NumPy name, or ``None`` if it has none."""

    def name_of(self, dtype: NativeDtype) -> str:
        """NumPy's name for one of the framework's dtypes."""

    def dtype_name(self, x: object) -> str | None:
        """NumPy's name for the dtype of a tensor.

        ``None`` for anything else.
        """

    def cast(self, x: Tensor, dtype: NativeDtype | str) -> Tensor:
        """The tensor in another dtype, on its device.

        Gradients flow through.
        """

    def number(self, value: complex, name: str, like: Tensor) -> Tensor:
        """A tensor of one number, on the device of another tensor."""

    def operand(self, value: complex, name: str, like: Tensor) -> Operand:
        """The same as an operand.

        It is a plain number if the framework's operators take one faster.
        """

    def sliced(self, x: Tensor, key: tuple[slice, ...]) -> Tensor:
        """The part of the tensor with these slices of its first axes, on its device."""


FLOAT = "float32"  # integers become floats of this dtype in a function of real numbers
INTEGER, UNSIGNED = "int64", "uint64"  # integers are added up in these
# Kinds of numbers. The highest among several operands decides on the result's
# dtype.
BOOL, WHOLE, REAL, COMPLEX = range(4)

_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
REALS, COMPLEXES = ("float32", "float64"), ("complex64", "complex128")
_FLOATS = ("bfloat16", "float16", *REALS)  # the standard has no half precision

_KINDS = {
    "bool": BOOL,
    **dict.fromkeys(_SIGNED + _UNSIGNED, WHOLE),
    **dict.fromkeys(COMPLEXES, COMPLEX),
}
# what replaces a dtype that a framework lacks
_WIDER = {"int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
# the lowest dtypes of Python's numbers; True is an int, too, so bool is first. Not a dict:
# PaddlePaddle's compiler refuses types as keys.
_LOWEST = ((bool, "bool"), (int, INTEGER), (float, FLOAT), (complex, "complex64"))
_OF_KIND: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _FLOATS,
    "complex floating": COMPLEXES,
    "numeric": (*_SIGNED, *_UNSIGNED, *_FLOATS, *COMPLEXES),
}
# IEEE 754: the bits of the significand, and the exponent of 2 below which all
# numbers are
_FORMATS = {"bfloat16": (8, 128), "float16": (11, 16), "float32": (24, 128), "float64": (53, 1024)}

FloatInfo = namedtuple("FloatInfo", "bits eps max min smallest_normal dtype")
IntInfo = namedtuple("IntInfo", "bits max min dtype")


def kind_of(name: str | None) -> int:
    """The kind of a dtype. One that is not in the table is a float."""
    return _KINDS.get(str(name), REAL)


def bits_of(name: str) -> int:
    return 8 if name == "bool" else int(name.strip("abcdefghijklmnopqrstuvwxyz"))


def one_of(value: object, options: tuple[object, ...], argument: str) -> None:
    if value not in options:
        listed = ", ".join(map(repr, options))
        words = [option for option in options if isinstance(option, str)]
        hint = did_you_mean(value, words, "give one of them")
        raise ArgumentError(f"{argument}={value!r} is not one of {listed}; {hint}")


@cache
def common(*names: str) -> str:
    """The dtype of a result of operands with these dtypes.

    Only the dtypes of the highest kind count. The result can hold all of their
    values.
    """
    highest = max(map(kind_of, names))
    counted = sorted({name for name in names if kind_of(name) == highest}, key=bits_of)
    if highest == COMPLEX:
        is_double = not {"complex128", "float64"}.isdisjoint(names)
        return "complex128" if is_double else "complex64"
    if highest == REAL:
        if set(counted) == {"bfloat16", "float16"}:  # neither holds the other's values
            return "float32"
        return counted[-1]
    result = np.result_type(*counted).name
    if kind_of(result) > WHOLE:  # NumPy's is a float
        signed = [name for name in counted if name not in _UNSIGNED][-1]
        raise ArgumentError(
            f"no integer dtype holds both uint64 and {signed}; convert one of them with astype"
        )
    return result


def _promotion(
    dtypes: Dtypes, number: Callable[[complex, str, Tensor], Tensor]
) -> Callable[..., list[Tensor]]:
    """A function that converts tensors and Python's numbers to one dtype.

    ``number`` makes a tensor of a number. The tensors decide on the dtype
    within a kind.
    """
    name_of, cast = dtypes.dtype_name, dtypes.cast

    @cache
    def joint(*names: str) -> str:
        name = common(*names)
        if dtypes.dtype(name) is None:
            return _WIDER.get(name, name)
        return name

    def promote(*operands: Operand, least: str | None = None) -> list[Tensor]:
        names = [name_of(operand) for operand in operands]
        if least is None and names[0] is not None and names.count(names[0]) == len(names):
            return list(operands)  # the common case, and the fast one
        pairs = list(zip(operands, names, strict=True))
        tensors = [operand for operand, name in pairs if name is not None]
        if not tensors:
            raise ArgumentError(f"{operands!r} has no tensor; give one, asarray makes it")
        target = joint(*filter(None, names))
        for lowest in [_lowest(operand) for operand, name in pairs if name is None]:
            if kind_of(target) < kind_of(lowest):
                target = joint(target, lowest)
        if least is not None and kind_of(target) < kind_of(least):
            target = least
        if kind_of(target) == COMPLEX and dtypes.dtype(target) is None:
            raise ArgumentError(
                "the framework has no dtype for a complex number; give its real part"
            )
        return [converted(operand, name, target, tensors[0]) for operand, name in pairs]

    def converted(operand: Operand, name: str | None, target: str, like: Tensor) -> Tensor:
        if name is None:
            operand = number(operand, target, like)
        elif name != target:
            operand = cast(operand, target)
        tensor: Tensor = operand
        return tensor

    return promote


def _lowest(value: object) -> str:
    """The narrowest dtype for one of Python's numbers."""
    for kind, name in _LOWEST:
        if isinstance(value, kind):
            return name
    raise ArgumentError(
        f"a {type(value).__name__} is neither a tensor nor a number; asarray makes a tensor of it"
    )


class Operations:
    """The standard's functions, composed of a framework's operations.

    ``raw`` are the framework's own operations. ``f`` are functions that are
    complete: they adjust the dtype or the axis of one raw operation.
    """

    def __init__(self, raw: Functions, f: Functions, dtypes: Dtypes) -> None:
        self._raw = raw
        self._f = f
        self._dtypes = dtypes
        self._promote = _promotion(dtypes, dtypes.number)
        self._operands = _promotion(dtypes, dtypes.operand)

    def __iter__(self) -> Iterator[tuple[str, Function]]:
        """The functions, each with its name."""
        for name in dir(self):
            if not name.startswith("_"):
                yield name, getattr(self, name)

    def _kind(self, x: object) -> int:
        return kind_of(self._dtypes.dtype_name(x))

    def _flat(self, x: Tensor) -> Tensor:
        return self._raw["reshape"](x, (-1,))

    def _sliced(self, x: Tensor, axis: int, part: slice) -> Tensor:
        """The part of the tensor along an axis."""
        return self._dtypes.sliced(x, (*(slice(None),) * axis, part))

    def _several(self, name: str, x: Tensor, *options: object) -> tuple[Tensor, ...]:
        """The results of an operation that has several."""
        results: Any = self._raw[name](x, *options)
        return tuple(results)

    def _kept(self, x: Tensor, name: str | None) -> Tensor:
        """The tensor, converted back to that dtype if an operation changed it."""
        if self._dtypes.dtype_name(x) == name:
            return x
        return self._dtypes.cast(x, name)

    def _real(self, x: Tensor) -> Tensor:
        """The tensor; integers and booleans become floats."""
        if self._kind(x) <= WHOLE:
            return self._dtypes.cast(x, FLOAT)
        return x

    def _wide(self, x: Tensor, dtype: NativeDtype) -> Tensor:
        """The tensor in the dtype in which it is added up.

        ``dtype`` if that is given.
        """
        if dtype is not None:
            return self._dtypes.cast(x, dtype)
        name = self._dtypes.dtype_name(x)
        if kind_of(name) > WHOLE:
            return x
        if name in _UNSIGNED and self._dtypes.dtype(UNSIGNED) is not None:
            return self._dtypes.cast(x, UNSIGNED)
        return self._dtypes.cast(x, INTEGER)

    def _truth(self, x: Operand, like: Any = None) -> Tensor:
        """The tensor, or Python's number beside the tensor ``like``, as booleans."""
        name = self._dtypes.dtype_name(x)
        if name is None:
            x = self._dtypes.number(bool(x), "bool", like)
        elif kind_of(name) == COMPLEX:
            x = self._f["not_equal"](x, 0)  # frameworks convert the real part alone
        elif name != "bool":
            x = self._dtypes.cast(x, "bool")
        truth: Tensor = x
        return truth

    def _number(self, value: complex, like: Tensor) -> Tensor:
        """A tensor of one number, in the dtype of another tensor."""
        return self._dtypes.number(value, str(self._dtypes.dtype_name(like)), like)


class DataTypes(Operations):
    """The standard's functions of dtypes."""

    def isdtype(self, dtype: NativeDtype, kind: Any) -> bool:
        if isinstance(kind, tuple):
            return any(self.isdtype(dtype, option) for option in kind)
        if not isinstance(kind, str):
            return bool(dtype == kind)
        one_of(kind, tuple(_OF_KIND), "kind")
        return self._dtypes.name_of(dtype) in _OF_KIND[kind]

    def finfo(self, type: Tensor | NativeDtype, /) -> FloatInfo:
        name = _real_part_of(self._named(type))
        if name not in _FORMATS:
            raise ArgumentTypeError(
                f"{name} is not a floating-point dtype; iinfo knows the integers"
            )
        digits, exponent = _FORMATS[name]
        eps = 2.0 ** (1 - digits)
        smallest = 2.0 ** (2 - exponent)
        largest = (2.0 - eps) * 2.0 ** (exponent - 1)
        return FloatInfo(bits_of(name), eps, largest, -largest, smallest, self._dtypes.dtype(name))

    def iinfo(self, type: Tensor | NativeDtype, /) -> IntInfo:
        name = self._named(type)
        if kind_of(name) != WHOLE:
            raise ArgumentTypeError(
                f"{name} is not an integer dtype; finfo knows the floating-point ones"
            )
        bits = bits_of(name)
        least = 0 if name in _UNSIGNED else -(2 ** (bits - 1))
        largest = least + 2**bits - 1
        return IntInfo(bits, largest, least, self._dtypes.dtype(name))

    def result_type(self, *arrays_and_dtypes: Operand | NativeDtype) -> NativeDtype:
        number_types = tuple(kind for kind, _ in _LOWEST)
        numbers = [_lowest(x) for x in arrays_and_dtypes if isinstance(x, number_types)]
        names = [self._named(x) for x in arrays_and_dtypes if not isinstance(x, number_types)]
        if not names:
            raise ArgumentError("result_type needs a tensor or a dtype; give one")
        result = common(*names)
        higher = [name for name in numbers if kind_of(result) < kind_of(name)]
        return self._dtypes.dtype(common(result, *higher))

    def can_cast(self, from_: Tensor | NativeDtype, to: NativeDtype, /) -> bool:
        old = self._named(from_)
        new = self._named(to)
        if kind_of(old) == WHOLE and kind_of(new) >= REAL:
            real = _real_part_of(new)
            significand_bits = _FORMATS[real][0]
            return bits_of(old) < significand_bits or real == "float64"
        try:
            return common(old, new) == new
        except ArgumentError:
            return False

    def _named(self, x: Tensor | NativeDtype) -> str:
        """The name of a dtype, or of a tensor's dtype."""
        return self._dtypes.dtype_name(x) or self._dtypes.name_of(x)


def _real_part_of(name: str) -> str:
    """The dtype of a complex number's real part.

    Another dtype is returned as it is.
    """
    if name in COMPLEXES:
        return REALS[COMPLEXES.index(name)]
    return name
