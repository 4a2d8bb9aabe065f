"""Trees: nested containers with tensors as leaves.

`FlatTree` opens each container of a tree once. From that it makes the tree with new
leaves, and finds the paths that errors name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias, TypeVar

from xdevice.errors import ArgumentError, NotATensorError, XDeviceError
from xdevice.framework.ownership import ATOMS
from xdevice.tensors.trees.containers import (
    DICT,
    LEAF,
    LIST,
    TUPLE,
    Container,
    Node,
    Parts,
    containers,
)
from xdevice.tensors.trees.inside import check_static_parts
from xdevice.tensors.trees.leaves import Leaf
from xdevice.tensors.trees.skip import Skip

T = TypeVar("T")

Tree: TypeAlias = Any
"""A leaf, or nested containers of leaves."""


class FlatTree:
    """The leaves and the containers of a tree.

    A container that appears again is opened once, and stays shared. What
    ``skip`` names is not opened, and is not a leaf. An error if a tensor is
    where it would not be moved: in a dict's key, or a static field.
    """

    def __init__(self, tree: Tree, skip: Collection[str | int] = ()) -> None:
        self.tree = tree
        self.leaves: list[Leaf] = []
        # each container by its id, with how it is opened, and its parts; outer ones first
        self._opened: dict[int, tuple[Container, Node, Collection[Any]]] = {}
        skipped = None if skip == () else Skip(tree, skip)
        appears_again = False
        leaves, opened = self.leaves, self._opened
        nodes = [tree]
        for node in nodes:  # the list grows meanwhile
            container = containers[type(node)]
            if container is LEAF:
                leaves.append(node)
            elif id(node) in opened:
                appears_again = True
            else:
                if skipped is not None:
                    container = skipped.rest_of(node)
                # The usual classes are opened here: a method takes longer than all the rest.
                parts: Collection[Any] = node
                if container is DICT:
                    parts = node.values()
                    for key in node:
                        if type(key) is not str and type(key) not in ATOMS:
                            self._check_static_parts(container, node, skipped)
                            break
                elif container is not LIST and container is not TUPLE:
                    container = container.of(node)
                    parts = container.parts(node)
                    if container.static(node):
                        self._check_static_parts(container, node, skipped)
                opened[id(node)] = container, node, parts
                nodes += parts
        if appears_again:
            self._sort()

    def _check_static_parts(self, container: Container, node: Node, skipped: Skip | None) -> None:
        try:
            check_static_parts(container, node, skipped)
        except NotATensorError as error:
            raise at_path(error, self.path_to(node)) from error.__cause__

    def _sort(self) -> None:
        """Order the containers anew, so that each is after all that it is in."""
        inner = {
            key: [id(part) for part in parts if id(part) in self._opened]
            for key, (_, _, parts) in self._opened.items()
        }
        try:
            inner_first = list(TopologicalSorter(inner).static_order())
        except CycleError:
            raise ArgumentError(
                f"this {type(self.tree).__name__} contains itself; pass its parts"
            ) from None
        self._opened = {key: self._opened[key] for key in reversed(inner_first)}

    def replace(self, new_leaves: Mapping[int, Leaf], *, afresh: bool = False) -> Tree:
        """The tree with new leaves, by the ids of the old ones; others stay.

        Unchanged containers are returned as they are. With ``afresh`` they are
        rebuilt, too, except tuples and frozensets, which cannot change, and
        containers that cannot be rebuilt.
        """
        new = dict(new_leaves)
        for key, (container, node, parts) in reversed(self._opened.items()):
            new_parts: Parts = []
            changed = False
            for part in parts:
                new_part = new.get(id(part), part)
                new_parts.append(new_part)
                if new_part is not part:
                    changed = True
            if not changed and not (afresh and not isinstance(node, (tuple, frozenset))):
                continue
            # the usual classes here, as above
            if container is DICT:
                new[key] = dict(zip(node, new_parts, strict=True))
            elif container is LIST:
                new[key] = new_parts
            elif container is TUPLE:
                new[key] = tuple(new_parts)
            elif changed:
                new[key] = container.rebuild(node, new_parts)
            else:
                with suppress(ArgumentError):
                    new[key] = container.rebuild(node, new_parts)
        return new.get(id(self.tree), self.tree)

    def for_each(self, fn: Callable[[Leaf], T]) -> dict[int, T]:
        """The result of ``fn`` for each leaf, by the leaf's id; the leaf's path is added to errors."""
        results: dict[int, T] = {}
        for leaf in self.leaves:
            if id(leaf) not in results:
                try:
                    results[id(leaf)] = fn(leaf)
                except XDeviceError as error:
                    raise at_path(error, self.path_to(leaf)) from error.__cause__
        return results

    def map(self, fn: Callable[[Leaf], Leaf], *, afresh: bool = False) -> Tree:
        """The tree with ``fn`` applied to each leaf, once to a leaf that appears twice."""
        return self.replace(self.for_each(fn), afresh=afresh)

    def nodes(self, *, again: bool = False) -> Iterator[tuple[str, Node, Container]]:
        """The path of each node, the node, and how it is opened, `LEAF` for a leaf.

        A path is written as in Python code, ``['batch'][0].mask``; that of the
        root is empty. A container that appears again is opened ``again``, or not.
        """
        nodes = [("", self.tree)]
        done: set[int] = set()
        while nodes:
            path, key = nodes.pop()
            container, node, parts = self._opened.get(id(key), (LEAF, key, ()))
            if id(key) in done and container is not LEAF and not again:
                continue
            done.add(id(key))
            yield path, node, container
            steps = zip(container.paths(node), parts, strict=True)
            nodes += reversed([(path + step, part) for step, part in steps])

    def named(self) -> Iterator[tuple[str, Leaf]]:
        """The leaves with their paths."""
        return ((path, node) for path, node, container in self.nodes() if container is LEAF)

    def path_to(self, target: object) -> str:
        """The path of the first place of a leaf or container."""
        return next((path for path, node, _ in self.nodes() if node is target), "")


def is_leaf(tree: Tree) -> bool:
    return containers[type(tree)] is LEAF


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error
