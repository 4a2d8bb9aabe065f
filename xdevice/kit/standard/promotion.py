"""Which dtype a result has, by the array API standard's rules."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

from xdevice.errors import ArgumentError


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


FLOAT, INTEGER, UNSIGNED = "float32", "int64", "uint64"
"""The dtypes that integers become in a function of real numbers, and in sums."""

BOOL, WHOLE, REAL, COMPLEX = range(4)
"""The kinds of numbers. The highest kind among several operands decides the dtype of the result."""

SIGNED_NAMES = ("int8", "int16", "int32", "int64")
UNSIGNED_NAMES = ("uint8", "uint16", "uint32", "uint64")
REAL_NAMES = ("float32", "float64")
COMPLEX_NAMES = ("complex64", "complex128")

_KINDS = {"bool": BOOL, **dict.fromkeys(SIGNED_NAMES + UNSIGNED_NAMES, WHOLE), **dict.fromkeys(COMPLEX_NAMES, COMPLEX)}
_WIDER = {"int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}  # where a framework lacks one


def kind_of(name: str | None) -> int:
    """The kind of a dtype: a float, unless it is known as something else."""
    return _KINDS.get(name, REAL) if name is not None else REAL


def bits_of(name: str) -> int:
    return 8 if name == "bool" else int(name.strip("abcdefghijklmnopqrstuvwxyz"))


@cache
def common(*names: str) -> str:
    """The dtype of a result: among dtypes of one kind one that holds both; of several kinds only the highest counts."""
    highest = max(kind_of(name) for name in names)
    counted = sorted({name for name in names if kind_of(name) == highest}, key=bits_of)
    if highest == COMPLEX:
        reals = [name for name in names if kind_of(name) == REAL]
        return "complex128" if "complex128" in counted or "float64" in reals else "complex64"
    if highest == WHOLE:
        return _integer(counted)
    return "float32" if {"bfloat16", "float16"} == set(counted) else counted[-1]


def _integer(names: list[str]) -> str:
    """An integer dtype that holds all of these, which are in order of their bits."""
    unsigned = [name for name in names if name in UNSIGNED_NAMES]
    if len(unsigned) in (0, len(names)):
        return names[-1]
    signed = [name for name in names if name not in unsigned]
    bits = max(bits_of(signed[-1]), 2 * bits_of(unsigned[-1]))
    if bits > bits_of(INTEGER):
        raise ArgumentError(f"no integer dtype holds both uint64 and {signed[-1]}; convert one of them with astype")
    return f"int{bits}"


def promotion(dtypes: Dtypes, number: Callable[..., Any]) -> Callable[..., list[Any]]:
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
        found = [name for name in names if name is not None]
        if not found:
            raise ArgumentError(f"{operands!r} has no tensor; give one, asarray makes it")
        target = joint(*found)
        for value, name in zip(operands, names, strict=True):
            if name is None and kind_of(target) < kind_of(lowest(value)):
                target = joint(target, lowest(value))
        if least is not None and kind_of(target) < kind_of(least):
            target = least
        like = next(o for o, name in zip(operands, names, strict=True) if name is not None)
        return [
            number(o, target, like) if name is None else o if name == target else cast(o, target)
            for o, name in zip(operands, names, strict=True)
        ]

    return promote


def real(x: Any, dtypes: Dtypes) -> Any:
    """The tensor, in floats if it was of integers or booleans."""
    return dtypes.cast(x, FLOAT) if kind_of(dtypes.dtype_name(x)) <= WHOLE else x


def wide(x: Any, dtype: Any, dtypes: Dtypes) -> Any:
    """The tensor in the dtype in which it is summed."""
    if dtype is not None:
        return dtypes.cast(x, dtype)
    name = dtypes.dtype_name(x)
    if kind_of(name) > WHOLE:
        return x
    unsigned = name in UNSIGNED_NAMES and dtypes.dtype(UNSIGNED) is not None
    return dtypes.cast(x, UNSIGNED if unsigned else INTEGER)


def truth(x: Any, dtypes: Dtypes, like: Any = None) -> Any:
    """The tensor, or Python's number, as booleans."""
    name = dtypes.dtype_name(x)
    if name is None:
        return dtypes.number(bool(x), "bool", like)
    return x if name == "bool" else dtypes.cast(x, "bool")


def lowest(value: Any) -> str:
    """The narrowest dtype for one of Python's numbers."""
    for kind, name in ((bool, "bool"), (int, INTEGER), (float, FLOAT), (complex, "complex64")):
        if isinstance(value, kind):
            return name
    raise ArgumentError(f"a {type(value).__name__} is neither a tensor nor a number; asarray makes a tensor of it")


class Operations:
    """A framework's operations and dtypes, for the classes that compose functions of them.

    ``raw``: the framework's operations; ``f``: the functions that only need a dtype or an axis adjusted.
    """

    def __init__(self, raw: Mapping[str, Any], f: Mapping[str, Any], dtypes: Dtypes) -> None:
        self._raw, self._f, self._dtypes, self._promote = raw, f, dtypes, promotion(dtypes, dtypes.number)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """The functions, each with its name."""
        return ((name, getattr(self, name)) for name in dir(self) if not name.startswith("_"))

    def _kept(self, x: Any, name: str | None) -> Any:
        """The tensor, converted back to that dtype if an operation changed it."""
        return x if self._dtypes.dtype_name(x) == name else self._dtypes.cast(x, name)
