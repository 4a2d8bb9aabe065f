"""Integers and booleans of every width, in operations that a framework has for a few of them."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from xdevice.errors import NotSupportedError
from xdevice.kit.standard.dtypes import Dtypes, bits_of

# The dtypes tried in place of one that an operation does not take; each holds all of its values, but float64, the last
# resort, integers up to 2**53 only.
_LADDER = {
    "bool": ("uint8", "int32", "int64"),
    **dict.fromkeys(("uint8", "int8", "int16", "uint16"), ("int32", "int64", "float64")),
    **dict.fromkeys(("int32", "uint32"), ("int64", "float64")),
    "int64": ("float64",),
    "float16": ("float32",),
    "bfloat16": ("float32",),
}

# operations that return indices or booleans, and those whose second operand is an array of indices
_OTHER_RESULTS = (
    "all any argmax argmin argsort equal greater greater_equal isfinite isinf isnan less less_equal nonzero not_equal "
    "searchsorted signbit"
)
_INDEXED = ("take", "take_along_axis")


class Widening:
    """A framework's operations, each for every dtype.

    An operation that refuses a dtype, by one of the ``errors`` with some of the ``words``, is tried with wider ones,
    and its result has the first dtype again. Which one it took is remembered. If it takes none, the error names both.
    """

    def __init__(
        self,
        backend: str,
        dtypes: Dtypes,
        errors: tuple[type[Exception], ...],
        words: tuple[str, ...],
    ) -> None:
        self._backend, self._dtypes, self._errors, self._words = backend, dtypes, errors, words

    def all(self, raw: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        return {name: self._widened(name, op) for name, op in raw.items()}

    def _widened(self, name: str, op: Callable[..., Any]) -> Callable[..., Any]:
        taken: dict[str, str] = {}  # a dtype, and the one that the operation takes in place of it
        first, is_other = int(name == "where"), name in _OTHER_RESULTS.split()

        def within(wider: str, dtype: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            operands = args[first : first + 1] if name in _INDEXED else args[first:]
            given = (self._to(x, dtype, wider) for x in operands)
            found = op(*args[:first], *given, *args[first + len(operands) :], **options)
            return found if is_other else self._to(found, wider, dtype)

        @wraps(op)
        def call(*args: Any, **options: Any) -> Any:
            x = args[first]
            dtype = self._dtypes.dtype_name(x[0] if type(x) is list else x)
            if dtype in taken:
                return within(taken[dtype], dtype, args, options)
            try:
                return op(*args, **options)
            except Exception as error:
                if dtype is None or not self._refused(error):
                    raise
                refusal = error
            for wider in _LADDER.get(dtype, ()):
                try:
                    found = within(wider, dtype, args, options)
                except Exception as error:
                    if not self._refused(error):
                        raise
                else:
                    taken[dtype] = wider
                    return found
            wide = "float32" if bits_of(dtype) < bits_of("int64") else "float64"
            hint = f"convert the tensor, for example with astype(x, xp.{wide})"
            raise NotSupportedError(
                f"{self._backend} has no {name} of {dtype}; {hint}"
            ) from refusal

        call.__name__ = call.__qualname__ = name
        return call

    def _refused(self, error: Exception) -> bool:
        return isinstance(error, self._errors) and any(words in str(error) for words in self._words)

    def _to(self, x: Any, given: str, wanted: str) -> Any:
        """The tensor, or those in a list or tuple, in another dtype; anything else as it is."""
        if isinstance(x, (list, tuple)) and any(map(self._dtypes.dtype_name, x)):
            return [self._to(each, given, wanted) for each in x]
        return self._dtypes.cast(x, wanted) if self._dtypes.dtype_name(x) == given else x
