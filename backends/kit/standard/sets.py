"""The standard's functions about distinct numbers.

Each NaN is distinct from every other.
"""

from typing import NamedTuple

from xdevice.backends.kit.standard.axes import Tensor
from xdevice.backends.kit.standard.dtypes import COMPLEX, INTEGER, Operations


class UniqueAll(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


class Sets(Operations):
    def unique_values(self, x: Tensor, /) -> Tensor:
        return self.unique_all(x).values

    def unique_counts(self, x: Tensor, /) -> UniqueCounts:
        unique = self.unique_all(x)
        return UniqueCounts(unique.values, unique.counts)

    def unique_inverse(self, x: Tensor, /) -> UniqueInverse:
        unique = self.unique_all(x)
        return UniqueInverse(unique.values, unique.inverse_indices)

    def unique_all(self, x: Tensor, /) -> UniqueAll:
        cast = self._dtypes.cast
        take = self._raw["take"]
        concat = self._raw["concat"]
        reshape = self._raw["reshape"]
        flat = self._flat(x)
        size = flat.shape[0]
        if not size:
            no_indices = cast(flat, INTEGER)
            return UniqueAll(flat, no_indices, reshape(no_indices, tuple(x.shape)), no_indices)
        order = self._order(flat)
        ordered = take(flat, order, 0)

        # In order, equal numbers are a run. A run begins where a number
        # differs from the last one.
        true = self._flat(self._dtypes.number(True, "bool", order))
        later = self._sliced(ordered, 0, slice(1, size))
        differs = self._f["not_equal"](later, self._sliced(ordered, 0, slice(0, size - 1)))
        begins_run = concat([true, differs], 0)
        starts = cast(self._several("nonzero", begins_run)[0], INTEGER)
        ends = self._sliced(starts, 0, slice(1, None))
        end = self._flat(self._dtypes.number(size, INTEGER, order))
        counts = self._f["subtract"](concat([ends, end], 0), starts)

        # The number of each one's run, counted from 0, and brought back to the
        # original order.
        run_numbers = self._f["subtract"](
            self._raw["cumulative_sum"](cast(begins_run, INTEGER), 0), 1
        )
        inverse = take(run_numbers, self._raw["argsort"](order, 0, False), 0)
        inverse = reshape(inverse, tuple(x.shape))
        return UniqueAll(take(ordered, starts, 0), take(order, starts, 0), inverse, counts)

    def _order(self, flat: Tensor) -> Tensor:
        """The indices that sort the numbers.

        Complex ones by real part, then by imaginary part.
        """
        argsort, take = self._raw["argsort"], self._raw["take"]
        if self._kind(flat) != COMPLEX:
            return argsort(flat, 0, False)
        by_imag = argsort(self._raw["imag"](flat), 0, False)
        by_real = argsort(take(self._raw["real"](flat), by_imag, 0), 0, False)
        return take(by_imag, by_real, 0)

    def isin(self, x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
        x1, x2 = self._promote(x1, x2)
        column = self._raw["expand_dims"](x1, len(x1.shape))
        equal = self._f["equal"](column, self._flat(x2))
        is_in = self._f["any"](equal, axis=-1)
        if invert:
            return self._f["logical_not"](is_in)
        return is_in
