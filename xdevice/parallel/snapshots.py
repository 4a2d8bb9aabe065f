"""A batch as it is now, whatever is written into its memory afterwards."""

from array import array
from collections.abc import Container
from contextlib import suppress
from copy import copy
from typing import Any

from xdevice.errors import NotSupportedError
from xdevice.framework.ownership import Ownership
from xdevice.tensors.trees.leaves import leaf_ownership
from xdevice.tensors.trees.tree import flatten


def snapshot(tree: Any, own: Container[int] = (), tensors: bool = True) -> Any:
    """The tree in containers, tensors and buffers of its own; models and objects of other classes are themselves.

    Leaves whose ids are in ``own`` have memory of their own already; so have
    all tensors, unless ``tensors``.
    """

    def kept(leaf: Any) -> Any:
        what = leaf_ownership(leaf)
        if what is None:
            return plain(leaf)
        if not tensors or id(leaf) in own or not isinstance(what, Ownership) or not what.is_tensor:
            return leaf
        owner = what.backend
        try:
            copied = owner.placement.copy(leaf)
        except NotSupportedError:  # a handle, a sparse tensor: it cannot be written to in place
            return leaf
        if owner.load("arrivals").has("wait"):
            owner.arrivals.wait([copied])
        return copied

    return flatten(tree).map(kept, afresh=True)


def plain(leaf: Any) -> Any:
    """A leaf of plain data in memory of its own."""
    if isinstance(leaf, (bytearray, array)):
        return copy(leaf)
    if isinstance(leaf, memoryview):
        with suppress(
            TypeError, ValueError
        ):  # of a format or shape that memoryview itself cannot make
            raw: Any = memoryview(bytearray(leaf.tobytes()))  # typed for constant formats alone
            return raw.cast(leaf.format, leaf.shape)
    return leaf
