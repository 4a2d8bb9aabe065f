"""Trees: nested containers with tensors as leaves.

`FlatTree` opens each container of a tree once, without the parts that ``skip=`` names. From that
it makes the tree with new leaves, and finds the paths that errors name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import compress
from typing import Any, TypeAlias, TypeVar

from xdevice.contract import NodeParts
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotATensorError,
    XDeviceError,
    shortened,
)
from xdevice.framework.ownership import ATOMS
from xdevice.integers import as_integer
from xdevice.tensors.trees.containers import (
    DictContainer,
    Node,
    Parts,
    attributes_of,
    containers,
    flattened,
    slots_of,
    step_to,
)
from xdevice.tensors.trees.leaves import Leaf, tensors_in

T = TypeVar("T")

_USUAL = (dict, list, tuple)
_DOUBLE_QUOTES = re.compile(r"""\["([^"'\\]*)"\]""")  # around a key in a path

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
        # Each container by its id: itself, its parts, and how it was flattened, ``None`` for a dict,
        # list or tuple that is opened here. Outer containers come first.
        self._opened: dict[int, tuple[Node, Collection[Any], NodeParts | None]] = {}
        skipping = None if isinstance(skip, tuple) and not skip else _Skip(tree, skip)
        appears_again = False
        leaves, opened = self.leaves, self._opened
        nodes = [tree]
        for node in nodes:  # the list grows meanwhile
            cls = type(node)
            flatten = containers[cls]
            if flatten is None:
                leaves.append(node)
                continue
            if id(node) in opened:
                appears_again = True
                continue
            parts: Collection[Any] = node
            node_parts: NodeParts | None = None
            if skipping is not None or cls not in _USUAL:
                node_parts = flatten(node) if skipping is None else skipping.flatten(node)
                parts, _, _, static = node_parts
                if static:
                    self._check_static(node, static, skipping)
            elif cls is dict:  # here, since to flatten it takes longer than all the rest
                parts = node.values()
                for key in node:
                    if type(key) not in ATOMS:
                        _, _, _, static = flatten(node)
                        self._check_static(node, static)
                        break
            opened[id(node)] = node, parts, node_parts
            nodes += parts
        if appears_again:
            self._sort()

    def _check_static(self, node: Node, static: Parts, skipping: _Skip | None = None) -> None:
        """Raise an error if a tensor is in what a rebuilt container would keep as it is."""
        found = {id(tensor) for part in static for tensor in tensors_in(part)}
        if not found:
            return
        if isinstance(containers[type(node)], DictContainer):
            problem = f"a key of this {type(node).__name__} holds a tensor, and does not move"
            message = f"{problem}; keep tensors in its values"
        else:
            message = _static_field_message(node, found, skipping)
        if message:
            raise at_path(NotATensorError(message), self.path_to(node))

    def _sort(self) -> None:
        """Order the containers anew, so that each is after all that it is in."""
        inner = {
            key: [id(part) for part in parts if id(part) in self._opened]
            for key, (_, parts, _) in self._opened.items()
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
        for key, (node, parts, node_parts) in reversed(self._opened.items()):
            new_parts: Parts = []
            changed = False
            for part in parts:
                new_part = new.get(id(part), part)
                new_parts.append(new_part)
                if new_part is not part:
                    changed = True
            if changed:
                new[key] = rebuilt(node, node_parts, new_parts)
            elif afresh and not isinstance(node, (tuple, frozenset)):
                with suppress(ArgumentError):
                    new[key] = rebuilt(node, node_parts, new_parts)
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

    def nodes(self, *, again: bool = False) -> Iterator[tuple[str, Node, bool]]:
        """The path of each node, the node, and whether it is a leaf.

        A path is written as in Python code, ``['batch'][0].mask``; that of the
        root is empty. A container that appears again is opened ``again``, or not.
        """
        nodes = [("", self.tree)]
        done: set[int] = set()
        while nodes:
            path, node = nodes.pop()
            if id(node) not in self._opened:  # a leaf, or not opened yet, for the path in an error
                yield path, node, True
                continue
            if id(node) in done and not again:
                continue
            done.add(id(node))
            yield path, node, False
            _, parts, node_parts = self._opened[id(node)]
            _, paths, _, _ = node_parts or flattened(node)
            inner = zip(paths(node), parts, strict=True)
            nodes += reversed([(path + step, part) for step, part in inner])

    def named(self) -> Iterator[tuple[str, Leaf]]:
        """The leaves with their paths."""
        return ((path, node) for path, node, is_leaf in self.nodes() if is_leaf)

    def path_to(self, target: object) -> str:
        """The path of the first place of a leaf or container."""
        return next((path for path, node, _ in self.nodes() if node is target), "")


class _Skip:
    """The parts to leave out: those of a name in every container, and those at a path.

    In ``{"x": [{"mask": a}], "mask": b}``, ``mask`` names two parts, and ``['x'][0]['mask']`` one.
    A path is followed to the last container on it, and noted with that container: if the
    container appears again, the part is left out there, too. What is not in the tree is no error:
    a key may be absent in some batches.
    """

    def __init__(self, tree: Tree, skip: Collection[str | int]) -> None:
        names = _names(skip)
        # The last steps of the paths to parts of a name: the text "0" is no number.
        self._steps = {f".{name}" for name in names} | {step_to(name) for name in names}
        self._places: set[tuple[int, str]] = set()  # a container's id, and a step in it
        # How each container was flattened, by its id: a class may make the parts anew each time.
        self._flattened: dict[int, NodeParts] = {}
        for name in names:
            # `x.y` is the attribute `.x` of the tree's root, and `["x"]` the key `['x']`
            path = f"{name}"
            for spelling in {path, f".{path}", _DOUBLE_QUOTES.sub(r"['\1']", path)}:
                self._follow(spelling, tree)

    def _follow(self, path: str, node: Node) -> None:
        """Note what is left of a path in each container on it: in the last one, it is a step."""
        self._places.add((id(node), path))
        parts, paths, _, _ = self._flatten_whole(node)
        for step, part in zip(paths(node), parts, strict=True):
            if path != step and path.startswith(step):  # the part itself is not opened
                self._follow(path.removeprefix(step), part)

    def _flatten_whole(self, node: Node) -> NodeParts:
        if id(node) not in self._flattened:
            self._flattened[id(node)] = flattened(node)
        return self._flattened[id(node)]

    def names(self, node: Node, step: str) -> bool:
        """Whether a part, or a static field, of the container is to be left out: ``.x``, ``[0]``."""
        return step in self._steps or (id(node), step) in self._places

    def flatten(self, node: Node) -> NodeParts:
        """The container without the parts that are left out; a rebuilt one has them as they are."""
        parts, paths, rebuild, static = self._flatten_whole(node)
        stays = [self.names(node, step) for step in paths(node)]
        if not any(stays):
            return parts, paths, rebuild, static

        def rebuild_whole(node: Node, new_parts: Parts) -> Node:
            new = iter(new_parts)
            whole = [part if kept else next(new) for part, kept in zip(parts, stays, strict=True)]
            return rebuild(node, whole)

        moves = [not kept for kept in stays]
        return (
            list(compress(parts, moves)),
            lambda node: list(compress(paths(node), moves)),
            rebuild_whole,
            static,
        )


def _names(skip: Any) -> list[object]:
    if isinstance(skip, (str, bytes)) or as_integer(skip) is not None:
        return [skip]
    if skip is None:
        return []
    if not isinstance(skip, Iterable):
        raise ArgumentTypeError(
            f"skip={shortened(skip)} names nothing; give names of keys and attributes, or paths"
        )
    return list(skip)


def _static_field_message(node: Node, tensors: set[int], skipping: _Skip | None) -> str:
    """What is wrong with tensors, given by their ids, in the static part of a registered class.

    Empty if ``skip=`` names the fields. The class does not tell their names: they are the attributes
    with such a tensor that are none of the container's parts.
    """
    _, paths, _, _ = flattened(node)
    moving = paths(node)
    skipped: set[int] = set()
    place = ""
    for name, value in attributes_of(node, slots_of(type(node))).items():
        inside = tensors.intersection(map(id, tensors_in(value)))
        if not inside or f".{name}" in moving:
            continue
        if skipping is not None and skipping.names(node, f".{name}"):
            skipped |= inside
        elif not place:
            place = f"{type(node).__name__}.{name}"
    if not place and tensors <= skipped:
        return ""
    place = place or f"the static part of this {type(node).__name__}"
    return (
        f"{place} holds a tensor and is registered as static, so it does not move; make "
        "it an ordinary field, or name it in skip="
    )


def is_leaf(tree: Tree) -> bool:
    return containers[type(tree)] is None


def rebuilt(node: Node, node_parts: NodeParts | None, new_parts: Parts) -> Node:
    """A container of the same class with new parts; ``node_parts`` as in `FlatTree`."""
    if node_parts is None:
        if type(node) is dict:
            return dict(zip(node, new_parts, strict=True))
        return type(node)(new_parts)
    _, _, rebuild, _ = node_parts
    try:
        return rebuild(node, new_parts)
    except TypeError as error:
        name = type(node).__name__
        raise ArgumentError(f"this {name} cannot be rebuilt ({error}); pass its parts") from error


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error
