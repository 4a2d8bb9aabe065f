"""Values that are close: tolerances by dtype, and the first wrong index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

# As in `torch.testing.assert_close`: relative, absolute.
TOLERANCES = {
    "float8": (0.25, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float16": (1e-3, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex128": (1e-7, 1e-7),
}


class Tolerance(NamedTuple):
    """How far values may differ, and the dtype that it is for."""

    rtol: float
    atol: float
    equal_nan: bool
    dtype: str

    @classmethod
    def of(
        cls, dtypes: list[str], rtol: float | None, atol: float | None, equal_nan: bool
    ) -> Tolerance:
        """The given tolerance, or that of the less precise dtype; of float64 for plain numbers."""
        by_dtype = [(_by_dtype(name), name) for name in dtypes or ["float64"]]
        (usual_rtol, usual_atol), dtype = max(by_dtype)
        if atol is None:
            atol = usual_atol if rtol is None else 0.0
        return cls(usual_rtol if rtol is None else rtol, atol, equal_nan, dtype)

    def __str__(self) -> str:
        return f"rtol={self.rtol:g}, atol={self.atol:g} ({self.dtype})"


def _by_dtype(name: str) -> tuple[float, float]:
    if name.startswith("float8"):
        name = "float8"
    return TOLERANCES.get(name, (0.0, 0.0))


def is_number_or_list(obj: Any) -> bool:
    """Whether it is a number of Python, or a list or tuple of numbers, nested or not."""
    if isinstance(obj, (bool, int, float, complex)):
        return True
    return isinstance(obj, (list, tuple)) and all(map(is_number_or_list, obj))


def difference(
    actual: Array, expected: Array, tolerance: Tolerance, check_shape: bool
) -> list[str]:
    """Lines that say where two arrays differ; none if they are close."""
    import numpy as np

    if actual.shape != expected.shape:
        if check_shape:
            return [f"shape: {actual.shape}, expected {expected.shape}"]
        try:
            actual, expected = np.broadcast_arrays(actual, expected)
        except ValueError:
            return [f"shape: {actual.shape} cannot be broadcast with {expected.shape}"]
    wrong = ~_close(actual, expected, tolerance)
    number = int(wrong.sum())
    if not number:
        return []
    first = _index(wrong, int(np.argmax(wrong)))
    count = f"{number} of {wrong.size} differ"
    return [
        f"values: {count}, {_at(first)}: {actual[first]!s}, expected {expected[first]!s}",
        *_largest(actual, expected, wrong),
        f"tolerance: {tolerance}",
    ]


def _at(index: tuple[int, ...]) -> str:
    if not index:
        return "in the only one"
    return f"the first at [{', '.join(map(str, index))}]"


def _index(of: Array, flat: int) -> tuple[int, ...]:
    import numpy as np

    return tuple(map(int, np.unravel_index(flat, of.shape)))


def _close(actual: Array, expected: Array, tolerance: Tolerance) -> Any:
    """Where two arrays of one shape are close, as an array of bools."""
    import numpy as np

    equal = np.asarray(actual == expected)
    if not _is_inexact(actual, expected) and not (tolerance.rtol or tolerance.atol):
        return equal
    if {actual.dtype.kind, expected.dtype.kind} - set("biufc"):
        return equal
    a, e = _wide(actual), _wide(expected)
    with np.errstate(all="ignore"):
        near = np.abs(a - e) <= tolerance.atol + tolerance.rtol * np.abs(e)
    close = equal | (near & np.isfinite(a) & np.isfinite(e))
    if tolerance.equal_nan:
        close |= np.isnan(a) & np.isnan(e)
    return close


def _is_inexact(*arrays: Array) -> bool:
    return any(array.dtype.kind not in "biu" for array in arrays)


def _wide(array: Array) -> Any:
    """The values in a float64 or complex128, where differences do not overflow."""
    return array.astype("complex128" if array.dtype.kind == "c" else "float64")


def _largest(actual: Array, expected: Array, wrong: Any) -> list[str]:
    """The largest difference of wrong values, where it is a number."""
    import numpy as np

    if {actual.dtype.kind, expected.dtype.kind} - set("iufc"):
        return []
    with np.errstate(all="ignore"):
        apart = np.abs(_wide(actual) - _wide(expected))
    apart = np.where(wrong & np.isfinite(apart), apart, -1.0)
    largest = int(np.argmax(apart))
    index = _index(apart, largest)
    if apart[index] <= 0:  # or too small for a float64
        return []
    place = f" at [{', '.join(map(str, index))}]" if index else ""
    return [f"largest difference: {apart[index]:g}{place}"]
