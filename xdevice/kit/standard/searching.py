"""Functions that search for numbers, or sort them."""

from collections.abc import Callable
from typing import Any

from xdevice.kit.standard.axes import axes_of, least_axes, one_axis, one_of
from xdevice.kit.standard.promotion import INTEGER, WHOLE, Operations, kind_of


class Searching(Operations):
    def take(self, x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
        return self._raw["take"](x, self._places(indices), one_axis(x, axis, "take"))

    def take_along_axis(self, x: Any, indices: Any, /, *, axis: int = -1) -> Any:
        return self._raw["take_along_axis"](x, self._places(indices), *axes_of(axis, len(x.shape)))

    def nonzero(self, x: Any, /) -> tuple[Any, ...]:
        least_axes(x, 1, "nonzero")
        return tuple(self._raw["nonzero"](x))

    def argmax(self, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._extreme(self._raw["argmax"], x, axis, keepdims)

    def argmin(self, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._extreme(self._raw["argmin"], x, axis, keepdims)

    def _places(self, indices: Any) -> Any:
        """Indices in a dtype that every framework takes; narrow integers are not always among them."""
        name = self._dtypes.dtype_name(indices)
        return indices if name in ("int32", INTEGER) or kind_of(name) != WHOLE else self._dtypes.cast(indices, INTEGER)

    def _extreme(self, op: Callable[..., Any], x: Any, axis: int | None, keepdims: bool) -> Any:
        if axis is not None:
            return op(x, *axes_of(axis, len(x.shape)), keepdims)
        found = op(self._raw["reshape"](x, (-1,)), 0, False)
        return self._raw["reshape"](found, (1,) * len(x.shape)) if keepdims else found

    def sort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return self._raw["sort"](x, *axes_of(axis, len(x.shape)), descending)

    def argsort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return self._raw["argsort"](x, *axes_of(axis, len(x.shape)), descending)

    def searchsorted(self, x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
        one_of(side, ("left", "right"), "side")
        ordered = x1 if sorter is None else self._raw["take"](x1, sorter, 0)
        return self._raw["searchsorted"](*self._promote(ordered, x2), side == "right")
