"""Trees: nested containers with tensors as leaves.

`FlatTree` opens each container of a tree once. From that it makes the tree with new
leaves, and finds the paths that errors name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from operator import is_not
from typing import Any, TypeAlias, TypeVar

from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotATensorError,
    XDeviceError,
    in_one_line,
)
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
        self._opened: dict[int, Opened] = {}  # by id, each after those that it is in
        self._root = tree
        if skip != ():
            self._open_without([skip] if isinstance(skip, (int, str)) else list(skip or ()))
            return
        with_static_parts: list[Node] = []
        appears_again = False
        leaves, opened = self.leaves, self._opened
        cls: type | None = None
        container = LEAF
        nodes = [tree]
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
        if appears_again or with_static_parts:
            self._check(appears_again, with_static_parts)

    def _open_without(self, names: list[object]) -> None:
        """Open the tree without the parts of these names, and those at these paths."""
        steps = frozenset(step for name in names for step in _steps_to(name))
        paths = frozenset(path for name in names for path in (f"{name}", f".{name}"))
        with_static_parts: list[Node] = []
        appears_again = False
        if not is_leaf(self.tree):
            self._root = _Place(self.tree, "")
        nodes = [self._root]
        for node in nodes:  # the list grows meanwhile
            place = node if isinstance(node, _Place) else _Place(node)
            if place.container is LEAF:
                self.leaves.append(node)
                continue
            if id(node) in self._opened:
                appears_again = True
                continue
            if place.static(place.node):
                with_static_parts.append(place.node)
            parts: Parts = []
            all_paths = place.container.paths(place.node)
            for step, part in zip(all_paths, place.container.parts(place.node), strict=True):
                path = None if place.path is None else place.path + step
                if step in steps or path in paths:
                    place.skipped[len(parts) + len(place.skipped)] = part
                elif path is None or is_leaf(part) or not _leads_on(path, paths):
                    parts.append(part)
                else:
                    parts.append(_Place(part, path))
            nodes += parts
            self._opened[id(node)] = place, place.node, parts
        self._check(appears_again, with_static_parts, steps)

    def _check(
        self, appears_again: bool, with_static_parts: list[Node], skip: Collection[str] = ()
    ) -> None:
        if appears_again:
            self._sort()
        for node in with_static_parts:
            try:
                check_static_parts(node, skip)
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
            if changed:
                new[key] = container.rebuild(node, new_parts)
            elif afresh and not isinstance(node, (tuple, frozenset)):
                with suppress(ArgumentError):
                    new[key] = container.rebuild(node, new_parts)
        return new.get(id(self._root), self.tree)

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


class _Place(Container):
    """A container without its parts that are skipped.

    With a path it is the one at that place, from where a name of ``skip`` leads on: at
    another place of the same container nothing may be skipped.
    """

    def __init__(self, node: Node, path: str | None = None) -> None:
        self.node = node
        self.path = path
        self.container = containers[type(node)]
        self.skipped: dict[int, Any] = {}  # by their numbers among all parts

    def static(self, node: Node) -> Parts:
        return self.container.static(node)

    def paths(self, node: Node) -> list[str]:
        paths = self.container.paths(node)
        return [path for i, path in enumerate(paths) if i not in self.skipped]

    def rebuild(self, node: Node, parts: Parts) -> Node:
        parts = [part.node if isinstance(part, _Place) else part for part in parts]
        for i, part in self.skipped.items():
            parts.insert(i, part)
        return self.container.rebuild(node, parts)


def check_ordered(flat: FlatTree) -> None:
    """Raise an error for a set, whose parts do not correspond to those of an equal one."""
    for path, node, _ in flat.nodes():
        if isinstance(node, (set, frozenset)) and len(node) > 1:
            raise ArgumentTypeError(
                f"there is a set{_at(path)}, whose order differs from tree to tree; give a list"
            )


def _steps_to(name: object) -> tuple[str, ...]:
    """The last steps of the paths to parts of that name; a key may be a number."""
    return f".{name}", f"[{name}]", f"[{in_one_line(repr(name))}]"


def _leads_on(path: str, paths: frozenset[str]) -> bool:
    return any(name.startswith((f"{path}.", f"{path}[")) for name in paths)


def is_leaf(tree: Tree) -> bool:
    return containers[type(tree)] is LEAF


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error


def _at(path: str) -> str:
    return f" at {path}" if path else ""
