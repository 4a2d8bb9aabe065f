"""Trees: nested containers with tensors as leaves.

`FlatTree` opens each container of a tree once. From that it makes the tree with new
leaves, and finds the paths that errors name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from operator import is_not
from typing import Any, NamedTuple, TypeAlias, TypeVar

from xdevice.errors import ArgumentError, ArgumentTypeError, NotATensorError, XDeviceError
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
from xdevice.tensors.trees.leaves import Leaf, check_static_parts

T = TypeVar("T")

Tree: TypeAlias = Any
"""A leaf, or nested containers of leaves."""

Opened: TypeAlias = tuple[Container, Node, Collection[Any]]
"""How a container is opened, the container, and its parts."""

_MAX_PLACES = 200_000  # of leaves and containers, where each place counts


class FlatTree:
    """The leaves and the containers of a tree.

    A container that appears again is opened once, and stays shared. What
    ``skip`` names is not opened, and is not a leaf. An error if a tensor is
    where it would not be moved: in a dict's key, or a static field.
    """

    def __init__(self, tree: Tree, skip: Collection[str] = ()) -> None:
        self.tree = tree
        self.leaves: list[Leaf] = []
        self._root: Tree = _without(tree, skip) if skip else tree
        self._opened: dict[int, Opened] = {}  # by id, each after those that it is in
        with_static_parts: list[Node] = []
        appears_again = False
        leaves, opened = self.leaves, self._opened
        cls: type | None = None
        container = LEAF
        nodes = [self._root]
        for node in nodes:  # the list grows meanwhile
            if type(node) is not cls:
                cls = type(node)
                container = containers[cls]
            if container is LEAF:
                leaves.append(node)
            elif id(node) in opened:
                appears_again = True
            else:
                # The usual classes are opened here: a method takes longer than all the rest.
                parts: Collection[Any] = node
                if container is DICT:
                    parts = node.values()
                    for key in node:
                        if type(key) is not str and type(key) not in ATOMS:
                            with_static_parts.append(node)
                            break
                elif container is not LIST and container is not TUPLE:
                    parts = container.parts(node)
                    if container.static(node):
                        with_static_parts.append(node)
                nodes += parts
                opened[id(node)] = container, node, parts
        if appears_again:
            self._sort()
        if with_static_parts:
            self._check_static_parts(with_static_parts, skip)

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

    def _check_static_parts(self, nodes: list[Node], skip: Collection[str]) -> None:
        for node in nodes:
            try:
                check_static_parts(_whole(node), skip)
            except NotATensorError as error:
                raise at_path(error, self.path_to(node)) from error.__cause__

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
            if changed:
                new[key] = container.rebuild(node, new_parts)
            elif afresh and not isinstance(node, (tuple, frozenset)):
                with suppress(ArgumentError):
                    new[key] = container.rebuild(node, new_parts)
        return _whole(new.get(id(self._root), self._root))

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
        nodes = [("", self._root)]
        done: set[int] = set()
        while nodes:
            path, node = nodes.pop()
            container, _, parts = self._opened.get(id(node), (LEAF, node, ()))
            if id(node) in done and container is not LEAF and not again:
                continue
            done.add(id(node))
            yield path, node, container
            steps = zip(container.paths(node), parts, strict=True)
            nodes += reversed([(path + step, part) for step, part in steps])

    def named(self) -> Iterator[tuple[str, Leaf]]:
        """The leaves with their paths."""
        return ((path, node) for path, node, container in self.nodes() if container is LEAF)

    def path_to(self, target: object) -> str:
        """The path of the first place of a leaf or container."""
        return next((path for path, node, _ in self.nodes() if node is target), "")


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
        for path, node, container in self.nodes(again=True):
            self._places.append(node)
            if len(self._places) > _MAX_PLACES:
                raise ArgumentError(
                    f"containers appear again and again in this {type(tree).__name__}, so that it "
                    f"has over {_MAX_PLACES} places; pass each container once"
                )
            if container is LEAF:
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
            container, _, parts = self._opened.get(id(node), (LEAF, node, ()))
            if container is LEAF:
                number -= 1
                new.append(new_leaf[number])
                continue
            new_parts = [new.pop() for _ in parts]
            changed = any(map(is_not, parts, new_parts))
            new.append(container.rebuild(node, new_parts) if changed else node)
        return new.pop()


class _Partial(NamedTuple):
    """A container in a tree without the parts that ``skip`` names; or such a part, without any."""

    container: Container
    node: Node
    parts: Parts


class _PartialContainer(Container):
    def parts(self, node: _Partial) -> Parts:
        return node.parts

    def paths(self, node: _Partial) -> list[str]:
        return node.container.paths(node.node)

    def static(self, node: _Partial) -> Parts:
        return node.container.static(node.node)

    def rebuild(self, node: _Partial, parts: Parts) -> Node:
        return node.container.rebuild(node.node, [_whole(part) for part in parts])


containers[_Partial] = _PartialContainer(_Partial)


def _whole(node: Node) -> Node:
    return node.node if isinstance(node, _Partial) else node


def _without(tree: Tree, skip: Collection[str]) -> Tree:
    """The tree with a `_Partial` for each container in which there is something to skip."""
    # a key may be a number, as the index in a list
    names = frozenset(map(str, [skip] if isinstance(skip, (int, str)) else skip))
    try:
        return _partial(tree, "", names, {})
    except RecursionError:
        raise ArgumentError(
            f"this {type(tree).__name__} is nested too deep for skip=, or contains itself; "
            "pass its parts"
        ) from None


def _partial(
    node: Node, path: str, names: frozenset[str], done: dict[tuple[int, str], Node]
) -> Node:
    container = containers[type(node)]
    if container is LEAF:
        return node
    # Where a name may lead into a container, another place of it may be left as it is.
    leads_here = any(name.startswith((path, path.lstrip("."))) for name in names)
    place = id(node), path if leads_here else ""
    if place not in done:
        parts = container.parts(node)
        kept: Parts = []
        for part, step in zip(parts, container.paths(node), strict=True):
            part_path = path + step
            if names.isdisjoint((part_path, part_path.lstrip("."), step.strip("[].'\""))):
                kept.append(_partial(part, part_path, names, done))
            else:
                kept.append(_Partial(LEAF, part, []))
        changed = any(map(is_not, parts, kept))
        done[place] = _Partial(container, node, kept) if changed else node
    return done[place]


def check_ordered(flat: FlatTree) -> None:
    """Raise an error for a set, whose parts do not correspond to those of an equal one."""
    for path, node, _ in flat.nodes():
        if isinstance(node, (set, frozenset)) and len(node) > 1:
            raise ArgumentTypeError(
                f"there is a set{_at(path)}, whose order differs from tree to tree; give a list"
            )


def is_leaf(tree: Tree) -> bool:
    return containers[type(tree)] is LEAF


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error


def _at(path: str) -> str:
    return f" at {path}" if path else ""
