"""Copies of batches, which later writes into a batch's memory do not change."""

from array import array
from collections.abc import Container
from contextlib import suppress
from copy import copy
from typing import Any

from xdevice.contract import Tensor, Tree
from xdevice.errors import NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.tensors.trees.leaves import Leaf, known_leaf
from xdevice.tensors.trees.tree import FlatTree


def snapshot(tree: Tree, new_leaves: Container[int] = (), copies_tensors: bool = True) -> Tree:
    """The tree in containers, tensors and buffers of its own.

    Models and objects of other classes are not copied. ``new_leaves`` has the
    ids of leaves whose memory is their own already. Without
    ``copies_tensors``, all tensors have memory of their own.
    """

    def own_leaf(leaf: Leaf) -> Leaf:
        known = known_leaf(leaf)
        if known is None:
            return own_data(leaf)
        if not copies_tensors or id(leaf) in new_leaves:
            return leaf
        if known.backend is None or known.category != "tensor":
            return leaf
        return _own_tensor(leaf, known.backend)

    return FlatTree(tree).map(own_leaf, afresh=True)


def _own_tensor(tensor: Tensor, owner: Backend) -> Tensor:
    try:
        new_tensor = owner.placement.copy(tensor)
    except NotSupportedError:
        # a handle, or a sparse tensor: it cannot be written to in place
        return tensor
    if owner.has("streams", "wait"):
        owner.streams.wait([new_tensor])
    return new_tensor


def own_data(leaf: Leaf) -> Leaf:
    """A leaf of plain data, in memory of its own."""
    if isinstance(leaf, (bytearray, array)):
        return copy(leaf)
    if isinstance(leaf, memoryview):
        # memoryview itself cannot make some formats and shapes
        with suppress(TypeError, ValueError):
            new_view: Any = memoryview(bytearray(leaf.tobytes()))  # typed for constant formats
            return new_view.cast(leaf.format, leaf.shape)
    return leaf
