"""Functions of the distinct numbers in a tensor."""

# every field may be any framework's tensor
# pyright: reportUntypedNamedTuple=false

from collections import namedtuple
from typing import Any

from xdevice.kit.standard.promotion import COMPLEX, INTEGER, Operations, kind_of

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


class Sets(Operations):
    """Functions of the distinct numbers. Each nan is distinct from every other."""

    def unique_values(self, x: Any, /) -> Any:
        return self.unique_all(x).values

    def unique_counts(self, x: Any, /) -> UniqueCounts:
        found = self.unique_all(x)
        return UniqueCounts(found.values, found.counts)

    def unique_inverse(self, x: Any, /) -> UniqueInverse:
        found = self.unique_all(x)
        return UniqueInverse(found.values, found.inverse_indices)

    def unique_all(self, x: Any, /) -> UniqueAll:
        flat, cast = self._raw["reshape"](x, (-1,)), self._dtypes.cast
        if not flat.shape[0]:
            none = cast(flat, INTEGER)
            return UniqueAll(flat, none, self._raw["reshape"](none, tuple(x.shape)), none)
        order = self._order(flat)
        ordered = self._raw["take"](flat, order, 0)
        last = flat.shape[0] - 1
        changes = self._f["not_equal"](ordered[1:], ordered[:last])
        first = self._raw["concat"]([self._one(True, "bool", order), changes], 0)
        groups = self._raw["cumulative_sum"](cast(first, INTEGER), 0)
        (starts,) = self._raw["nonzero"](first)
        starts = cast(starts, INTEGER)
        ends = self._raw["concat"]([starts[1:], self._one(last + 1, INTEGER, order)], 0)
        inverse = self._raw["take"](self._f["subtract"](groups, 1), self._raw["argsort"](order, 0, False), 0)
        return UniqueAll(
            self._raw["take"](ordered, starts, 0),
            self._raw["take"](order, starts, 0),
            self._raw["reshape"](inverse, tuple(x.shape)),
            self._f["subtract"](ends, starts),
        )

    def _order(self, flat: Any) -> Any:
        """The places of the numbers in order; complex ones by their real parts, then by their imaginary ones."""
        if kind_of(self._dtypes.dtype_name(flat)) != COMPLEX:
            return self._raw["argsort"](flat, 0, False)
        by_imag = self._raw["argsort"](self._raw["imag"](flat), 0, False)
        by_real = self._raw["argsort"](self._raw["take"](self._raw["real"](flat), by_imag, 0), 0, False)
        return self._raw["take"](by_imag, by_real, 0)

    def _one(self, value: Any, name: str, like: Any) -> Any:
        """A vector of one number."""
        return self._raw["reshape"](self._dtypes.number(value, name, like), (1,))

    def isin(self, x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
        x1, x2 = self._promote(x1, x2)
        equal = self._f["equal"](self._raw["expand_dims"](x1, len(x1.shape)), self._raw["reshape"](x2, (-1,)))
        found = self._f["any"](equal, axis=-1)
        return self._f["logical_not"](found) if invert else found
