"""``x[key]`` and ``x[key] = value`` for any framework's tensors, as in NumPy.

Both are made of the array API standard's functions, so gradients flow, and every result is on the
tensor's device.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Tensor
from xdevice.errors import ArgumentError
from xdevice.typing import Namespace

Key: TypeAlias = Any
Entry: TypeAlias = Any
"""One of the parts of a key: an integer, a slice, ``None``, or a tensor."""


class _Parts(NamedTuple):
    """A key with one entry for each axis, and ``None`` for each new axis."""

    entries: list[Entry]
    has_tensors: bool


def item(xp: Namespace, x: Tensor, key: Key) -> Tensor:
    """The numbers at the key: integers, slices, ``...``, ``None``, and tensors as indices or mask."""
    parts = _parts(xp, x, key)
    if parts.has_tensors:
        return _gathered(xp, x, parts.entries)
    return _sliced(xp, x, parts.entries)


def with_item(xp: Namespace, x: Tensor, key: Key, value: Tensor) -> Tensor:
    """The tensor with other numbers at the key; of several for one place, the last one counts."""
    parts = _parts(xp, x, key)
    value = xp.astype(value, x.dtype, copy=False)
    first: Entry = None
    if parts.entries:
        first = parts.entries[0]
    if value.ndim == 0 and _is_mask(xp, first) and tuple(first.shape) == tuple(x.shape):
        return xp.where(first, value, x)
    if not parts.has_tensors:
        return _with_slice(xp, x, parts.entries, value)
    return _with_scattered(xp, x, parts.entries, value)


# Keys


def _parts(xp: Namespace, x: Tensor, key: Key) -> _Parts:
    keys = key if isinstance(key, tuple) else (key,)
    shape = tuple(x.shape)
    if len(keys) == 1 and _is_mask(xp, keys[0]) and tuple(keys[0].shape) == shape:
        return _Parts([keys[0]], True)
    axes = sum(_axes_of(xp, entry) for entry in keys)
    ellipses = sum(entry is ... for entry in keys)
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if axes > len(shape):
        raise IndexError(
            f"too many indices: the tensor is {len(shape)}-dimensional, but {axes} were indexed"
        )
    if not ellipses:
        keys = (*keys, ...)
    entries: list[Entry] = []
    for entry in keys:
        if entry is ...:
            entries += [slice(None)] * (len(shape) - axes)
        else:
            entries.append(entry)
    return _Parts(entries, any(map(_is_tensor, entries)))


def _axes_of(xp: Namespace, entry: Entry) -> int:
    if entry is None or entry is ...:
        return 0
    if _is_mask(xp, entry):
        return len(entry.shape)
    if _is_tensor(entry) or isinstance(entry, slice):
        return 1
    if isinstance(entry, bool) or not hasattr(entry, "__index__"):
        raise IndexError(
            f"a {type(entry).__name__} is not an index; give integers, slices, '...', None, or "
            f"arrays of integers or booleans"
        )
    return 1


def _is_tensor(entry: Entry) -> bool:
    return hasattr(entry, "shape") and hasattr(entry, "dtype") and not isinstance(entry, slice)


def _is_mask(xp: Namespace, entry: Entry) -> bool:
    return _is_tensor(entry) and xp.isdtype(entry.dtype, "bool")


def _position(index: Any, length: int, axis: int) -> int:
    position: int = index.__index__()
    if not -length <= position < length:
        raise IndexError(f"index {position} is out of bounds for axis {axis} with size {length}")
    return position % length


# Slices


def _sliced(xp: Namespace, x: Tensor, entries: list[Entry]) -> Tensor:
    """The numbers at integers and slices, with new axes."""
    shape: list[int] = []
    axis = 0
    lengths = tuple(x.shape)
    native_key: list[Any] = []
    is_everything = True
    for entry in entries:
        if entry is None:
            shape.append(1)
            continue
        length = lengths[axis]
        if isinstance(entry, slice):
            places = range(length)[entry]
            shape.append(len(places))
        else:
            places = range(length)[_position(entry, length, axis) :][:1]
        if places != range(length):
            is_everything = False
        native_key.append(places)
        axis += 1
    if not is_everything:
        for number, places in enumerate(native_key):
            x = _along(xp, x, number, places)
    if tuple(x.shape) == tuple(shape):
        return x
    return xp.reshape(x, tuple(shape))


def _along(xp: Namespace, x: Tensor, axis: int, places: range) -> Tensor:
    """The numbers at some places along an axis."""
    if places == range(x.shape[axis]):
        return x
    return xp.take(x, _numbers(xp, x, places), axis=axis)


def _numbers(xp: Namespace, x: Tensor, places: range) -> Tensor:
    """The places as a tensor beside another one."""
    from xdevice.tensors.placement import device_of

    device = device_of(x)
    return xp.arange(places.start, places.stop, places.step, dtype="int64", device=device)


def _with_slice(xp: Namespace, x: Tensor, entries: list[Entry], value: Tensor) -> Tensor:
    """The tensor with other numbers at integers and slices."""
    ranges: list[range] = []
    key_shape: list[int] = []  # of ``x[key]``
    whole_shape: list[int] = []  # the same, with one entry for each axis of x
    lengths = tuple(x.shape)
    for entry in entries:
        if entry is None:
            key_shape.append(1)
            continue
        axis = len(ranges)
        length = lengths[axis]
        if isinstance(entry, slice):
            ranges.append(range(length)[entry])
            key_shape.append(len(ranges[-1]))
        else:
            ranges.append(range(length)[_position(entry, length, axis) :][:1])
        whole_shape.append(len(ranges[-1]))
    if 0 in whole_shape:
        return x
    if value.ndim:
        value = xp.reshape(_broadcast(xp, value, key_shape), tuple(whole_shape))
    mask: Tensor | None = None
    for axis, places in enumerate(ranges):
        length = lengths[axis]
        if places == range(length):
            continue
        here = _numbers(xp, x, range(length))
        offset = xp.subtract(here, places.start)
        source = xp.floor_divide(offset, places.step)
        is_inside = xp.logical_and(
            xp.equal(xp.remainder(offset, places.step), 0),
            xp.logical_and(xp.greater_equal(source, 0), xp.less(source, len(places))),
        )
        along = xp.reshape(
            is_inside, tuple(length if i == axis else 1 for i in range(len(lengths)))
        )
        mask = along if mask is None else xp.logical_and(mask, along)
        if value.ndim:
            source = xp.clip(source, 0, len(places) - 1)
            value = xp.take(value, source, axis=axis)
    if mask is None:
        return xp.broadcast_to(value, lengths)
    return xp.where(mask, value, x)


def _broadcast(xp: Namespace, value: Tensor, shape: list[int]) -> Tensor:
    extra = len(value.shape) - len(shape)
    if extra > 0 and set(value.shape[:extra]) == {1}:  # as NumPy allows
        value = xp.reshape(value, tuple(value.shape[extra:]))
    fits = len(value.shape) <= len(shape) and all(
        have in (1, want)
        for have, want in zip(reversed(value.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise ArgumentError(
            f"numbers of shape {tuple(value.shape)} do not fit in places of shape {tuple(shape)}"
        )
    return xp.broadcast_to(value, tuple(shape))


# Tensors as indices


def _gathered(xp: Namespace, x: Tensor, entries: list[Entry]) -> Tensor:
    """The numbers at tensors of integers or booleans, beside integers, slices and new axes."""
    x = _with_axes_of_masks(xp, x, entries)
    entries = _without_masks(xp, entries)
    basic: list[Entry] = []  # the key without the tensors, whose axes stay whole
    indices: list[tuple[int, Entry]] = []  # the axes of those, and the tensors
    order: list[int] = []  # the places of the tensors in the key
    for place, entry in enumerate(entries):
        if entry is None or isinstance(entry, slice):
            basic.append(entry)
            continue
        order.append(place)
        indices.append((len(basic), entry))
        basic.append(slice(None))
    x = _sliced(xp, x, basic)
    axes = [axis for axis, _ in indices]
    rest = [axis for axis in range(len(x.shape)) if axis not in axes]
    sizes = [int(x.shape[axis]) for axis in axes]
    places = [_as_positions(xp, x, index, int(x.shape[axis]), axis) for axis, index in indices]
    try:
        places = list(xp.broadcast_arrays(*places))
    except ArgumentError as error:
        raise IndexError(f"the indices do not fit together: {error}") from None
    index_shape = tuple(places[0].shape)
    rest_shape = tuple(int(x.shape[axis]) for axis in rest)
    flat = xp.reshape(xp.permute_dims(x, tuple(axes + rest)), (prod(sizes), *rest_shape))
    position = places[0]
    for size, place in zip(sizes[1:], places[1:], strict=True):
        position = xp.add(xp.multiply(position, size), place)
    result = xp.take(flat, xp.reshape(position, (prod(index_shape),)), axis=0)
    result = xp.reshape(result, (*index_shape, *rest_shape))
    if order == list(range(order[0], order[0] + len(order))):
        return _moved_to(xp, result, len(index_shape), axes[0])
    return result


def _moved_to(xp: Namespace, x: Tensor, count: int, axis: int) -> Tensor:
    """The first axes, behind as many others."""
    if not count or not axis:
        return x
    others = list(range(count, len(x.shape)))
    order = others[:axis] + list(range(count)) + others[axis:]
    return xp.permute_dims(x, tuple(order))


def _with_axes_of_masks(xp: Namespace, x: Tensor, entries: list[Entry]) -> Tensor:
    """The tensor with an axis of one number for each mask that is a single boolean."""
    key: list[Entry] = []
    for entry in entries:
        if not _is_mask(xp, entry):
            if entry is not None:
                key.append(slice(None))
        elif entry.ndim:
            key += [slice(None)] * entry.ndim
        else:
            key.append(None)
    return _sliced(xp, x, key)


def _without_masks(xp: Namespace, entries: list[Entry]) -> list[Entry]:
    """The key with the places where masks are true, and not the masks."""
    plain: list[Entry] = []
    for entry in entries:
        if _is_mask(xp, entry) and entry.ndim:
            plain += xp.nonzero(entry)
        elif _is_mask(xp, entry):
            plain.append(xp.nonzero(xp.reshape(entry, (1,)))[0])
        else:
            plain.append(entry)
    return plain


def _as_positions(xp: Namespace, x: Tensor, index: Entry, length: int, axis: int) -> Tensor:
    """Places along an axis, counted from its start."""
    if not _is_tensor(index):
        position = _position(index, length, axis)
        return xp.reshape(_numbers(xp, x, range(position, position + 1)), ())
    if not xp.isdtype(index.dtype, "integral"):
        raise IndexError(f"an array of {index.dtype} is not an index; give integers or booleans")
    index = xp.astype(index, xp.int64, copy=False)
    return xp.where(xp.less(index, 0), xp.add(index, length), index)


def _with_scattered(xp: Namespace, x: Tensor, entries: list[Entry], value: Tensor) -> Tensor:
    """The tensor with other numbers at places that tensors tell."""

    def read(places: Tensor) -> Tensor:
        return _gathered(xp, places, _expanded(xp, entries, places))

    return with_numbers_at(xp, x, read, value)


def _expanded(xp: Namespace, entries: list[Entry], x: Tensor) -> list[Entry]:
    """A mask of all axes is a whole key."""
    axes = sum(_axes_of(xp, entry) for entry in entries)
    return entries + [slice(None)] * (x.ndim - axes)


def with_numbers_at(
    xp: Namespace, x: Tensor, read: Callable[[Tensor], Tensor], value: Tensor
) -> Tensor:
    """The tensor with other numbers where a function reads: it moves numbers and computes none.

    Their places are sorted, and each number of the tensor looks up whether it is among them.
    """
    shape = tuple(x.shape)
    count = prod(shape)
    every_place = _numbers(xp, x, range(count))
    places = read(xp.reshape(every_place, shape))
    key_shape = [int(length) for length in places.shape]
    if 0 in key_shape:
        return x
    value = xp.reshape(_broadcast(xp, value, key_shape), (prod(key_shape),))
    places = xp.reshape(places, (prod(key_shape),))
    order = xp.argsort(places)
    ordered = xp.take(places, order)
    last = xp.subtract(xp.searchsorted(ordered, every_place, side="right"), 1)
    last = xp.clip(xp.astype(last, xp.int64), 0, prod(key_shape) - 1)
    is_written = xp.equal(xp.take(ordered, last), every_place)
    written = xp.take(value, xp.take(order, last))
    flat = xp.where(is_written, written, xp.reshape(x, (count,)))
    return xp.reshape(flat, shape)
