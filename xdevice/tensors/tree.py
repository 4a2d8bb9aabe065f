"""Trees: nested containers with tensors as leaves, flattened once and rebuilt from the result.

A tensor or model is never opened, even where it happens to be a tuple. Containers keep their types; what
nothing has changed in is not rebuilt.
"""

from __future__ import annotations

from xdevice.errors import ArgumentError
from xdevice.framework.ownership import ATOMS, where_by_type
from xdevice.tensors.containers import container_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

    from xdevice.tensors.containers import Container

_DEEPEST = 5000  # containers within containers: a tree deeper than that contains itself

_Item = tuple["Container | None", "Any", "list[Any]"]  # how it is opened, the object, and its parts


class Flat:
    """A tree as its leaves, with the path of each and the way back."""

    __slots__ = ("_items", "_paths", "leaves", "skipped", "tree")

    def __init__(self, tree: Any, skip: Collection[str] = ()) -> None:
        self.tree = tree
        self.leaves: list[Any] = []
        self.skipped: set[int] = set()  # which leaves are to be left alone, whatever they are
        self._items: list[_Item] = []  # containers and leaves, each container before its parts
        self._paths: tuple[str, ...] | None = None
        if skip:
            self._walk_past(skip)
        else:
            self._walk()

    def _walk(self) -> None:
        leaves, items = self.leaves, self._items
        ahead = [(self.tree, 0)]
        while ahead:
            node, depth = ahead.pop()
            cls = type(node)
            container = None if cls in where_by_type or cls in ATOMS else container_of(node)
            if container is None:
                leaves.append(node)
                items.append((None, node, []))
                continue
            if depth > _DEEPEST:
                raise self._too_deep()
            parts = container.parts(node)
            items.append((container, node, parts))
            ahead += [(part, depth + 1) for part in reversed(parts)]

    def _walk_past(self, skip: Collection[str]) -> None:
        """The same, with the parts of these names and paths as leaves that are to be left alone."""
        depth = 0
        ahead: list[tuple[Any, str, str]] = [(self.tree, "", "")]
        while ahead:
            node, name, path = ahead.pop()
            skipped = bool(path) and (name in skip or path in skip or path.lstrip(".") in skip)
            container = None if skipped else container_of(node)
            if container is None:
                if skipped:
                    self.skipped.add(len(self.leaves))
                self.leaves.append(node)
                self._items.append((None, node, []))
                continue
            depth += 1
            if depth > 100 * _DEEPEST:
                raise self._too_deep()
            parts, keys = container.parts(node), container.keys(node)
            self._items.append((container, node, parts))
            ahead += [
                (part, key.strip("[].'\""), path + key) for part, key in zip(parts[::-1], keys[::-1], strict=True)
            ]

    def _too_deep(self) -> ArgumentError:
        kind = type(self.tree).__name__
        return ArgumentError(f"this {kind} is nested too deeply, or contains itself; pass its parts one by one")

    @property
    def is_leaf(self) -> bool:
        """Whether the tree is a single leaf, and not a container."""
        return self._items[0][0] is None

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of each leaf as one would write it: ``['batch'][0].mask``; empty for a tree that is a leaf."""
        if self._paths is None:
            found: list[str] = []
            ahead = [""]
            for container, node, _ in self._items:
                prefix = ahead.pop()
                if container is None:
                    found.append(prefix)
                else:
                    ahead += [prefix + key for key in reversed(container.keys(node))]
            self._paths = tuple(found)
        return self._paths

    @property
    def unordered(self) -> bool:
        """Whether there is a set with several parts in it: their order differs between equal sets."""
        return any(isinstance(node, (set, frozenset)) and len(parts) > 1 for _, node, parts in self._items)

    def named(self) -> Iterator[tuple[str, Any]]:
        """Each leaf with its path."""
        return zip(self.paths, self.leaves, strict=True)

    def same_structure(self, other: Flat) -> bool:
        """Whether the other tree has leaves at the same paths."""
        outlines_match = len(self._items) == len(other._items) and all(
            (a is None) == (b is None) and (a is None or b is None or a.outline(x) == b.outline(y))
            for (a, x, _), (b, y, _) in zip(self._items, other._items, strict=True)
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
        for container, node, old in reversed(self._items):
            if container is None:
                made.append(new.pop())
                continue
            parts = [made.pop() for _ in old]
            if all(map(_is, parts, old)):
                made.append(node)
                continue
            before = rebuilt.get(id(node))
            if before is None or not all(map(_is, before[0], parts)):
                before = rebuilt[id(node)] = parts, container.rebuilt(node, parts)
            made.append(before[1])
        return made[0]


def flatten(tree: Any, skip: Collection[str] = ()) -> Flat:
    """The tree flattened, to be passed on; what has a name or path in ``skip`` is a leaf to be left alone.

    Raises
    ------
    ArgumentError
        It is nested too deeply, or contains itself.
    """
    return Flat(tree, skip)


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``fn`` applied to each leaf; the same object where no leaf has changed."""
    return Flat(tree).map(fn)


def _is(a: object, b: object) -> bool:
    return a is b
