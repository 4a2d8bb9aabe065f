"""The leaves of trees of one structure, which correspond by their places."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_not

from xdevice.errors import ArgumentError, ArgumentTypeError
from xdevice.tensors.trees.containers import Node, Parts
from xdevice.tensors.trees.leaves import Leaf
from xdevice.tensors.trees.tree import FlatTree, Tree, rebuilt

_MAX_PLACES = 200_000  # of leaves and containers, where each place counts


class LeavesByPlace(FlatTree):
    """A flattened tree with the leaves of every place, in the order of their paths.

    So the leaves of trees of one structure correspond, also if the trees share
    other containers, and if dicts have their keys in another order.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        check_ordered(self)
        self._places: list[Node] = []  # each container before its parts
        named: list[tuple[str, Leaf]] = []
        for path, node, is_leaf in self.nodes(again=True):
            self._places.append(node)
            if len(self._places) > _MAX_PLACES:
                raise ArgumentError(
                    f"containers appear again and again in this {type(tree).__name__}, so that it "
                    f"has over {_MAX_PLACES} places; pass each container once"
                )
            if is_leaf:
                named.append((path, node))
        self._order = sorted(range(len(named)), key=lambda i: named[i][0])
        self.paths = [named[i][0] for i in self._order]
        self.leaves = [named[i][1] for i in self._order]

    def at(self, i: int) -> str:
        """The place of a leaf, for a message: `` at ['batch'][0].mask``."""
        return _at(self.paths[i])

    def rebuild(self, new_leaves: Iterable[Leaf]) -> Tree:
        """The tree with a new leaf at each place, in the order of their paths."""
        new_leaf = dict(zip(self._order, new_leaves, strict=True))
        number = len(new_leaf)
        new: Parts = []  # the parts of the containers to come, the first one last
        for node in reversed(self._places):
            if id(node) not in self._opened:
                number -= 1
                new.append(new_leaf[number])
                continue
            _, parts, node_parts = self._opened[id(node)]
            new_parts = [new.pop() for _ in parts]
            changed = any(map(is_not, parts, new_parts))
            new.append(rebuilt(node, node_parts, new_parts) if changed else node)
        return new.pop()


def check_ordered(flat: FlatTree) -> None:
    """Raise an error for a set, whose parts do not correspond to those of an equal one."""
    for path, node, _ in flat.nodes():
        if isinstance(node, (set, frozenset)) and len(node) > 1:
            raise ArgumentTypeError(
                f"there is a set{_at(path)}, whose order differs from tree to tree; give a list"
            )


def _at(path: str) -> str:
    return f" at {path}" if path else ""
