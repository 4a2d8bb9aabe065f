"""Trees: nested containers with tensors as leaves, flattened once and rebuilt from the result.

A tensor or model is never opened, even where it happens to be a tuple. Containers keep their types; what
nothing has changed in is not rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from operator import is_
from typing import Any

from xdevice.errors import ArgumentError, NotATensorError
from xdevice.framework.ownership import ATOMS, where_by_type
from xdevice.tensors.trees.containers import Container, container_of
from xdevice.tensors.trees.leaves import check_fixed

_DEEPEST = 5000  # containers within containers: a tree deeper than that contains itself

_Item = tuple[Container, Any, list[Any]]  # a container: how it is opened, itself, and its parts
_Names = tuple[str, ...]  # what a part may be called: its path, that without the first dot, its last key


class Flat:
    """A tree as its leaves, with the path of each and the way back."""

    __slots__ = ("_items", "_paths", "leaves", "skipped", "tree")

    def __init__(self, tree: Any, skip: Collection[str] = ()) -> None:
        self.tree = tree
        self.leaves: list[Any] = []
        self.skipped: set[int] = set()  # which leaves are to be left alone, whatever they are
        self._items: list[_Item | None] = []  # each container before its parts; None for a leaf
        self._paths: tuple[str, ...] | None = None
        names = frozenset((skip,) if isinstance(skip, str) else skip)
        for i, container, node in self._walk(names):
            try:
                check_fixed(container, node, names)
            except NotATensorError as error:
                path = next(islice(self._all_paths(), i, None))
                raise NotATensorError(f"{error} (at {path})" if path else str(error)) from error

    def _walk(self, skip: frozenset[str]) -> list[tuple[int, Container, Any]]:
        """Find all leaves; what has one of these names or paths is a leaf to be left alone.

        Returns the containers that keep something as it is, with their positions.
        """
        leaves, items = self.leaves, self._items
        with_fixed: list[tuple[int, Container, Any]] = []
        ahead = [iter((self.tree,))]
        names: list[Iterator[_Names]] = [iter([()])]  # of those ahead, if any are to be skipped
        while ahead:
            for node in ahead[-1]:
                cls = type(node)
                named = next(names[-1]) if skip else ()
                if named and not skip.isdisjoint(named):
                    self.skipped.add(len(leaves))
                    container = None
                else:
                    container = None if cls in where_by_type or cls in ATOMS else container_of(node)
                if container is None:
                    leaves.append(node)
                    items.append(None)
                    continue
                parts = container.parts(node)
                if container.handler.fixed(node):
                    with_fixed.append((len(items), container, node))
                items.append((container, node, parts))
                if len(ahead) > _DEEPEST:
                    kind = type(self.tree).__name__
                    raise ArgumentError(f"this {kind} is nested too deeply, or contains itself; pass its parts")
                ahead.append(iter(parts))
                if skip:
                    names.append(_names_of_parts(container.keys(node), named))
                break
            else:
                ahead.pop()
                if skip:
                    names.pop()
        return with_fixed

    @property
    def is_leaf(self) -> bool:
        """Whether the tree is a single leaf, and not a container."""
        return self._items[0] is None

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of each leaf as one would write it: ``['batch'][0].mask``; empty for a tree that is a leaf."""
        if self._paths is None:
            named = zip(self._items, self._all_paths(), strict=True)
            self._paths = tuple(path for item, path in named if item is None)
        return self._paths

    def _all_paths(self) -> Iterator[str]:
        """The path of each container and leaf."""
        ahead = [""]
        for item in self._items:
            path = ahead.pop()
            yield path
            if item is not None:
                ahead += [path + key for key in reversed(item[0].keys(item[1]))]

    @property
    def unordered(self) -> bool:
        """Whether it contains a set with several parts: their order differs between equal sets."""
        return any(item and isinstance(item[1], (set, frozenset)) and len(item[2]) > 1 for item in self._items)

    def named(self) -> Iterator[tuple[str, Any]]:
        return zip(self.paths, self.leaves, strict=True)

    def same_structure(self, other: Flat) -> bool:
        """Whether the other tree has leaves at the same paths."""
        outlines_match = len(self._items) == len(other._items) and all(
            a is b if a is None or b is None else a[0].outline(a[1]) == b[0].outline(b[1])
            for a, b in zip(self._items, other._items, strict=True)
        )
        return outlines_match or self.paths == other.paths

    def map(self, fn: Callable[[Any], Any]) -> Any:
        """The tree with ``fn`` applied to each leaf; the same object where no leaf has changed."""
        return self.rebuild([fn(leaf) for leaf in self.leaves])

    def rebuild(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves in place of its own, in their order; what nothing changed in stays itself."""
        new = list(leaves)
        made: list[Any] = []  # the parts of containers that are yet to come
        rebuilt: dict[int, tuple[list[Any], Any]] = {}  # a container that appears twice stays shared
        for item in reversed(self._items):
            if item is None:
                made.append(new.pop())
                continue
            container, node, old = item
            parts = made[: -len(old) - 1 : -1]
            del made[len(made) - len(old) :]
            if all(map(is_, parts, old)):
                made.append(node)
                continue
            before = rebuilt.get(id(node))
            if before is None or not all(map(is_, before[0], parts)):
                before = rebuilt[id(node)] = parts, container.rebuilt(node, parts)
            made.append(before[1])
        return made[0]


def flatten(tree: Any, skip: Collection[str] = ()) -> Flat:
    """The tree as its leaves; what has a name or path in ``skip`` is a leaf to be left alone."""
    return Flat(tree, skip)


def _names_of_parts(keys: list[str], parent: _Names) -> Iterator[_Names]:
    path = parent[0] if parent else ""
    return ((path + key, (path + key).lstrip("."), key.strip("[].'\"")) for key in keys)
