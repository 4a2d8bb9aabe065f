"""Operations for every dtype, made of operations for only some dtypes."""

from functools import wraps
from typing import Any

from xdevice.backends.kit.standard.axes import Functions
from xdevice.backends.kit.standard.dtypes import Dtypes, Operand, bits_of
from xdevice.contract import Function, Tensor
from xdevice.errors import NotSupportedError

# The dtypes that are tried if an operation does not support a dtype. Each can
# hold all of its values, except float64, the last resort, which holds integers
# up to 2**53.
_WIDER = {
    "bool": ("uint8", "int32", "int64"),
    **dict.fromkeys(("uint8", "int8", "int16", "uint16"), ("int32", "int64", "float64")),
    **dict.fromkeys(("int32", "uint32"), ("int64", "float64")),
    "int64": ("float64",),
    "float16": ("float32",),
    "bfloat16": ("float32",),
}

# Operations that return indices or booleans.
_WITH_OTHER_DTYPE = """
    all any argmax argmin argsort equal greater greater_equal isfinite isinf isnan less less_equal
    nonzero not_equal searchsorted signbit
"""
# Operations whose second operand is an array of indices.
_INDEXED = ("take", "take_along_axis")


class Widening:
    """A framework's operations, each for every dtype.

    An operation refuses a dtype by one of the ``errors`` with some of the
    ``words`` in its message. It is then tried with wider dtypes, and the
    result is converted back. The dtype that works is remembered. If none
    works, the error names the operation and the dtype.
    """

    def __init__(
        self,
        backend: str,
        dtypes: Dtypes,
        errors: tuple[type[Exception], ...],
        words: tuple[str, ...],
    ) -> None:
        self._backend = backend
        self._dtypes = dtypes
        self._errors = errors
        self._words = words

    def all(self, raw: Functions) -> dict[str, Function]:
        return {name: self._widened(name, op) for name, op in raw.items()}

    def _widened(self, name: str, op: Function) -> Function:
        replacements: dict[str, str] = {}  # refused dtypes, with the wider one that works
        first = 1 if name == "where" else 0  # the index of the first operand of that dtype
        is_converted_back = name not in _WITH_OTHER_DTYPE.split()

        def widened(
            wider: str, dtype: str, args: tuple[Operand, ...], options: dict[str, Any]
        ) -> Tensor:
            end = first + 1 if name in _INDEXED else len(args)
            operands = args[first:end]
            wide_operands = [self._converted(x, dtype, wider) for x in operands]
            result = op(*args[:first], *wide_operands, *args[end:], **options)
            if not is_converted_back:
                return result
            return self._converted(result, wider, dtype)

        @wraps(op)
        def call(*args: Operand, **options: Any) -> Tensor:
            x = args[first]
            dtype = self._dtypes.dtype_name(x[0] if type(x) is list else x)
            if dtype in replacements:
                return widened(replacements[dtype], dtype, args, options)
            try:
                return op(*args, **options)
            except Exception as error:
                if dtype is None or not self._is_refusal(error):
                    raise
                refusal = error
            for wider in _WIDER.get(dtype, ()):
                try:
                    result = widened(wider, dtype, args, options)
                except Exception as error:
                    if not self._is_refusal(error):
                        raise
                else:
                    replacements[dtype] = wider
                    return result
            wide = "float64"
            if bits_of(dtype) < bits_of("int64"):
                wide = "float32"
            hint = f"convert the tensor, for example with astype(x, xp.{wide})"
            raise NotSupportedError(
                f"{self._backend} has no {name} of {dtype}; {hint}"
            ) from refusal

        call.__name__ = call.__qualname__ = name
        return call

    def _is_refusal(self, error: Exception) -> bool:
        if not isinstance(error, self._errors):
            return False
        message = str(error)
        return any(words in message for words in self._words)

    def _converted(self, x: Operand, old: str, new: str) -> Operand:
        """The tensor of dtype ``old``, or each in a list, in dtype ``new``.

        Anything else is returned as it is.
        """
        if isinstance(x, (list, tuple)) and any(map(self._dtypes.dtype_name, x)):
            return [self._converted(item, old, new) for item in x]
        if self._dtypes.dtype_name(x) != old:
            return x
        return self._dtypes.cast(x, new)
