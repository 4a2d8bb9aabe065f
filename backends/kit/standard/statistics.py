"""The standard's variances, running sums and differences along axes."""

from xdevice.backends.kit.standard.axes import Axes, Tensor, axes_of, one_axis, size_of
from xdevice.backends.kit.standard.dtypes import Operations
from xdevice.contract import NativeDtype
from xdevice.errors import ArgumentError


class Statistics(Operations):
    def var(
        self, x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
    ) -> Tensor:
        x = self._real(x)
        deviation = self._f["subtract"](x, self._f["mean"](x, axis=axis, keepdims=True))
        squared = self._f["multiply"](deviation, deviation)
        variance = self._f["mean"](squared, axis=axis, keepdims=keepdims)
        if not correction:
            return variance
        n = size_of(x.shape, axes_of(axis, len(x.shape)))
        factor = float("inf")
        if n > correction:
            factor = n / (n - correction)
        return self._f["multiply"](variance, factor)

    def std(
        self, x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
    ) -> Tensor:
        return self._f["sqrt"](self.var(x, axis=axis, correction=correction, keepdims=keepdims))

    def count_nonzero(self, x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        return self._f["sum"](self._truth(x), axis=axis, keepdims=keepdims)

    def cumulative_sum(
        self,
        x: Tensor,
        /,
        *,
        axis: int | None = None,
        dtype: NativeDtype = None,
        include_initial: bool = False,
    ) -> Tensor:
        initial = 0 if include_initial else None
        return self._running("cumulative_sum", x, axis, dtype, initial)

    def cumulative_prod(
        self,
        x: Tensor,
        /,
        *,
        axis: int | None = None,
        dtype: NativeDtype = None,
        include_initial: bool = False,
    ) -> Tensor:
        initial = 1 if include_initial else None
        return self._running("cumulative_prod", x, axis, dtype, initial)

    def _running(
        self, name: str, x: Tensor, axis: int | None, dtype: NativeDtype, initial: int | None
    ) -> Tensor:
        """The running sum or product, after the initial number if any."""
        along = one_axis(x, axis, name)
        x = self._wide(x, dtype)
        running = self._kept(self._raw[name](x, along), self._dtypes.dtype_name(x))
        if initial is None:
            return running
        shape = list(x.shape)
        shape[along] = 1
        first = self._raw["broadcast_to"](self._number(initial, running), tuple(shape))
        return self._raw["concat"]([first, running], along)

    def diff(
        self,
        x: Tensor,
        /,
        *,
        axis: int = -1,
        n: int = 1,
        prepend: Tensor | None = None,
        append: Tensor | None = None,
    ) -> Tensor:
        if n < 0:
            raise ArgumentError(f"diff of order n={n!r}; give 0 or more")
        along = one_axis(x, axis, "diff")
        if n == 0:
            return x
        parts = [part for part in (prepend, x, append) if part is not None]
        if len(parts) > 1:
            x = self._raw["concat"](self._promote(*parts), along)
        difference = self._f["subtract"]
        if self._dtypes.dtype_name(x) == "bool":
            difference = self._f["not_equal"]
        for _ in range(min(n, x.shape[along])):
            last = x.shape[along] - 1
            later = self._sliced(x, along, slice(1, 1 + last))
            x = difference(later, self._sliced(x, along, slice(0, last)))
        return x
