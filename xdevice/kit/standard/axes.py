"""Axes and shapes in the form that operations take, complete and counted from 0, and the functions of them.

They change shapes and join tensors, sum, search and sort along axes, and find distinct numbers.
"""

# every field may be any framework's tensor
# pyright: reportUntypedNamedTuple=false

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from xdevice.errors import ArgumentError, AxisError, CopyNeededError
from xdevice.kit.standard.dtypes import COMPLEX, INTEGER, WHOLE, Operations, one_of

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes, counted from 0: all of them for ``None``."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    for each in given:
        if not -ndim <= each < ndim:
            raise AxisError(
                f"axis {each!r} does not exist in a tensor of {ndim} axes; count from 0, or from -1 back"
            )
    found = tuple(each % ndim for each in given)
    if len(set(found)) < len(found):
        raise ArgumentError(f"axis={axis!r} names an axis twice; name each once")
    return found


def one_axis(x: Any, axis: int | None, what: str) -> int:
    """The axis, counted from 0; only a tensor of one axis needs none to be named."""
    if axis is None and len(x.shape) != 1:
        raise ArgumentError(
            f"{what} of a tensor of {len(x.shape)} axes needs an axis; give for example axis=0"
        )
    return axes_of(0 if axis is None else axis, len(x.shape))[0]


def least_axes(x: Any, least: int, what: str) -> int:
    """The number of axes, which must be at least ``least``."""
    if len(x.shape) < least:
        raise ArgumentError(
            f"{what} was given a tensor of {len(x.shape)} axes; give {least} or more"
        )
    return len(x.shape)


def size_of(shape: Any, axes: tuple[int, ...]) -> int:
    return math.prod(shape[axis] for axis in axes)


def joint_shape(*shapes: Any) -> tuple[int, ...]:
    """The shape to which all of these broadcast."""
    ndim = max(map(len, shapes), default=0)
    found = []
    for column in zip(
        *((1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes), strict=True
    ):
        sizes = set(column) - {1}
        if len(sizes) > 1:
            listed = " and ".join(str(tuple(shape)) for shape in shapes)
            raise ArgumentError(
                f"the shapes {listed} do not broadcast; sizes along an axis must be equal, or 1"
            )
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


class AlongAxes(Operations):
    def permute_dims(self, x: Any, /, axes: Any) -> Any:
        return self._raw["permute_dims"](x, axes_of(tuple(axes), len(x.shape)))

    def moveaxis(self, x: Any, source: Any, destination: Any, /) -> Any:
        ndim = len(x.shape)
        moved = dict(zip(axes_of(destination, ndim), axes_of(source, ndim), strict=True))
        rest = iter([i for i in range(ndim) if i not in moved.values()])
        return self._raw["permute_dims"](
            x, tuple(moved[i] if i in moved else next(rest) for i in range(ndim))
        )

    def reshape(self, x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
        if copy is False:
            raise CopyNeededError("copy=False, but only a copy could be given; leave copy out")
        return self._raw["reshape"](x, tuple(shape) if hasattr(shape, "__iter__") else (shape,))

    def broadcast_to(self, x: Any, /, shape: Any) -> Any:
        return self._raw["broadcast_to"](x, tuple(shape))

    def broadcast_arrays(self, *arrays: Any) -> tuple[Any, ...]:
        shape = joint_shape(*(tuple(x.shape) for x in arrays))
        return tuple(self._raw["broadcast_to"](x, shape) for x in arrays)

    def broadcast_shapes(self, *shapes: Any) -> tuple[int, ...]:
        return joint_shape(*shapes)

    def expand_dims(self, x: Any, /, axis: Any) -> Any:
        given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        for each in sorted(axes_of(given, len(x.shape) + len(given))):
            x = self._raw["expand_dims"](x, each)
        return x

    def squeeze(self, x: Any, /, axis: Any) -> Any:
        axes = axes_of(axis, len(x.shape))
        if any(x.shape[i] not in (1, None) for i in axes):
            raise ArgumentError(
                f"squeeze of axis {axis!r}, but the shape is {tuple(x.shape)}; name axes of length 1"
            )
        return self._raw["squeeze"](x, axes) if axes else x

    def flip(self, x: Any, /, *, axis: Any = None) -> Any:
        axes = axes_of(axis, len(x.shape))
        return self._raw["flip"](x, axes) if axes else x

    def roll(self, x: Any, /, shift: Any, *, axis: Any = None) -> Any:
        if axis is None:
            return self._raw["reshape"](
                self._raw["roll"](self._flat(x), (shift,), (0,)), tuple(x.shape)
            )
        axes = axes_of(axis, len(x.shape))
        return self._raw["roll"](
            x, tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes), axes
        )

    def tile(self, x: Any, repetitions: Any, /) -> Any:
        more = len(repetitions) - len(x.shape)
        x = self._raw["reshape"](x, (1,) * more + tuple(x.shape)) if more > 0 else x
        return self._raw["tile"](x, (1,) * -more + tuple(repetitions))

    def repeat(self, x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
        if axis is None:
            x, axis = self._flat(x), 0
        (along,) = axes_of(axis, len(x.shape))
        if self._dtypes.dtype_name(repeats) is not None:  # one number may stand for all
            repeats = self._raw["broadcast_to"](
                self._dtypes.cast(repeats, INTEGER), (x.shape[along],)
            )
        return self._raw["repeat"](x, repeats, along)

    def concat(self, arrays: Any, /, *, axis: int | None = 0) -> Any:
        parts = self._promote(*arrays)
        if axis is None:
            return self._raw["concat"](list(map(self._flat, parts)), 0)
        return self._raw["concat"](parts, *axes_of(axis, len(parts[0].shape)))

    def stack(self, arrays: Any, /, *, axis: int = 0) -> Any:
        parts = self._promote(*arrays)
        return self._raw["stack"](parts, *axes_of(axis, len(parts[0].shape) + 1))

    def unstack(self, x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
        return tuple(self._raw["unstack"](x, *axes_of(axis, len(x.shape))))

    def meshgrid(self, *arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
        one_of(indexing, ("xy", "ij"), "indexing")
        axes = list(
            range(len(arrays))
        )  # the axis along which each array lies, and the array along each axis
        if indexing == "xy":
            axes[:2] = reversed(axes[:2])
        sizes = tuple(arrays[i].shape[0] for i in axes)
        shapes = (tuple(-1 if i == axis else 1 for i in range(len(arrays))) for axis in axes)
        lying = (self._raw["reshape"](x, shape) for x, shape in zip(arrays, shapes, strict=True))
        return tuple(self._raw["broadcast_to"](x, sizes) for x in lying)

    def _flat(self, x: Any) -> Any:
        return self._raw["reshape"](x, (-1,))

    def var(
        self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
    ) -> Any:
        x = self._real(x)
        apart = self._f["subtract"](x, self._f["mean"](x, axis=axis, keepdims=True))
        found = self._f["mean"](self._f["multiply"](apart, apart), axis=axis, keepdims=keepdims)
        if not correction:
            return found
        n = size_of(x.shape, axes_of(axis, len(x.shape)))
        return self._f["multiply"](found, n / (n - correction) if n > correction else float("inf"))

    def std(
        self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
    ) -> Any:
        return self._f["sqrt"](self.var(x, axis=axis, correction=correction, keepdims=keepdims))

    def count_nonzero(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self._f["sum"](self._truth(x), axis=axis, keepdims=keepdims)

    def cumulative_sum(
        self, x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        return self._running("cumulative_sum", x, axis, dtype, 0 if include_initial else None)

    def cumulative_prod(
        self, x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False
    ) -> Any:
        return self._running("cumulative_prod", x, axis, dtype, 1 if include_initial else None)

    def _running(self, name: str, x: Any, axis: int | None, dtype: Any, initial: int | None) -> Any:
        along = one_axis(x, axis, name)
        x = self._wide(x, dtype)
        found = self._kept(self._raw[name](x, along), self._dtypes.dtype_name(x))
        if initial is None:
            return found
        shape = tuple(1 if i == along else n for i, n in enumerate(x.shape))
        return self._raw["concat"](
            [self._raw["broadcast_to"](self._number(initial, found), shape), found], along
        )

    def diff(
        self, x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
    ) -> Any:
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
        return (
            indices
            if name == "int32" or self._kind(indices) != WHOLE
            else self._kept(indices, INTEGER)
        )

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

    def sort(
        self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Any:
        return self._raw["sort"](x, *axes_of(axis, len(x.shape)), descending)

    def argsort(
        self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Any:
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
        flat, cast, take, concat = (
            self._flat(x),
            self._dtypes.cast,
            self._raw["take"],
            self._raw["concat"],
        )
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
        by_real = self._raw["argsort"](
            self._raw["take"](self._raw["real"](flat), by_imag, 0), 0, False
        )
        return self._raw["take"](by_imag, by_real, 0)

    def isin(self, x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
        x1, x2 = self._promote(x1, x2)
        equal = self._f["equal"](self._raw["expand_dims"](x1, len(x1.shape)), self._flat(x2))
        found = self._f["any"](equal, axis=-1)
        return self._f["logical_not"](found) if invert else found
