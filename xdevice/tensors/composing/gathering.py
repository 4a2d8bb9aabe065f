"""``x[key]`` and ``x[key] = value`` where tensors of integers or booleans are the key."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from xdevice.contract import Tensor
from xdevice.errors import ArgumentError, NotSupportedError
from xdevice.tensors.composing.keys import (
    Entry,
    axes_of,
    broadcast_to_places,
    is_mask,
    is_tensor,
    position_of,
)
from xdevice.tensors.composing.slices import sliced
from xdevice.tensors.placement import device_of
from xdevice.typing import Namespace


def gathered(xp: Namespace, x: Tensor, entries: list[Entry]) -> Tensor:
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
    x = sliced(xp, x, basic)
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
        if not is_mask(xp, entry):
            if entry is not None:
                key.append(slice(None))
        elif entry.ndim:
            key += [slice(None)] * entry.ndim
        else:
            key.append(None)
    return sliced(xp, x, key)


def _without_masks(xp: Namespace, entries: list[Entry]) -> list[Entry]:
    """The key with the places where masks are true, and not the masks."""
    plain: list[Entry] = []
    for entry in entries:
        if not is_mask(xp, entry):
            plain.append(entry)
            continue
        mask = entry if entry.ndim else xp.reshape(entry, (1,))
        positions = xp.nonzero(mask)
        if None in tuple(positions[0].shape):
            raise NotSupportedError(
                "in a compiled function it is not known how many numbers a mask selects; use where"
            )
        plain += positions
    return plain


def _as_positions(xp: Namespace, x: Tensor, index: Entry, length: int, axis: int) -> Tensor:
    """Places along an axis, counted from its start."""
    if not is_tensor(index):
        position = position_of(index, length, axis)
        return xp.reshape(_numbers(xp, x, range(position, position + 1)), ())
    if not xp.isdtype(index.dtype, "integral"):
        raise IndexError(f"an array of {index.dtype} is not an index; give integers or booleans")
    index = xp.astype(index, xp.int64, copy=False)
    return xp.where(xp.less(index, 0), xp.add(index, length), index)


def with_scattered(xp: Namespace, x: Tensor, entries: list[Entry], value: Tensor) -> Tensor:
    """The tensor with other numbers at places that tensors tell."""

    def read(places: Tensor) -> Tensor:
        return gathered(xp, places, _expanded(xp, entries, places))

    return with_numbers_at(xp, x, read, value)


def _expanded(xp: Namespace, entries: list[Entry], x: Tensor) -> list[Entry]:
    """A mask of all axes is a whole key."""
    axes = sum(axes_of(xp, entry) for entry in entries)
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
    key_shape = tuple(int(length) for length in places.shape)
    if 0 in key_shape:
        return x
    value = xp.reshape(broadcast_to_places(xp, value, key_shape), (prod(key_shape),))
    places = xp.reshape(places, (prod(key_shape),))
    order = xp.argsort(places)
    ordered = xp.take(places, order)
    last = xp.subtract(xp.searchsorted(ordered, every_place, side="right"), 1)
    last = xp.clip(xp.astype(last, xp.int64), 0, prod(key_shape) - 1)
    is_written = xp.equal(xp.take(ordered, last), every_place)
    written = xp.take(value, xp.take(order, last))
    flat = xp.where(is_written, written, xp.reshape(x, (count,)))
    return xp.reshape(flat, shape)


def _numbers(xp: Namespace, x: Tensor, places: range) -> Tensor:
    """The places as a tensor beside another one."""
    device = device_of(x)
    return xp.arange(places.start, places.stop, places.step, dtype="int64", device=device)
