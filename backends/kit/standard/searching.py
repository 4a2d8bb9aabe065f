"""The standard's functions that index, search and sort."""

from collections.abc import Callable

from xdevice.backends.kit.standard.axes import Tensor, axes_of, least_axes, one_axis
from xdevice.backends.kit.standard.dtypes import INTEGER, WHOLE, Operations, one_of


class Searching(Operations):
    def take(self, x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
        return self._raw["take"](x, self._indices(indices), one_axis(x, axis, "take"))

    def take_along_axis(self, x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
        (along,) = axes_of(axis, len(x.shape))
        return self._raw["take_along_axis"](x, self._indices(indices), along)

    def _indices(self, indices: Tensor) -> Tensor:
        """The indices in a dtype that every framework takes.

        Some refuse narrow integers.
        """
        is_int32 = self._dtypes.dtype_name(indices) == "int32"
        if is_int32 or self._kind(indices) != WHOLE:
            return indices
        return self._kept(indices, INTEGER)

    def nonzero(self, x: Tensor, /) -> tuple[Tensor, ...]:
        least_axes(x, 1, "nonzero")
        return self._several("nonzero", self._truth(x))

    def argmax(self, x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return self._extreme(self._raw["argmax"], x, axis, keepdims)

    def argmin(self, x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        return self._extreme(self._raw["argmin"], x, axis, keepdims)

    def _extreme(
        self, operation: Callable[..., Tensor], x: Tensor, axis: int | None, keepdims: bool
    ) -> Tensor:
        if axis is not None:
            return operation(x, *axes_of(axis, len(x.shape)), keepdims)
        index = operation(self._flat(x), 0, False)
        if not keepdims:
            return index
        return self._raw["reshape"](index, (1,) * len(x.shape))

    def sort(
        self, x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        return self._raw["sort"](x, *axes_of(axis, len(x.shape)), descending)

    def argsort(
        self, x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        return self._raw["argsort"](x, *axes_of(axis, len(x.shape)), descending)

    def searchsorted(
        self, x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
    ) -> Tensor:
        one_of(side, ("left", "right"), "side")
        ordered = x1 if sorter is None else self._raw["take"](x1, sorter, 0)
        return self._raw["searchsorted"](*self._promote(ordered, x2), side == "right")
