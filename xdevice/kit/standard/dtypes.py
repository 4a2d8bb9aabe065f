"""Dtypes by the array API standard's rules: which one a result has, and the standard's functions about them."""

# a field may be any framework's dtype, and the body of a Protocol's method is its docstring
# pyright: reportUntypedNamedTuple=false, reportReturnType=false

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np

from xdevice.errors import ArgumentError, ArgumentTypeError, did_you_mean


class Dtypes(Protocol):
    """How a framework names and makes its numbers: an adapter's ``maths`` module has these."""

    def dtype(self, name: str) -> Any:
        """The framework's dtype of that NumPy name, or ``None`` if it has none."""

    def name_of(self, dtype: Any) -> str:
        """NumPy's name for one of the framework's dtypes."""

    def dtype_name(self, x: Any) -> str | None:
        """NumPy's name for the dtype of a tensor; ``None`` for anything else."""

    def cast(self, x: Any, dtype: Any) -> Any:
        """The tensor in another dtype, on its device; gradients flow through."""

    def number(self, value: Any, name: str, like: Any) -> Any:
        """A tensor of one number, on the device of another tensor."""

    def operand(self, value: Any, name: str, like: Any) -> Any:
        """The same for an operation on two tensors, if some take a plain number at less cost."""


FLOAT, INTEGER, UNSIGNED = (
    "float32",
    "int64",
    "uint64",
)  # what integers become in a function of real numbers, in sums
BOOL, WHOLE, REAL, COMPLEX = range(
    4
)  # kinds of numbers: the highest among several operands decides the result's dtype

_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
REALS, COMPLEXES = ("float32", "float64"), ("complex64", "complex128")
_FLOATS = ("bfloat16", "float16", *REALS)  # half precision too, which the standard has not

_KINDS = {
    "bool": BOOL,
    **dict.fromkeys(_SIGNED + _UNSIGNED, WHOLE),
    **dict.fromkeys(COMPLEXES, COMPLEX),
}
_WIDER = {
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",
}  # where a framework lacks one
_LOWEST = {
    bool: "bool",
    int: INTEGER,
    float: FLOAT,
    complex: "complex64",
}  # the dtypes of Python's numbers
_OF_KIND: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _FLOATS,
    "complex floating": COMPLEXES,
    "numeric": (*_SIGNED, *_UNSIGNED, *_FLOATS, *COMPLEXES),
}
# IEEE 754: the bits of a number's significand, and the exponent that the largest number stays below
_FORMATS = {"bfloat16": (8, 128), "float16": (11, 16), "float32": (24, 128), "float64": (53, 1024)}

FloatInfo = namedtuple("FloatInfo", "bits eps max min smallest_normal dtype")
IntInfo = namedtuple("IntInfo", "bits max min dtype")


def kind_of(name: str | None) -> int:
    """The kind of a dtype: a float, unless it is known as something else."""
    return _KINDS.get(str(name), REAL)


def bits_of(name: str) -> int:
    return 8 if name == "bool" else int(name.strip("abcdefghijklmnopqrstuvwxyz"))


def one_of(value: Any, options: tuple[Any, ...], argument: str) -> None:
    if value not in options:
        listed = ", ".join(map(repr, options))
        hint = did_you_mean(
            value, [option for option in options if isinstance(option, str)], "give one of them"
        )
        raise ArgumentError(f"{argument}={value!r} is not one of {listed}; {hint}")


@cache
def common(*names: str) -> str:
    """The dtype of a result: among dtypes of one kind one that holds both; of several kinds only the highest counts."""
    highest = max(map(kind_of, names))
    counted = sorted({name for name in names if kind_of(name) == highest}, key=bits_of)
    if highest == COMPLEX:
        return "complex128" if {"complex128", "float64"} & set(names) else "complex64"
    if highest == REAL:
        return "float32" if {"bfloat16", "float16"} == set(counted) else counted[-1]
    found = np.result_type(*counted).name
    if kind_of(found) > WHOLE:  # a float, as NumPy has it
        signed = [name for name in counted if name not in _UNSIGNED][-1]
        raise ArgumentError(
            f"no integer dtype holds both uint64 and {signed}; convert one of them with astype"
        )
    return found


def _promotion(dtypes: Dtypes, number: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A function that brings tensors and Python's numbers to one dtype; the numbers follow the tensors."""
    name_of, cast = dtypes.dtype_name, dtypes.cast

    @cache
    def joint(*names: str) -> str:
        found = common(*names)
        return found if dtypes.dtype(found) is not None else _WIDER.get(found, found)

    def promote(*operands: Any, least: str | None = None) -> list[Any]:
        names = [name_of(operand) for operand in operands]
        if least is None and names[0] is not None and names.count(names[0]) == len(names):
            return list(operands)
        tensors = [
            operand for operand, name in zip(operands, names, strict=True) if name is not None
        ]
        if not tensors:
            raise ArgumentError(f"{operands!r} has no tensor; give one, asarray makes it")
        target, like = joint(*filter(None, names)), tensors[0]
        for lowest in (_lowest(o) for o, name in zip(operands, names, strict=True) if name is None):
            target = joint(target, lowest) if kind_of(target) < kind_of(lowest) else target
        target = least if least is not None and kind_of(target) < kind_of(least) else target
        if kind_of(target) == COMPLEX and dtypes.dtype(target) is None:
            raise ArgumentError(
                "the framework has no dtype for a complex number; give its real part"
            )
        return [
            number(o, target, like) if name is None else o if name == target else cast(o, target)
            for o, name in zip(operands, names, strict=True)
        ]

    return promote


def _lowest(value: Any) -> str:
    """The narrowest dtype for one of Python's numbers."""
    for kind, name in _LOWEST.items():
        if isinstance(value, kind):
            return name
    raise ArgumentError(
        f"a {type(value).__name__} is neither a tensor nor a number; asarray makes a tensor of it"
    )


class Operations:
    """A framework's ``raw`` operations and dtypes, and the functions ``f`` that need only a dtype or axis adjusted."""

    def __init__(self, raw: Mapping[str, Any], f: Mapping[str, Any], dtypes: Dtypes) -> None:
        self._raw, self._f, self._dtypes = raw, f, dtypes
        self._promote, self._operands = (
            _promotion(dtypes, number) for number in (dtypes.number, dtypes.operand)
        )

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """The functions, each with its name."""
        return ((name, getattr(self, name)) for name in dir(self) if not name.startswith("_"))

    def _kind(self, x: Any) -> int:
        return kind_of(self._dtypes.dtype_name(x))

    def _kept(self, x: Any, name: str | None) -> Any:
        """The tensor, converted back to that dtype if an operation changed it."""
        return x if self._dtypes.dtype_name(x) == name else self._dtypes.cast(x, name)

    def _real(self, x: Any) -> Any:
        """The tensor, in floats if it was of integers or booleans."""
        return self._dtypes.cast(x, FLOAT) if self._kind(x) <= WHOLE else x

    def _wide(self, x: Any, dtype: Any) -> Any:
        """The tensor in the dtype in which it is summed."""
        name = self._dtypes.dtype_name(x)
        if dtype is None and kind_of(name) > WHOLE:
            return x
        unsigned = name in _UNSIGNED and self._dtypes.dtype(UNSIGNED) is not None
        return self._dtypes.cast(
            x, dtype if dtype is not None else UNSIGNED if unsigned else INTEGER
        )

    def _truth(self, x: Any, like: Any = None) -> Any:
        """The tensor, or Python's number, as booleans."""
        name = self._dtypes.dtype_name(x)
        if name is None:
            return self._dtypes.number(bool(x), "bool", like)
        return x if name == "bool" else self._dtypes.cast(x, "bool")

    def _number(self, value: Any, like: Any) -> Any:
        """A tensor of one number, in the dtype of another tensor."""
        return self._dtypes.number(value, str(self._dtypes.dtype_name(like)), like)


class DataTypes(Operations):
    """The standard's functions of dtypes."""

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        if isinstance(kind, tuple):
            return any(self.isdtype(dtype, each) for each in kind)
        if not isinstance(kind, str):
            return bool(dtype == kind)
        one_of(kind, tuple(_OF_KIND), "kind")
        return self._dtypes.name_of(dtype) in _OF_KIND[kind]

    def finfo(self, type: Any, /) -> FloatInfo:
        name = _part(self._named(type))
        if name not in _FORMATS:
            raise ArgumentTypeError(
                f"{name} is not a floating-point dtype; iinfo knows the integers"
            )
        digits, exponent = _FORMATS[name]
        eps, smallest = 2.0 ** (1 - digits), 2.0 ** (2 - exponent)
        largest = (2.0 - eps) * 2.0 ** (exponent - 1)
        return FloatInfo(bits_of(name), eps, largest, -largest, smallest, self._dtypes.dtype(name))

    def iinfo(self, type: Any, /) -> IntInfo:
        name = self._named(type)
        if kind_of(name) != WHOLE:
            raise ArgumentTypeError(
                f"{name} is not an integer dtype; finfo knows the floating-point ones"
            )
        bits = bits_of(name)
        least = 0 if name in _UNSIGNED else -(2 ** (bits - 1))
        return IntInfo(bits, 2**bits - 1 + least, least, self._dtypes.dtype(name))

    def result_type(self, *arrays_and_dtypes: Any) -> Any:
        numbers = [_lowest(x) for x in arrays_and_dtypes if isinstance(x, tuple(_LOWEST))]
        names = [self._named(x) for x in arrays_and_dtypes if not isinstance(x, tuple(_LOWEST))]
        if not names:
            raise ArgumentError("result_type needs a tensor or a dtype; give one")
        found = common(*names)
        return self._dtypes.dtype(
            common(found, *(name for name in numbers if kind_of(found) < kind_of(name)))
        )

    def can_cast(self, from_: Any, to: Any, /) -> bool:
        given, wanted = self._named(from_), self._named(to)
        if (
            kind_of(given) == WHOLE and kind_of(wanted) >= REAL
        ):  # exact, if the significand has as many bits
            return bits_of(given) < _FORMATS[_part(wanted)][0] or _part(wanted) == "float64"
        try:
            return common(given, wanted) == wanted
        except ArgumentError:
            return False

    def _named(self, x: Any) -> str:
        """The name of a dtype, or of a tensor's."""
        return self._dtypes.dtype_name(x) or self._dtypes.name_of(x)


def _part(name: str) -> str:
    """The dtype of a complex number's parts; any other as it is."""
    return REALS[COMPLEXES.index(name)] if name in COMPLEXES else name
