"""Trees: nested containers with tensors as leaves.

`OpenTree` finds the leaves, and makes the tree with new ones: a container that
appears again is opened once, and stays shared. `FlatTree` lists the leaves of
every place in order, so that those of several trees correspond. Errors name a
leaf by its path, which `walk` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from operator import is_
from typing import Any, TypeAlias, TypeVar

from xdevice.errors import ArgumentError, ArgumentTypeError, NotATensorError, XDeviceError
from xdevice.tensors.trees.containers import (
    DICT,
    SEQUENCES,
    Container,
    DictContainer,
    Node,
    container_of,
    containers,
)
from xdevice.tensors.trees.leaves import Leaf, check_static_parts

T = TypeVar("T")

Tree: TypeAlias = Any
"""A leaf, or nested containers of leaves."""

_MAX_DEPTH = 300  # of containers within containers; Python's stack has 1000 frames
_MAX_PLACES = 200_000  # of nodes in a `FlatTree`
_container_of = containers.get


class OpenTree:
    """A tree's leaves, in any order, without those that ``skip`` names.

    A container that appears again is opened once. An error if a tensor is where
    it would not be moved: in a dict's key, or a static field.
    """

    def __init__(self, tree: Tree, skip: Collection[str] = ()) -> None:
        self.tree = tree
        self.leaves: list[Leaf] = []
        self._names = _names(skip)
        # Each container, by id, with its parts: a registered class may make new ones each time.
        self._opened: dict[int, tuple[Node, Collection[Any]]] = {}
        container = container_of(type(tree))
        if container is None:
            self.leaves.append(tree)
        elif not self._names:
            self._open(tree, container, 0)
        else:
            for path, node, container in walk(tree, self._names, self._opened):
                if container is None:
                    self.leaves.append(node)
                else:
                    _check_static(container, node, path, self._names)

    def _open(self, node: Node, container: Container, depth: int) -> None:
        """Find the leaves of a container."""
        if depth > _MAX_DEPTH:
            raise _too_deep(self.tree)
        if container in SEQUENCES:
            parts = node
        else:
            if container.static(node):
                _check_static(container, node, self.path_to(node))
            parts = node.values() if container is DICT else container.parts(node)
        opened = self._opened
        opened[id(node)] = node, parts
        for part in parts:
            part_container = _container_of(type(part), DICT)
            if part_container is DICT and type(part) is not dict:  # the first object of its class
                part_container = container_of(type(part))
            if part_container is None:
                self.leaves.append(part)
            elif id(part) not in opened:
                self._open(part, part_container, depth + 1)

    def rebuild(self, new_leaf: Callable[[Leaf], Leaf], afresh: bool = False) -> Tree:
        """The tree with ``new_leaf`` applied to each leaf that is not skipped.

        Unchanged containers are returned as they are. With ``afresh`` they are
        rebuilt, too, except tuples and frozensets, which cannot change, and
        containers that cannot be rebuilt.
        """
        names, opened = self._names, self._opened
        new_nodes: dict[object, Node] = {}

        def new(node: Node, container: Container, path: str, depth: int) -> Node:
            key = _key(node, path, names) if names else id(node)
            if key in new_nodes:
                return new_nodes[key]
            if depth > _MAX_DEPTH:
                raise _too_deep(self.tree)
            parts = opened[id(node)][1]
            steps = container.paths(node) if names else ()
            new_parts = []
            for i, part in enumerate(parts):
                part_path = ""
                if names:
                    part_path = path + steps[i]
                    if _is_named(path, steps[i], names):
                        new_parts.append(part)
                        continue
                part_container = container_of(type(part))
                if part_container is None:
                    new_parts.append(new_leaf(part))
                else:
                    new_parts.append(new(part, part_container, part_path, depth + 1))
            new_node = node
            is_unchanged = all(map(is_, new_parts, parts))
            if not is_unchanged or (afresh and not isinstance(node, (tuple, frozenset))):
                try:
                    new_node = container.rebuild(node, new_parts)
                except ArgumentError:
                    if not is_unchanged:
                        raise
            new_nodes[key] = new_node
            return new_node

        container = container_of(type(self.tree))
        if container is None:
            return new_leaf(self.tree)
        return new(self.tree, container, "", 0)

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

    def map(self, fn: Callable[[Leaf], Leaf], afresh: bool = False) -> Tree:
        """The tree with ``fn`` applied to each leaf, once to a leaf that appears twice."""
        new_leaves = self.for_each(fn)
        return self.rebuild(lambda leaf: new_leaves[id(leaf)], afresh)

    def path_to(self, target: object) -> str:
        """The path of the first place of a node."""
        nodes = walk(self.tree, self._names, self._opened)
        return next((path for path, node, _ in nodes if node is target), "")

    def named(self) -> Iterator[tuple[str, Leaf]]:
        """The leaves with their paths."""
        for path, node, container in walk(self.tree, self._names, self._opened):
            if container is None:
                yield path, node


class FlatTree:
    """A tree's leaves at every place, in an order that is the same for trees of one structure."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.leaves: list[Leaf] = []
        self.paths: list[str] = []
        for number, (path, node, container) in enumerate(walk(tree, every_place=True)):
            if number > _MAX_PLACES:
                raise ArgumentError(
                    f"containers appear again and again in this {type(tree).__name__}, so that it "
                    f"has over {_MAX_PLACES} places; pass each container once"
                )
            check_ordered(node, path)
            if container is None:
                self.leaves.append(node)
                self.paths.append(path)
            else:
                _check_static(container, node, path)

    def at(self, i: int) -> str:
        """The place of a leaf, for a message: `` at ['batch'][0].mask``."""
        return _at(self.paths[i])

    def unflatten(self, leaves: Iterable[Leaf]) -> Tree:
        """The tree with these leaves in place of its own, in their order."""
        new_leaves = iter(leaves)

        def new(node: Node) -> Node:
            container = container_of(type(node))
            if container is None:
                return next(new_leaves)
            parts = container.parts(node)
            new_parts = list(parts)
            for i in _order(container, container.paths(node)):
                new_parts[i] = new(parts[i])
            is_unchanged = all(map(is_, new_parts, parts))
            return node if is_unchanged else container.rebuild(node, new_parts)

        return new(self.tree)


def walk(
    tree: Tree,
    names: frozenset[str] = frozenset(),
    opened: dict[int, tuple[Node, Collection[Any]]] | None = None,
    every_place: bool = False,
) -> Iterator[tuple[str, Node, Container | None]]:
    """The path of each node, the node, and how it is opened; ``None`` for a leaf.

    A path is written as in Python code, ``['batch'][0].mask``; that of the root
    is empty. A container that appears again is opened again for ``every_place``.
    The nodes that ``names`` name are left out. Containers that are opened are
    added to ``opened``.
    """
    opened = {} if opened is None else opened
    visited: set[object] = set()

    def visit(node: Node, path: str, depth: int) -> Iterator[tuple[str, Node, Container | None]]:
        container = container_of(type(node))
        yield path, node, container
        if container is None:
            return
        key = _key(node, path, names)
        if key in visited and not every_place:
            return
        visited.add(key)
        if depth > _MAX_DEPTH:
            raise _too_deep(tree)
        if id(node) not in opened:
            opened[id(node)] = node, container.parts(node)
        parts = list(opened[id(node)][1])
        steps = container.paths(node)
        for i in _order(container, steps) if every_place else range(len(parts)):
            if not (names and _is_named(path, steps[i], names)):
                yield from visit(parts[i], path + steps[i], depth + 1)

    return visit(tree, "", 0)


def check_ordered(node: Node, path: str) -> None:
    """Raise an error for a set, whose parts do not correspond to those of an equal one."""
    if isinstance(node, (set, frozenset)) and len(node) > 1:
        raise ArgumentTypeError(
            f"there is a set{_at(path)}, whose order differs from tree to tree; give a list"
        )


def is_leaf(tree: Tree) -> bool:
    return container_of(type(tree)) is None


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _order(container: Container, steps: list[str]) -> Sequence[int]:
    """The order of a container's parts: dicts with the same keys in another order correspond."""
    if isinstance(container, DictContainer):
        return sorted(range(len(steps)), key=steps.__getitem__)
    return range(len(steps))


def _check_static(
    container: Container, node: Node, path: str, names: frozenset[str] = frozenset()
) -> None:
    try:
        check_static_parts(container, node, names)
    except NotATensorError as error:
        raise at_path(error, path) from error.__cause__


def _too_deep(tree: Tree) -> ArgumentError:
    return ArgumentError(
        f"this {type(tree).__name__} is nested over {_MAX_DEPTH} levels deep, or contains itself; "
        "pass its parts"
    )


# ``skip`` names a part by its path, with or without its first dot, or by its
# key alone.


def _names(skip: Collection[str]) -> frozenset[str]:
    return frozenset((skip,) if isinstance(skip, str) else skip)


def _is_named(path: str, step: str, names: frozenset[str]) -> bool:
    part_path = path + step
    return not names.isdisjoint((part_path, part_path.lstrip("."), step.strip("[].'\"")))


def _key(node: Node, path: str, names: frozenset[str]) -> object:
    """The same for two places of a container from which the same parts are skipped."""
    if any(name.startswith((path, path.lstrip("."))) for name in names):
        return id(node), path
    return id(node)
