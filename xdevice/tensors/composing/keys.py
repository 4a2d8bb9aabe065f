"""The keys of ``x[key]`` as NumPy has them: integers, slices, ``...``, ``None``, and tensors."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Tensor
from xdevice.errors import ArgumentError
from xdevice.typing import Namespace

Key: TypeAlias = Any
Entry: TypeAlias = Any
"""One of the parts of a key: an integer, a slice, ``None``, or a tensor."""


class Entries(NamedTuple):
    """A key with one entry for each axis, and ``None`` for each new axis."""

    entries: list[Entry]
    has_tensors: bool


class Places(NamedTuple):
    """What integers, slices and new axes select."""

    ranges: list[range]  # one for each axis
    shape: tuple[int, ...]  # of ``x[key]``: without the axes of integers, with new ones


def entries_of(xp: Namespace, x: Tensor, key: Key) -> Entries:
    keys = key if isinstance(key, tuple) else (key,)
    shape = tuple(x.shape)
    if len(keys) == 1 and is_mask(xp, keys[0]) and tuple(keys[0].shape) == shape:
        return Entries([keys[0]], True)
    axes = sum(axes_of(xp, entry) for entry in keys)
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
    return Entries(entries, any(map(is_tensor, entries)))


def axes_of(xp: Namespace, entry: Entry) -> int:
    """How many axes the entry indexes."""
    if entry is None or entry is ...:
        return 0
    if is_mask(xp, entry):
        return len(entry.shape)
    if is_tensor(entry) or isinstance(entry, slice):
        return 1
    if isinstance(entry, bool) or not hasattr(entry, "__index__"):
        raise IndexError(
            f"a {type(entry).__name__} is not an index; give integers, slices, '...', None, or "
            f"arrays of integers or booleans"
        )
    return 1


def is_tensor(entry: Entry) -> bool:
    return hasattr(entry, "shape") and hasattr(entry, "dtype") and not isinstance(entry, slice)


def is_mask(xp: Namespace, entry: Entry) -> bool:
    return is_tensor(entry) and xp.isdtype(entry.dtype, "bool")


def position_of(index: Any, length: int, axis: int) -> int:
    """The position of an integer, counted from the start of the axis."""
    position: int = index.__index__()
    if not -length <= position < length:
        raise IndexError(f"index {position} is out of bounds for axis {axis} with size {length}")
    return position % length


def places_of(x: Tensor, entries: list[Entry]) -> Places:
    """The places of integers, slices and new axes, one entry for each axis."""
    ranges: list[range] = []
    shape: list[int] = []
    for entry in entries:
        if entry is None:
            shape.append(1)
            continue
        axis = len(ranges)
        length = int(x.shape[axis])
        if isinstance(entry, slice):
            ranges.append(range(length)[entry])
            shape.append(len(ranges[-1]))
        else:
            position = position_of(entry, length, axis)
            ranges.append(range(position, position + 1))
    return Places(ranges, tuple(shape))


def broadcast_to_places(xp: Namespace, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The numbers to write, in the shape of the places where they are written."""
    extra = len(value.shape) - len(shape)
    if extra > 0 and set(value.shape[:extra]) == {1}:  # as NumPy allows
        value = xp.reshape(value, tuple(value.shape[extra:]))
    lengths = zip(reversed(value.shape), reversed(shape), strict=False)
    fits = len(value.shape) <= len(shape) and all(own in (1, places) for own, places in lengths)
    if not fits:
        raise ArgumentError(
            f"numbers of shape {tuple(value.shape)} do not fit in places of shape {shape}"
        )
    return xp.broadcast_to(value, shape)
