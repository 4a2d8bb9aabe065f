"""The array API standard's functions of dtypes."""

# a field may be any framework's dtype
# pyright: reportUntypedNamedTuple=false

from collections import namedtuple
from typing import Any

from xdevice.errors import ArgumentError, ArgumentTypeError
from xdevice.kit.standard.axes import one_of
from xdevice.kit.standard.promotion import (
    COMPLEX,
    COMPLEX_NAMES,
    REAL,
    REAL_NAMES,
    SIGNED_NAMES,
    UNSIGNED_NAMES,
    WHOLE,
    Operations,
    bits_of,
    common,
    kind_of,
    lowest,
)

KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": SIGNED_NAMES,
    "unsigned integer": UNSIGNED_NAMES,
    "integral": SIGNED_NAMES + UNSIGNED_NAMES,
    "real floating": ("bfloat16", "float16", *REAL_NAMES),
    "complex floating": COMPLEX_NAMES,
    "numeric": (*SIGNED_NAMES, *UNSIGNED_NAMES, "bfloat16", "float16", *REAL_NAMES, *COMPLEX_NAMES),
}
"""The standard's kinds of dtypes, and half precision with the real ones."""

_FORMATS = {"bfloat16": (8, 128), "float16": (11, 16), "float32": (24, 128), "float64": (53, 1024)}
"""IEEE 754: the bits of a number's significand, and the exponent that the largest number stays below."""


FloatInfo = namedtuple("FloatInfo", "bits eps max min smallest_normal dtype")
IntInfo = namedtuple("IntInfo", "bits max min dtype")


class DataTypes(Operations):
    def isdtype(self, dtype: Any, kind: Any) -> bool:
        if isinstance(kind, tuple):
            return any(self.isdtype(dtype, each) for each in kind)
        if not isinstance(kind, str):
            return bool(dtype == kind)
        one_of(kind, tuple(KINDS), "kind")
        return self._dtypes.name_of(dtype) in KINDS[kind]

    def finfo(self, type: Any, /) -> FloatInfo:
        name = self._named(type)
        if kind_of(name) == COMPLEX:
            name = REAL_NAMES[COMPLEX_NAMES.index(name)]
        if name not in _FORMATS:
            raise ArgumentTypeError(f"{name} is not a floating-point dtype; iinfo knows the integers")
        digits, exponent = _FORMATS[name]
        eps, smallest = 2.0 ** (1 - digits), 2.0 ** (2 - exponent)
        largest = (2.0 - eps) * 2.0 ** (exponent - 1)
        return FloatInfo(bits_of(name), eps, largest, -largest, smallest, self._dtypes.dtype(name))

    def iinfo(self, type: Any, /) -> IntInfo:
        name = self._named(type)
        if kind_of(name) != WHOLE:
            raise ArgumentTypeError(f"{name} is not an integer dtype; finfo knows the floating-point ones")
        bits, dtype = bits_of(name), self._dtypes.dtype(name)
        least = 0 if name in UNSIGNED_NAMES else -(2 ** (bits - 1))
        return IntInfo(bits, 2**bits - 1 + least, least, dtype)

    def result_type(self, *arrays_and_dtypes: Any) -> Any:
        numbers = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float, complex))]
        names = [self._named(x) for x in arrays_and_dtypes if not isinstance(x, (bool, int, float, complex))]
        if not names:
            raise ArgumentError("result_type needs a tensor or a dtype; give one")
        found = common(*names)
        for name in map(lowest, numbers):
            found = common(found, name) if kind_of(found) < kind_of(name) else found
        return self._dtypes.dtype(found)

    def can_cast(self, from_: Any, to: Any, /) -> bool:
        given, wanted = self._named(from_), self._named(to)
        if kind_of(given) == WHOLE and kind_of(wanted) >= REAL:  # exact, if the significand has as many bits
            part = wanted if kind_of(wanted) == REAL else REAL_NAMES[COMPLEX_NAMES.index(wanted)]
            return bits_of(given) < _FORMATS[part][0] or part == "float64"
        try:
            return common(given, wanted) == wanted
        except ArgumentError:
            return False

    def _named(self, x: Any) -> str:
        """The name of a dtype, or of a tensor's."""
        return self._dtypes.dtype_name(x) or self._dtypes.name_of(x)
