"""``x[key]`` and ``x[key] = value`` for integers, slices and new axes.

Both consist of the framework's own slices, of `concat` and of `reshape`. No
number is sent to the tensor's device or read from it.
"""

from __future__ import annotations

from xdevice.contract import Tensor
from xdevice.tensors.composing.keys import Entry, broadcast_to_places, places_of
from xdevice.tensors.placement import device_of, owner_of
from xdevice.typing import Namespace


def sliced(xp: Namespace, x: Tensor, entries: list[Entry]) -> Tensor:
    """The numbers at integers and slices, with new axes."""
    places = places_of(x, entries)
    if 0 in map(len, places.ranges):
        # MXNet 1.9.1 has no slices without numbers
        return xp.zeros(places.shape, dtype=x.dtype, device=device_of(x))
    part = _part(xp, x, places.ranges)
    if tuple(part.shape) == places.shape:
        return part
    return xp.reshape(part, places.shape)


def with_slice(xp: Namespace, x: Tensor, entries: list[Entry], value: Tensor) -> Tensor:
    """The tensor with other numbers at integers and slices."""
    places = places_of(x, entries)
    lengths = tuple(map(len, places.ranges))
    if 0 in lengths:
        return x
    value = xp.reshape(broadcast_to_places(xp, value, places.shape), lengths)
    backward = _backward_axes(places.ranges)
    if backward:
        value = xp.flip(value, axis=backward)
    return _written(xp, x, value, list(map(_forward, places.ranges)), 0)


def _part(xp: Namespace, x: Tensor, ranges: list[range]) -> Tensor:
    """The numbers in the ranges, one for each axis; the tensor itself if these are all numbers."""
    lengths = [int(length) for length in x.shape]
    forward = list(map(_forward, ranges))
    if forward != list(map(range, lengths)):
        x = _native_slice(x, forward)
    backward = _backward_axes(ranges)
    if not backward:
        return x
    return xp.flip(x, axis=backward)


def _forward(places: range) -> range:
    """The same places in ascending order, and in one spelling."""
    if places.step < 0:
        places = places[::-1]
    step = places.step if len(places) > 1 else 1
    return range(places.start, places[-1] + 1, step)


def _backward_axes(ranges: list[range]) -> tuple[int, ...]:
    """The axes along which the order is reversed."""
    return tuple(axis for axis, places in enumerate(ranges) if places.step < 0 and len(places) > 1)


def _written(xp: Namespace, x: Tensor, value: Tensor, ranges: list[range], axis: int) -> Tensor:
    """The tensor with other numbers in ascending ranges, which are those of this axis and later."""
    if axis == len(ranges):
        return value
    places, length = ranges[axis], int(x.shape[axis])
    part = _written(xp, _along(x, axis, places), value, ranges, axis + 1)
    if len(places) == length:
        return part
    stop = places.stop
    if places.step > 1:
        # each number with the numbers up to the next one
        stop = min(places.start + len(places) * places.step, length)
        part = _spread(xp, _along(x, axis, range(places.start, stop)), part, places.step, axis)
    pieces = [part]
    if places.start:
        pieces.insert(0, _along(x, axis, range(places.start)))
    if stop < length:
        pieces.append(_along(x, axis, range(stop, length)))
    return xp.concat(pieces, axis=axis)


def _spread(xp: Namespace, x: Tensor, part: Tensor, step: int, axis: int) -> Tensor:
    """The tensor with other numbers at each multiple of the step along an axis."""
    shape = [int(length) for length in x.shape]
    length, count = shape[axis], int(part.shape[axis])
    missing = count * step - length
    if missing:
        padding = xp.zeros(
            (*shape[:axis], missing, *shape[axis + 1 :]), dtype=x.dtype, device=device_of(x)
        )
        x = xp.concat([x, padding], axis=axis)
    blocks = xp.reshape(x, (*shape[:axis], count, step, *shape[axis + 1 :]))
    later = _along(blocks, axis + 1, range(1, step))
    blocks = xp.concat([xp.expand_dims(part, axis=axis + 1), later], axis=axis + 1)
    x = xp.reshape(blocks, (*shape[:axis], count * step, *shape[axis + 1 :]))
    if missing:
        x = _along(x, axis, range(length))
    return x


def _along(x: Tensor, axis: int, places: range) -> Tensor:
    """The numbers in an ascending range along an axis."""
    ranges = [range(int(length)) for length in x.shape]
    if places == ranges[axis]:
        return x
    ranges[axis] = places
    return _native_slice(x, ranges)


def _native_slice(x: Tensor, ranges: list[range]) -> Tensor:
    """The numbers in ascending ranges, by the framework's own slice."""
    key = tuple(slice(places.start, places.stop, places.step) for places in ranges)
    maths = owner_of(x).load("maths")
    if maths.has("sliced"):
        return maths.sliced(x, key)
    return x[key]
