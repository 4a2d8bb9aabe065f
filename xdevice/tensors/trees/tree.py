"""Trees: nested containers with tensors as leaves, flattened once and rebuilt from the result; where the tensors are.

A tensor or model is never opened, even where it happens to be a tuple. Errors name a leaf by its path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from operator import is_
from typing import Any, TypeVar

from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    MixedDeviceError,
    NotATensorError,
    XDeviceError,
    listed,
    mixed_devices,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import ATOMS, Ownership, owned_by, places_of, where_by_type
from xdevice.hardware.devices import as_device, is_device
from xdevice.tensors.trees.containers import Container
from xdevice.tensors.trees.leaves import (
    SelfMoving,
    check_fixed,
    framework_of,
    is_weak,
    places,
    what_is,
)
from xdevice.tensors.trees.opening import container_of

T = TypeVar("T")

_DEEPEST = 5000  # containers within containers: a tree deeper than that contains itself

_Item = tuple[Container, Any, list[Any]]  # a container: how it is opened, itself, and its parts
_Names = tuple[
    str, ...
]  # what a part may be called: its path, that without the first dot, its last key


class Flat:
    """A tree as its leaves, with the path of each and the way back; what ``skip`` names is a leaf to be left alone."""

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
                raise at_path(error, next(islice(self._all_paths(), i, None))) from error.__cause__

    def _walk(self, skip: frozenset[str]) -> list[tuple[int, Container, Any]]:
        """Find all leaves, with what has one of these names or paths; the containers that keep something as it is."""
        leaves, items = self.leaves, self._items
        with_fixed: list[tuple[int, Container, Any]] = []
        ahead = [iter((self.tree,))]
        names: list[Iterator[_Names]] = [iter([()])]  # of those ahead, if any are to be skipped
        while ahead:
            for node in ahead[-1]:
                cls = type(node)
                named = next(names[-1]) if skip else ()
                container = None
                if named and not skip.isdisjoint(named):
                    self.skipped.add(len(leaves))
                elif cls not in where_by_type and cls not in ATOMS:
                    container = container_of(node)
                if container is None:
                    leaves.append(node)
                    items.append(None)
                    continue
                parts = container.parts(node)
                if container.fixed(node):
                    with_fixed.append((len(items), container, node))
                items.append((container, node, parts))
                if len(ahead) > _DEEPEST:
                    kind = type(self.tree).__name__
                    raise ArgumentError(
                        f"this {kind} is nested too deeply, or contains itself; pass its parts"
                    )
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
            self._paths = tuple(
                p for item, p in zip(self._items, self._all_paths(), strict=True) if item is None
            )
        return self._paths

    def _all_paths(self) -> Iterator[str]:
        ahead = [""]
        for item in self._items:
            path = ahead.pop()
            yield path
            if item is not None:
                ahead += [path + key for key in reversed(item[0].keys(item[1]))]

    @property
    def unordered(self) -> bool:
        """Whether it contains a set with several parts: their order differs between equal sets."""
        return any(
            item and isinstance(item[1], (set, frozenset)) and len(item[2]) > 1
            for item in self._items
        )

    def at(self, i: int) -> str:
        """Where a leaf is, for a message: `` at ['batch'][0].mask``."""
        return f" at {self.paths[i]}" if self.paths[i] else ""

    def named(self) -> Iterator[tuple[str, Any]]:
        return zip(self.paths, self.leaves, strict=True)

    def same_structure(self, other: Flat) -> bool:
        """Whether the other tree has leaves at the same paths."""
        return (
            list(map(_outline, self._items)) == list(map(_outline, other._items))
            or self.paths == other.paths
        )

    def each(self, fn: Callable[[int, Any], T]) -> list[T | None]:
        """What ``fn`` returns for each leaf, and its number, but for those to be left alone; errors have its path."""
        found: list[T | None] = []
        for i, leaf in enumerate(self.leaves):
            try:
                found.append(None if i in self.skipped else fn(i, leaf))
            except XDeviceError as error:
                raise at_path(error, self.paths[i]) from error.__cause__
        return found

    def map(self, fn: Callable[[Any], Any], afresh: bool = False) -> Any:
        """The tree with ``fn`` applied to each leaf, once where one appears twice; itself where no leaf has changed."""
        distinct = {id(leaf): leaf for leaf in self.leaves}
        new = {key: fn(leaf) for key, leaf in distinct.items()}
        return self.rebuild((new[id(leaf)] for leaf in self.leaves), afresh)

    def rebuild(self, leaves: Iterable[Any], afresh: bool = False) -> Any:
        """The tree with these leaves in place of its own, in their order; what nothing changed in stays itself.

        ``afresh``: only if it is a tuple or a frozenset, to which nothing can be added, or cannot be rebuilt.
        """
        new = list(leaves)
        made: list[Any] = []  # the parts of containers that are yet to come
        rebuilt: dict[
            int, tuple[list[Any], Any]
        ] = {}  # a container that appears twice stays shared
        for item in reversed(self._items):
            if item is None:
                made.append(new.pop())
                continue
            container, node, old = item
            parts = made[: -len(old) - 1 : -1]
            del made[len(made) - len(old) :]
            is_same = all(map(is_, parts, old))
            if is_same and (not afresh or isinstance(node, (tuple, frozenset))):
                made.append(node)
                continue
            if id(node) not in rebuilt or not all(map(is_, rebuilt[id(node)][0], parts)):
                try:
                    rebuilt[id(node)] = parts, container.rebuilt(node, parts)
                except ArgumentError:
                    if not is_same:
                        raise
                    rebuilt[id(node)] = parts, node
            made.append(rebuilt[id(node)][1])
        return made[0]


def _outline(item: _Item | None) -> Any:
    """What is equal for leaves, and for containers whose parts correspond to one another."""
    return item and (type(item[0]), item[0].outline(item[1]))


flatten = Flat


def _names_of_parts(keys: list[str], parent: _Names) -> Iterator[_Names]:
    path = parent[0] if parent else ""
    return ((path + key, (path + key).lstrip("."), key.strip("[].'\"")) for key in keys)


def devices_in(tree: Any, skip: Collection[str]) -> set[Device]:
    """All devices on which tensors of the tree are; `NotATensorError` if it has none."""
    return set(_answers(flatten(tree, skip), places))


def frameworks_in(tree: Any) -> dict[Backend, str]:
    """Each framework of the tree's tensors, with the path of one; `NotATensorError` if there is none."""
    flat = flatten(tree)
    found = _answers(flat, lambda leaf, what: {framework_of(leaf, what)})
    return {owner: flat.paths[i] for owner, i in found.items()}


def _answers(flat: Flat, question: Callable[[Any, Ownership | SelfMoving], set[T]]) -> dict[T, int]:
    """What is answered for the tensors, with the first's number; for plain data where there is nothing else."""
    found: dict[T, int] = {}
    weak: dict[T, int] = {}

    def look(i: int, leaf: Any) -> None:
        what = what_is(leaf)
        if what is not None:
            kind = weak if is_weak(leaf, what) else found
            for answer in question(leaf, what):
                kind.setdefault(answer, i)

    flat.each(look)
    if not found and not weak:
        raise not_a_tensor(flat.tree)
    return found or weak


def mixed(objs: tuple[tuple[str, Any], ...], skip: Collection[str] = ()) -> MixedDeviceError:
    """The error for named objects on several devices; each tensor's path is under its device."""
    placed = [(path, found) for name, obj in objs for path, found in _placements(name, obj, skip)]
    devices: set[Device] = set().union(*(found for _, found in placed))
    groups: dict[str, list[str]] = {}
    for path, found in placed:
        groups.setdefault(listed(found), []).append(path.lstrip(".") or "it")
    where = "; ".join(
        f"on {device}: {_shortened(paths)}" for device, paths in sorted(groups.items())
    )
    return mixed_devices(f"one device was expected, but there are {len(devices)}: {where}", devices)


def not_a_tensor(obj: Any) -> NotATensorError:
    """The error for an object without a tensor; what a container holds instead is listed."""
    kind = type(obj).__name__
    if is_device(obj) and not isinstance(obj, str):
        return NotATensorError(f"{obj!r} is a device, not a tensor; pass what is on it")
    flat = flatten(obj)
    if flat.is_leaf:
        return NotATensorError(
            f"no framework owns this {kind}; pass a tensor, a model, or containers of these"
        )
    for path, leaf in flat.named():
        if owned_by(leaf):
            return NotATensorError(
                f"a {kind} is not a tensor; pass what is in it one by one, at {path} for example"
            )
    inside = [f"{path} is of type {type(leaf).__name__}" for path, leaf in flat.named()]
    return NotATensorError(
        f"no tensor in this {kind}: {_shortened(inside) if inside else 'it is empty'}"
    )


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf that it is about in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error


def _placements(
    path: str, obj: Any, skip: Collection[str] = ()
) -> Iterator[tuple[str, set[Device]]]:
    if is_device(obj):
        yield path, {as_device(obj)}
        return
    flat = flatten(obj, skip)
    for i, (key, leaf) in enumerate(flat.named()):
        what = None if i in flat.skipped else what_is(leaf)
        if what is None or is_weak(leaf, what):
            continue
        if isinstance(what, Ownership) and what.is_model:
            for name, tensor in what.backend.models.tensors_of(leaf):
                inside = owned_by(tensor)
                yield f"{path}{key}.{name}", places_of(tensor, inside) if inside else set()
        else:
            yield path + key, places(leaf, what)


def _shortened(items: list[str], most: int = 5) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
