"""Trees: nested containers with tensors as leaves.

`FlatTree` finds the leaves of a tree. It keeps a spec of each container that it
opened: `rebuild` makes the tree with new leaves from it, and `nodes` finds the
paths that errors name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import is_not
from typing import Any, TypeAlias, TypeVar

from xdevice.errors import ArgumentError, ArgumentTypeError, NotATensorError, XDeviceError
from xdevice.framework.ownership import ATOMS
from xdevice.tensors.trees.containers import LEAF, Container, Node, container_of, containers
from xdevice.tensors.trees.leaves import Leaf, check_static_parts

T = TypeVar("T")

Tree: TypeAlias = Any
"""A leaf, or nested containers of leaves."""

Spec: TypeAlias = tuple[Container, Node, Collection[Any], list[Any]]
"""What opens a container, the container, its parts, and the spec of each part.

The spec of a leaf is `LEAF`. A container that appears again has the same spec.
It is a plain tuple, since every move makes one for each container.
"""

Nodes: TypeAlias = Iterator[tuple[str, Node, Container]]

_SKIPPED = Container(object)
"""For a part that ``skip`` names: in the spec it is a container without parts."""

_MAX_DEPTH = 300  # of containers within containers; Python's stack has 1000 frames
_MAX_PLACES = 200_000  # of leaves and containers, where each place counts
_known_container = containers.get


class FlatTree:
    """A flattened tree: its leaves in order, and the spec to rebuild it.

    A container that appears again is opened once, and stays shared. What
    ``skip`` names is not opened, and is not a leaf. An error if a tensor is
    where it would not be moved: in a dict's key, or a static field.
    """

    def __init__(self, tree: Tree, skip: Collection[str] = ()) -> None:
        self.tree = tree
        self.leaves: list[Leaf] = []
        self.spec: Any = LEAF
        # a key may be a number, as the index in a list
        self._names = frozenset(map(str, [skip] if isinstance(skip, (int, str)) else skip))
        self._specs: dict[object, Spec] = {}  # of the containers that were opened
        self._with_static_parts: list[tuple[Container, Node]] = []
        container = container_of(type(tree))
        if container is LEAF:
            self.leaves.append(tree)
        else:
            self.spec = self._open(tree, container, "", 0)
        for container, node in self._with_static_parts:
            try:
                check_static_parts(container, node, self._names)
            except NotATensorError as error:
                raise at_path(error, self.path_to(node)) from error.__cause__

    def _open(self, node: Node, container: Container, path: str, depth: int) -> Spec:
        """Add the leaves of a container. Its path is known only if there are names to skip."""
        if depth > _MAX_DEPTH:
            raise ArgumentError(
                f"this {type(self.tree).__name__} is nested over {_MAX_DEPTH} levels deep, or "
                "contains itself; pass its parts"
            )
        leaves, specs, names = self.leaves, self._specs, self._names
        cls = type(node)
        parts: Collection[Any] = node
        # The usual classes are opened here: methods would take longer than all the rest.
        if cls is dict:
            parts = node.values()
            for key in node:
                if type(key) not in ATOMS:
                    self._with_static_parts.append((container, node))
                    break
        elif cls is not list and cls is not tuple:
            parts = container.parts(node)
            if container.static(node):
                self._with_static_parts.append((container, node))
        steps = container.paths(node) if names else ()
        part_path = ""
        part_specs: list[Any] = []
        for part in parts:
            if names:
                step = steps[len(part_specs)]
                part_path = path + step
                if not names.isdisjoint(_names_of(part_path, step)):
                    part_specs.append((_SKIPPED, part, (), []))
                    continue
            part_container = _known_container(type(part)) or container_of(type(part))
            if part_container is LEAF:
                leaves.append(part)
                part_specs.append(LEAF)
                continue
            place: object = id(part)
            if names and _leads_to(part_path, names):
                place = id(part), part_path  # other parts may be skipped at another place
            if place not in specs:
                specs[place] = self._open(part, part_container, part_path, depth + 1)
            part_specs.append(specs[place])
        return container, node, parts, part_specs

    def rebuild(self, new_leaves: Iterable[Leaf], *, afresh: bool = False) -> Tree:
        """The tree with these leaves in place of its own, in their order.

        Unchanged containers are returned as they are. With ``afresh`` they are
        rebuilt, too, except tuples and frozensets, which cannot change, and
        containers that cannot be rebuilt.
        """
        if self.spec is LEAF:
            return next(iter(new_leaves))
        return _rebuilt(self.spec, iter(new_leaves), afresh, {})

    def replace(self, new_leaves: Mapping[int, Leaf]) -> Tree:
        """The tree with new leaves, by the ids of the old ones; others stay."""
        return self.rebuild([new_leaves.get(id(leaf), leaf) for leaf in self.leaves])

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
        results = self.for_each(fn)
        return self.rebuild([results[id(leaf)] for leaf in self.leaves], afresh=afresh)

    def nodes(self, *, again: bool = False) -> Nodes:
        """The path of each node, the node, and how it is opened, `LEAF` for a leaf.

        A path is written as in Python code, ``['batch'][0].mask``; that of the
        root is empty. A container that appears again is opened ``again``, or not.
        """
        if self.spec is LEAF:
            yield "", self.tree, LEAF
        else:
            yield from _nodes(self.spec, "", None if again else set())

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
        named: list[tuple[str, Leaf]] = []
        for number, (path, node, container) in enumerate(self.nodes(again=True)):
            if number > _MAX_PLACES:
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

    def rebuild(self, new_leaves: Iterable[Leaf], *, afresh: bool = False) -> Tree:
        """The tree with a new leaf at each place, in the order of their paths."""
        by_number = dict(zip(self._order, new_leaves, strict=True))
        in_tree = [by_number[i] for i in range(len(by_number))]
        if self.spec is LEAF:
            return in_tree[0]
        return _rebuilt(self.spec, iter(in_tree), afresh, None)


def _rebuilt(
    spec: Spec, new_leaves: Iterator[Leaf], afresh: bool, done: dict[int, Node] | None
) -> Node:
    """A container with new leaves, which are taken in order.

    ``done`` has the containers so far, by the ids of their specs, so that one
    that appears again stays shared; ``None``: each place has leaves of its own.
    """
    container, node, parts, part_specs = spec
    new_parts: list[Any] = []
    for part_spec in part_specs:
        if part_spec is LEAF:
            new_parts.append(next(new_leaves))
        elif done is None:
            new_parts.append(_rebuilt(part_spec, new_leaves, afresh, None))
        else:
            key = id(part_spec)
            if key not in done:
                done[key] = _rebuilt(part_spec, new_leaves, afresh, done)
            new_parts.append(done[key])
    if any(map(is_not, parts, new_parts)):
        return container.rebuild(node, new_parts)
    if not afresh or container is _SKIPPED or isinstance(node, (tuple, frozenset)):
        return node
    try:
        return container.rebuild(node, new_parts)
    except ArgumentError:
        return node


def _nodes(spec: Spec, path: str, done: set[int] | None) -> Nodes:
    """The nodes of a container; ``done`` has the specs so far, and ``None`` repeats them."""
    container, node, parts, part_specs = spec
    if container is _SKIPPED:
        return
    yield path, node, container
    for step, part, part_spec in zip(container.paths(node), parts, part_specs, strict=True):
        if part_spec is LEAF:
            yield path + step, part, LEAF
        elif done is None or id(part_spec) not in done:
            if done is not None:
                done.add(id(part_spec))
            yield from _nodes(part_spec, path + step, done)


def check_ordered(flat: FlatTree) -> None:
    """Raise an error for a set, whose parts do not correspond to those of an equal one."""
    for path, node, _ in flat.nodes():
        if isinstance(node, (set, frozenset)) and len(node) > 1:
            raise ArgumentTypeError(
                f"there is a set{_at(path)}, whose order differs from tree to tree; give a list"
            )


def is_leaf(tree: Tree) -> bool:
    return container_of(type(tree)) is LEAF


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _names_of(path: str, step: str) -> tuple[str, str, str]:
    """How ``skip`` may name a part: by its path, with or without its first dot, or by its key."""
    return path, path.lstrip("."), step.strip("[].'\"")


def _leads_to(path: str, names: Collection[str]) -> bool:
    """Whether ``skip`` may name a part of what is at this path."""
    return any(name.startswith((path, path.lstrip("."))) for name in names)
