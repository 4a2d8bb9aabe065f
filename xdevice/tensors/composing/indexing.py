"""``x[key]`` and ``x[key] = value`` for any framework's tensors, as in NumPy.

Gradients flow through both, and every result is on the tensor's device.
`keys` reads a key, `slices` serves integers and slices, and `gathering` tensors.
"""

from __future__ import annotations

from xdevice.contract import Tensor
from xdevice.tensors.composing.gathering import gathered, with_scattered
from xdevice.tensors.composing.keys import Entry, Key, entries_of, is_mask
from xdevice.tensors.composing.slices import sliced, with_slice
from xdevice.typing import Namespace


def item(xp: Namespace, x: Tensor, key: Key) -> Tensor:
    """The numbers at the key: integers, slices, ``...``, ``None``, and tensors as indices or mask."""
    entries, has_tensors = entries_of(xp, x, key)
    if has_tensors:
        return gathered(xp, x, entries)
    return sliced(xp, x, entries)


def with_item(xp: Namespace, x: Tensor, key: Key, value: Tensor) -> Tensor:
    """The tensor with other numbers at the key; of several for one place, the last one counts."""
    entries, has_tensors = entries_of(xp, x, key)
    value = xp.astype(value, x.dtype, copy=False)
    first: Entry = None
    if entries:
        first = entries[0]
    if value.ndim == 0 and is_mask(xp, first) and tuple(first.shape) == tuple(x.shape):
        return xp.where(first, value, x)
    if not has_tensors:
        return with_slice(xp, x, entries, value)
    return with_scattered(xp, x, entries, value)
