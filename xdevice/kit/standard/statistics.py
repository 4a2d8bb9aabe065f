"""Functions along axes: spread, running sums and products, differences."""

from typing import Any

from xdevice.errors import ArgumentError
from xdevice.kit.standard.axes import axes_of, one_axis, size_of
from xdevice.kit.standard.promotion import Operations, real, truth, wide


class Statistics(Operations):
    def var(self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        x = real(x, self._dtypes)
        apart = self._f["subtract"](x, self._f["mean"](x, axis=axis, keepdims=True))
        found = self._f["mean"](self._f["multiply"](apart, apart), axis=axis, keepdims=keepdims)
        if not correction:
            return found
        n = size_of(x.shape, axes_of(axis, len(x.shape)))
        return self._f["multiply"](found, n / (n - correction) if n > correction else float("inf"))

    def std(self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        return self._f["sqrt"](self.var(x, axis=axis, correction=correction, keepdims=keepdims))

    def count_nonzero(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self._f["sum"](truth(x, self._dtypes), axis=axis, keepdims=keepdims)

    def cumulative_sum(self, x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
        return self._running("cumulative_sum", x, axis, dtype, 0 if include_initial else None)

    def cumulative_prod(self, x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
        return self._running("cumulative_prod", x, axis, dtype, 1 if include_initial else None)

    def _running(self, name: str, x: Any, axis: int | None, dtype: Any, initial: int | None) -> Any:
        along = one_axis(x, axis, name)
        x = wide(x, dtype, self._dtypes)
        found = self._kept(self._raw[name](x, along), self._dtypes.dtype_name(x))
        if initial is None:
            return found
        shape = [1 if i == along else n for i, n in enumerate(x.shape)]
        number = self._dtypes.number(initial, str(self._dtypes.dtype_name(found)), found)
        return self._raw["concat"]([self._raw["broadcast_to"](number, tuple(shape)), found], along)

    def diff(self, x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
        if n < 0:
            raise ArgumentError(f"diff of order n={n!r}; give 0 or more")
        along = one_axis(x, axis, "diff")
        if n == 0:
            return x
        parts = self._promote(*(part for part in (prepend, x, append) if part is not None))
        x = self._raw["concat"](parts, along) if len(parts) > 1 else parts[0]
        for _ in range(min(n, x.shape[along])):
            x = self._step(x, along)
        return x

    def _step(self, x: Any, axis: int) -> Any:
        """The difference between each slice and the one before it."""
        front, last = (slice(None),) * axis, x.shape[axis] - 1
        later, earlier = (x[(*front, slice(start, start + last))] for start in (1, 0))
        apart = self._f["not_equal"] if self._dtypes.dtype_name(x) == "bool" else self._f["subtract"]
        return apart(later, earlier)
