"""Trees: nested containers with tensors as leaves.

`OpenTree` finds the leaves, and makes the tree with new ones: a container that
appears again is opened once, and stays shared. `FlatTree` lists the leaves of
every place in order, so that those of several trees correspond. Errors name a
leaf by its path, which `walk` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, TypeAlias, TypeVar

from xdevice.errors import ArgumentError, ArgumentTypeError, NotATensorError, XDeviceError
from xdevice.framework.ownership import ATOMS
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

Opened: TypeAlias = dict[int, tuple[Node, Collection[Any]]]
"""Containers by id, each with its parts: a registered class may make new ones each time."""

_MAX_DEPTH = 300  # of containers within containers; Python's stack has 1000 frames
_MAX_PLACES = 200_000  # of nodes in a `FlatTree`
_NO_NAMES: frozenset[str] = frozenset()
_known_container = containers.get
_UNKNOWN = Container(object)  # for a class that `containers` does not have yet


class OpenTree:
    """A tree's leaves, in any order, without those that ``skip`` names.

    A container that appears again is opened once. An error if a tensor is where
    it would not be moved: in a dict's key, or a static field.
    """

    def __init__(self, tree: Tree, skip: Collection[str] = ()) -> None:
        self.tree = tree
        self.leaves: list[Leaf] = []
        self.names = _names(skip) if skip else _NO_NAMES
        self.opened: Opened = {}
        container = container_of(type(tree))
        if container is None:
            self.leaves.append(tree)
        elif not self.names:
            self._open(tree, container, 0)
        else:
            for path, node, container in walk(tree, self.names, self.opened):
                if container is None:
                    self.leaves.append(node)
                else:
                    _check_static(container, node, path, self.names)

    def _open(self, node: Node, container: Container, depth: int) -> None:
        """Find the leaves of a container."""
        if depth > _MAX_DEPTH:
            raise _too_deep(self.tree)
        parts: Collection[Any]
        if container in SEQUENCES:
            parts = node
        elif container is DICT and ATOMS.issuperset(map(type, node)):
            parts = node.values()
        else:
            if container.static(node):
                _check_static(container, node, self.path_to(node))
            parts = container.parts(node)
        self.opened[id(node)] = node, parts
        for part in parts:
            part_container = _known_container(type(part), _UNKNOWN)
            if part_container is _UNKNOWN:
                part_container = container_of(type(part))
            if part_container is None:
                self.leaves.append(part)
            elif id(part) not in self.opened:
                self._open(part, part_container, depth + 1)

    def rebuild(self, new_leaves: Mapping[int, Leaf], afresh: bool = False) -> Tree:
        """The tree with new leaves, by the ids of the old ones; others stay.

        Unchanged containers are returned as they are. With ``afresh`` they are
        rebuilt, too, except tuples and frozensets, which cannot change, and
        containers that cannot be rebuilt.
        """
        container = container_of(type(self.tree))
        if container is None:
            return new_leaves.get(id(self.tree), self.tree)
        return _Rebuilding(self, new_leaves, afresh)(self.tree, container, "", 0)

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
        return self.rebuild(self.for_each(fn), afresh)

    def path_to(self, target: object) -> str:
        """The path of the first place of a node."""
        nodes = walk(self.tree, self.names, self.opened)
        return next((path for path, node, _ in nodes if node is target), "")

    def named(self) -> Iterator[tuple[str, Leaf]]:
        """The leaves with their paths."""
        for path, node, container in walk(self.tree, self.names, self.opened):
            if container is None:
                yield path, node


class _Rebuilding:
    """One call of `OpenTree.rebuild`."""

    def __init__(self, tree: OpenTree, new_leaves: Mapping[int, Leaf], afresh: bool) -> None:
        self.names = tree.names
        self.opened = tree.opened
        self.new_leaf = new_leaves.get
        self.afresh = afresh
        self.new_nodes: dict[object, Node] = {}  # a container that appears again stays shared

    def __call__(self, node: Node, container: Container, path: str, depth: int) -> Node:
        names, new_nodes = self.names, self.new_nodes
        key = _key(node, path, names) if names else id(node)
        if key in new_nodes:
            return new_nodes[key]
        if depth > _MAX_DEPTH:
            raise _too_deep(node)
        parts = self.opened[id(node)][1]
        steps = container.paths(node) if names else ()
        new_parts: list[Any] = []
        for part in parts:
            part_path = ""
            if names:
                step = steps[len(new_parts)]
                part_path = path + step
                if _is_named(path, step, names):
                    new_parts.append(part)
                    continue
            part_container = _known_container(type(part), _UNKNOWN)
            if part_container is _UNKNOWN:
                part_container = container_of(type(part))
            if part_container is None:
                new_parts.append(self.new_leaf(id(part), part))
            else:
                new_parts.append(self(part, part_container, part_path, depth + 1))
        new_node = node
        is_unchanged = all(map(is_, new_parts, parts))
        if not is_unchanged or (self.afresh and not isinstance(node, (tuple, frozenset))):
            try:
                new_node = container.rebuild(node, new_parts)
            except ArgumentError:
                if not is_unchanged:
                    raise
        new_nodes[key] = new_node
        return new_node


class FlatTree:
    """A tree's leaves at every place, in an order that is the same for trees of one structure."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.leaves: list[Leaf] = []
        self.paths: list[str] = []
        for number, (path, node, container) in enumerate(walk(tree, again=True)):
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
        return _unflatten(self.tree, iter(leaves))


def _unflatten(node: Node, new_leaves: Iterator[Leaf]) -> Node:
    container = container_of(type(node))
    if container is None:
        return next(new_leaves)
    parts = container.parts(node)
    new_parts = list(parts)
    for i in _order(container, container.paths(node)):
        new_parts[i] = _unflatten(parts[i], new_leaves)
    if all(map(is_, new_parts, parts)):
        return node
    return container.rebuild(node, new_parts)


Nodes: TypeAlias = Iterator[tuple[str, Node, Container | None]]


def walk(
    tree: Tree,
    names: frozenset[str] = _NO_NAMES,
    opened: Opened | None = None,
    *,
    again: bool = False,
) -> Nodes:
    """The path of each node, the node, and how it is opened; ``None`` for a leaf.

    A path is written as in Python code, ``['batch'][0].mask``; that of the root
    is empty. A container that appears again is opened ``again``, or not. The
    nodes that ``names`` name are left out. Containers that are opened are added
    to ``opened``.
    """
    return _Walk(names, {} if opened is None else opened, again).nodes(tree, "", 0)


class _Walk:
    def __init__(self, names: frozenset[str], opened: Opened, again: bool) -> None:
        self.names = names
        self.opened = opened
        self.again = again
        self.visited: set[object] = set()

    def nodes(self, node: Node, path: str, depth: int) -> Nodes:
        container = container_of(type(node))
        yield path, node, container
        if container is None:
            return
        key = _key(node, path, self.names)
        if key in self.visited and not self.again:
            return
        self.visited.add(key)
        if depth > _MAX_DEPTH:
            raise _too_deep(node)
        if id(node) not in self.opened:
            self.opened[id(node)] = node, container.parts(node)
        parts = list(self.opened[id(node)][1])
        steps = container.paths(node)
        for i in _order(container, steps):
            if not (self.names and _is_named(path, steps[i], self.names)):
                yield from self.nodes(parts[i], path + steps[i], depth + 1)


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
    container: Container, node: Node, path: str, names: frozenset[str] = _NO_NAMES
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
