"""Functions along axes: spread, running sums and products, differences, searching, sorting, distinct numbers."""

# every field may be any framework's tensor
# pyright: reportUntypedNamedTuple=false

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from xdevice.errors import ArgumentError
from xdevice.kit.standard.dtypes import COMPLEX, INTEGER, WHOLE, one_of
from xdevice.kit.standard.shapes import Shapes, axes_of, least_axes, one_axis, size_of

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


class AlongAxes(Shapes):
    def var(self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        x = self._real(x)
        apart = self._f["subtract"](x, self._f["mean"](x, axis=axis, keepdims=True))
        found = self._f["mean"](self._f["multiply"](apart, apart), axis=axis, keepdims=keepdims)
        if not correction:
            return found
        n = size_of(x.shape, axes_of(axis, len(x.shape)))
        return self._f["multiply"](found, n / (n - correction) if n > correction else float("inf"))

    def std(self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        return self._f["sqrt"](self.var(x, axis=axis, correction=correction, keepdims=keepdims))

    def count_nonzero(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self._f["sum"](self._truth(x), axis=axis, keepdims=keepdims)

    def cumulative_sum(self, x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
        return self._running("cumulative_sum", x, axis, dtype, 0 if include_initial else None)

    def cumulative_prod(self, x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
        return self._running("cumulative_prod", x, axis, dtype, 1 if include_initial else None)

    def _running(self, name: str, x: Any, axis: int | None, dtype: Any, initial: int | None) -> Any:
        along = one_axis(x, axis, name)
        x = self._wide(x, dtype)
        found = self._kept(self._raw[name](x, along), self._dtypes.dtype_name(x))
        if initial is None:
            return found
        shape = tuple(1 if i == along else n for i, n in enumerate(x.shape))
        return self._raw["concat"]([self._raw["broadcast_to"](self._number(initial, found), shape), found], along)

    def diff(self, x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
        if n < 0:
            raise ArgumentError(f"diff of order n={n!r}; give 0 or more")
        along = one_axis(x, axis, "diff")
        if n == 0:
            return x
        parts = self._promote(*(part for part in (prepend, x, append) if part is not None))
        x = self._raw["concat"](parts, along) if len(parts) > 1 else parts[0]
        apart = self._f["not_equal" if self._dtypes.dtype_name(x) == "bool" else "subtract"]
        front = (slice(None),) * along
        for _ in range(min(n, x.shape[along])):
            last = x.shape[along] - 1
            x = apart(x[(*front, slice(1, 1 + last))], x[(*front, slice(0, last))])
        return x

    def take(self, x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
        return self._raw["take"](x, self._places(indices), one_axis(x, axis, "take"))

    def take_along_axis(self, x: Any, indices: Any, /, *, axis: int = -1) -> Any:
        return self._raw["take_along_axis"](x, self._places(indices), *axes_of(axis, len(x.shape)))

    def _places(self, indices: Any) -> Any:
        """Indices in a dtype that every framework takes; narrow integers are not always among them."""
        name = self._dtypes.dtype_name(indices)
        return indices if name == "int32" or self._kind(indices) != WHOLE else self._kept(indices, INTEGER)

    def nonzero(self, x: Any, /) -> tuple[Any, ...]:
        least_axes(x, 1, "nonzero")
        return tuple(self._raw["nonzero"](x))

    def argmax(self, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._extreme(self._raw["argmax"], x, axis, keepdims)

    def argmin(self, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._extreme(self._raw["argmin"], x, axis, keepdims)

    def _extreme(self, op: Callable[..., Any], x: Any, axis: int | None, keepdims: bool) -> Any:
        if axis is not None:
            return op(x, *axes_of(axis, len(x.shape)), keepdims)
        found = op(self._flat(x), 0, False)
        return self._raw["reshape"](found, (1,) * len(x.shape)) if keepdims else found

    def sort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return self._raw["sort"](x, *axes_of(axis, len(x.shape)), descending)

    def argsort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return self._raw["argsort"](x, *axes_of(axis, len(x.shape)), descending)

    def searchsorted(self, x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
        one_of(side, ("left", "right"), "side")
        ordered = x1 if sorter is None else self._raw["take"](x1, sorter, 0)
        return self._raw["searchsorted"](*self._promote(ordered, x2), side == "right")

    # distinct numbers: each nan is distinct from every other

    def unique_values(self, x: Any, /) -> Any:
        return self.unique_all(x).values

    def unique_counts(self, x: Any, /) -> UniqueCounts:
        found = self.unique_all(x)
        return UniqueCounts(found.values, found.counts)

    def unique_inverse(self, x: Any, /) -> UniqueInverse:
        found = self.unique_all(x)
        return UniqueInverse(found.values, found.inverse_indices)

    def unique_all(self, x: Any, /) -> UniqueAll:
        flat, cast, take, concat = self._flat(x), self._dtypes.cast, self._raw["take"], self._raw["concat"]
        if not flat.shape[0]:
            none = cast(flat, INTEGER)
            return UniqueAll(flat, none, self._raw["reshape"](none, tuple(x.shape)), none)
        order = self._order(flat)
        ordered, last = take(flat, order, 0), flat.shape[0] - 1
        one = self._flat(self._dtypes.number(True, "bool", order))
        end = self._flat(self._dtypes.number(last + 1, INTEGER, order))
        first = concat([one, self._f["not_equal"](ordered[1:], ordered[:last])], 0)
        groups = self._raw["cumulative_sum"](cast(first, INTEGER), 0)
        starts = cast(self._raw["nonzero"](first)[0], INTEGER)
        inverse = take(self._f["subtract"](groups, 1), self._raw["argsort"](order, 0, False), 0)
        counts = self._f["subtract"](concat([starts[1:], end], 0), starts)
        inverse = self._raw["reshape"](inverse, tuple(x.shape))
        return UniqueAll(take(ordered, starts, 0), take(order, starts, 0), inverse, counts)

    def _order(self, flat: Any) -> Any:
        """The places of the numbers in order; complex ones by their real parts, then by their imaginary ones."""
        if self._kind(flat) != COMPLEX:
            return self._raw["argsort"](flat, 0, False)
        by_imag = self._raw["argsort"](self._raw["imag"](flat), 0, False)
        by_real = self._raw["argsort"](self._raw["take"](self._raw["real"](flat), by_imag, 0), 0, False)
        return self._raw["take"](by_imag, by_real, 0)

    def isin(self, x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
        x1, x2 = self._promote(x1, x2)
        equal = self._f["equal"](self._raw["expand_dims"](x1, len(x1.shape)), self._flat(x2))
        found = self._f["any"](equal, axis=-1)
        return self._f["logical_not"](found) if invert else found
