"""Trees: nested containers with tensors as leaves, flattened, and rebuilt from new leaves.

A tensor or model is never opened, even if it is a tuple. Errors name a leaf by
its path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import repeat
from operator import is_
from typing import Any, NamedTuple, TypeAlias, TypeVar

from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    MixedDeviceError,
    NotATensorError,
    XDeviceError,
    listed,
    several_devices,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import ATOMS, Ownership, locators, owned_by, places_of
from xdevice.hardware.devices import as_device, is_device
from xdevice.tensors.trees.containers import Container, Node, Parts
from xdevice.tensors.trees.leaves import (
    Leaf,
    LeafOwnership,
    check_static_parts,
    devices_of_leaf,
    framework_of,
    graph_without_places,
    is_checked_data,
    is_graph,
    leaf_ownership,
)
from xdevice.tensors.trees.opening import container_of

T = TypeVar("T")

Tree: TypeAlias = Any
"""A leaf, or nested containers of leaves."""

# Containers within containers. A tree that contains itself has no end; a deeper
# one is treated like it.
_MAX_DEPTH = 5000


# Places of nodes in a tree, if containers appear at several places.
_MAX_PLACES = 1_000_000

# A container in a tree: what opens it, the container itself, and its parts. A
# plain tuple, since each move makes one for each container.
_OpenNode: TypeAlias = tuple[Container, Node, Parts]

# A node of a tree: a container; the position of a container that appears again;
# `None` for a leaf.
_Entry: TypeAlias = _OpenNode | int | None


class _SkipNames(NamedTuple):
    """The names by which ``skip`` can refer to a part of a tree."""

    path: str
    path_without_first_dot: str
    last_key: str


class Flat:
    """A flattened tree: its leaves in order, their paths, and how to rebuild it from new leaves.

    A container that appears again is not opened again: its leaves are listed
    once, at the first place, unless ``by_place``. What ``skip`` names is a
    leaf, and its number is in ``skipped``.
    """

    __slots__ = ("_paths", "entries", "leaves", "skipped", "tree")

    def __init__(self, tree: Tree, skip: Collection[str] = (), by_place: bool = False) -> None:
        self.tree = tree
        self.leaves: list[Leaf] = []
        self.skipped: set[int] = set()
        self.entries: list[_Entry] = []  # each container after its parts
        self._paths: tuple[str, ...] | None = None
        skip_names = frozenset((skip,) if isinstance(skip, str) else skip)
        walk = _Walk(self, skip_names, by_place)
        for i, container, node in walk():
            try:
                check_static_parts(container, node, skip_names)
            except NotATensorError as error:
                raise at_path(error, self._paths_of_entries()[i]) from error.__cause__

    @property
    def is_leaf(self) -> bool:
        """Whether the tree is a single leaf, and not a container."""
        return self.entries[-1] is None

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of each leaf, as in Python code: ``['batch'][0].mask``.

        The path is empty if the tree is a single leaf.
        """
        if self._paths is None:
            paths = zip(self.entries, self._paths_of_entries(), strict=True)
            self._paths = tuple(path for entry, path in paths if entry is None)
        return self._paths

    def _paths_of_entries(self) -> list[str]:
        paths: list[str] = []
        stack = [""]
        for entry in reversed(self.entries):
            path = stack.pop()
            paths.append(path)
            if isinstance(entry, tuple):
                container, node, _ = entry
                stack += [path + part_path for part_path in container.paths(node)]
        paths.reverse()
        return paths

    @property
    def unordered(self) -> bool:
        """Whether it contains a set with several parts, whose order differs between equal sets."""
        for entry in self.entries:
            if isinstance(entry, tuple):
                _, node, parts = entry
                if isinstance(node, (set, frozenset)) and len(parts) > 1:
                    return True
        return False

    def at(self, i: int) -> str:
        """The place of a leaf, for a message: `` at ['batch'][0].mask``."""
        path = self.paths[i]
        return f" at {path}" if path else ""

    def named(self) -> Iterator[tuple[str, Leaf]]:
        """The path and the value of each leaf."""
        return zip(self.paths, self.leaves, strict=True)

    def outline(self) -> list[object]:
        """A value that is equal for trees whose leaves correspond."""
        return [_outline(entry) for entry in self.entries]

    def same_structure(self, other: Flat) -> bool:
        """Whether the other tree has leaves at the same paths."""
        if self.outline() == other.outline():
            return True
        return self.by_place().paths == other.by_place().paths

    def by_place(self) -> Flat:
        """The tree flattened with the leaves of all places of a container that appears again.

        An error if there are too many places: their number may double with each
        level.
        """
        if not any(isinstance(entry, int) for entry in self.entries):
            return self
        places = self._fold(repeat(1), lambda _, places_of_parts: 1 + sum(places_of_parts))
        if places > _MAX_PLACES:
            raise ArgumentError(
                f"containers appear again and again in this {type(self.tree).__name__}, so that it "
                f"has over {_MAX_PLACES} places; pass each container once"
            )
        return Flat(self.tree, by_place=True)

    def each(self, fn: Callable[[int, Leaf], T]) -> list[T | None]:
        """The result of ``fn`` for the number and value of each leaf; ``None`` for skipped leaves.

        The path of the leaf is added to an error.
        """
        results: list[T | None] = []
        for i, leaf in enumerate(self.leaves):
            if i in self.skipped:
                results.append(None)
                continue
            try:
                results.append(fn(i, leaf))
            except XDeviceError as error:
                raise at_path(error, self.paths[i]) from error.__cause__
        return results

    def map(self, fn: Callable[[Leaf], Leaf], afresh: bool = False) -> Tree:
        """The tree with ``fn`` applied to each leaf, once to a leaf that appears twice.

        See `rebuild` for ``afresh``.
        """
        distinct = {id(leaf): leaf for leaf in self.leaves}
        new_leaves = {key: fn(leaf) for key, leaf in distinct.items()}
        return self.rebuild((new_leaves[id(leaf)] for leaf in self.leaves), afresh)

    def rebuild(self, leaves: Iterable[Leaf], afresh: bool = False) -> Tree:
        """The tree with these leaves in place of its own, in their order.

        Unchanged containers are returned as they are. With ``afresh`` they are
        rebuilt, too, except tuples and frozensets, which cannot change, and
        containers that cannot be rebuilt.
        """
        # A container that appears twice stays shared, also where its places are
        # visited one by one: its new parts and the new container, by id.
        rebuilt: dict[int, tuple[Parts, Node]] = {}

        def new_container(open_node: _OpenNode, parts: Parts) -> Node:
            container, node, old_parts = open_node
            is_unchanged = all(map(is_, parts, old_parts))
            if is_unchanged and (not afresh or isinstance(node, (tuple, frozenset))):
                return node
            if id(node) not in rebuilt or not all(map(is_, rebuilt[id(node)][0], parts)):
                try:
                    rebuilt[id(node)] = parts, container.rebuild(node, parts)
                except ArgumentError:
                    if not is_unchanged:
                        raise
                    rebuilt[id(node)] = parts, node
            return rebuilt[id(node)][1]

        return self._fold(leaves, new_container)

    def _fold(self, of_leaves: Iterable[T], of_container: Callable[[_OpenNode, list[T]], T]) -> T:
        """The tree's value, from values of its leaves, and of containers from those of their parts.

        A container that appears again has the same value.
        """
        of_leaf = iter(of_leaves)
        of_entry: dict[int, T] = {}
        pending: list[T] = []  # the values whose container is not reached yet
        for position, entry in enumerate(self.entries):
            if entry is None:
                value = next(of_leaf)
            elif isinstance(entry, int):
                value = of_entry[entry]
            else:
                first_part = len(pending) - len(entry[2])
                value = of_container(entry, pending[first_part:])
                of_entry[position] = value
                del pending[first_part:]
            pending.append(value)
        return pending[0]


class _Walk:
    """The walk that finds all nodes of a tree.

    It is a loop over a stack, since Python limits the depth of recursion.
    """

    __slots__ = (
        "_by_place",
        "_flat",
        "_names_stack",
        "_open_nodes",
        "_positions",
        "_skip",
        "_stack",
        "_with_static_parts",
    )

    def __init__(self, flat: Flat, skip: frozenset[str], by_place: bool) -> None:
        self._flat = flat
        self._skip = skip
        self._by_place = by_place
        # one iterator over parts for each container from the root to the current
        # node, and the root's own
        self._stack = [iter((flat.tree,))]
        # the same containers, and the keys of their positions
        self._open_nodes: list[tuple[object, _OpenNode]] = []
        # iterators over the names of the same parts, only if some are to be
        # skipped; the root has none
        self._names_stack: list[Iterator[_SkipNames | tuple[()]]] = [iter([()])]
        # the position of each container; `None` while its parts are visited
        self._positions: dict[object, int | None] = {}
        self._with_static_parts: list[tuple[int, Container, Node]] = []

    def __call__(self) -> list[tuple[int, Container, Node]]:
        """Store all nodes; the result is the containers with static parts, and their positions."""
        stack, skip, skipped = self._stack, self._skip, self._flat.skipped
        leaves, entries = self._flat.leaves, self._flat.entries
        while stack:
            for node in stack[-1]:
                cls = type(node)
                names = next(self._names_stack[-1]) if skip else ()
                container = None
                if names and not skip.isdisjoint(names):
                    skipped.add(len(leaves))
                elif cls not in locators and cls not in ATOMS:
                    container = container_of(node)
                if container is None:
                    leaves.append(node)
                    entries.append(None)
                elif self._is_opened(container, node, names[0] if names else ""):
                    break  # the loop continues with the parts of this container
            else:  # without a break: the innermost container has no more parts
                self._close()
        return self._with_static_parts

    def _is_opened(self, container: Container, node: Node, path: str) -> bool:
        """Open a container, unless it appears again."""
        key: object = id(node)
        if self._skip and _leads_to_skipped(path, self._skip):
            key = id(node), path  # other parts may be skipped at another place
        if key in self._positions:
            position = self._positions[key]
            if position is None:
                raise _too_deep(self._flat.tree)
            self._flat.entries.append(position)
            return False
        if len(self._stack) > _MAX_DEPTH:
            raise _too_deep(self._flat.tree)
        parts = container.parts(node)
        if parts and not self._by_place:
            self._positions[key] = None
        self._open_nodes.append((key, (container, node, parts)))
        self._stack.append(iter(parts))
        if self._skip:
            self._names_stack.append(_names_of_parts(container.paths(node), path))
        return True

    def _close(self) -> None:
        self._stack.pop()
        if self._skip:
            self._names_stack.pop()
        if not self._open_nodes:
            return  # the root's own iterator
        key, open_node = self._open_nodes.pop()
        container, node, _ = open_node
        position = len(self._flat.entries)
        if key in self._positions:
            self._positions[key] = position
        if container.static_parts(node):
            self._with_static_parts.append((position, container, node))
        self._flat.entries.append(open_node)


flatten = Flat  # as a verb, for calls: ``flatten(tree)``


def flatten_together(trees: Iterable[Tree]) -> list[Flat]:
    """The flattened trees; if they are alike, their leaves correspond.

    A container that appears again is opened once only if it does so in each
    tree.
    """
    flats = [flatten(tree) for tree in trees]
    if all(flat.outline() == flats[0].outline() for flat in flats):
        return flats
    return [flat.by_place() for flat in flats]


def _too_deep(tree: Tree) -> ArgumentError:
    type_name = type(tree).__name__
    return ArgumentError(
        f"this {type_name} is nested too deeply, or contains itself; pass its parts"
    )


def _outline(entry: _Entry) -> object:
    """A value that is equal for leaves, and for containers whose parts correspond."""
    if not isinstance(entry, tuple):
        return entry
    container, node, _ = entry
    return type(container), container.outline(node)


def _leads_to_skipped(path: str, skip: frozenset[str]) -> bool:
    """Whether a path in ``skip`` begins with this one, with or without its first dot."""
    beginnings = (path, path.lstrip("."))
    return any(name.startswith(beginnings) for name in skip)


def _names_of_parts(part_paths: list[str], parent_path: str) -> Iterator[_SkipNames]:
    for part_path in part_paths:
        path = parent_path + part_path
        yield _SkipNames(path, path.lstrip("."), part_path.strip("[].'\""))


def devices_in(tree: Tree, skip: Collection[str]) -> set[Device]:
    """All devices on which tensors of the tree are; `NotATensorError` if it has none."""
    return set(_first_leaf_by_property(flatten(tree, skip), devices_of_leaf))


def frameworks_in(tree: Tree) -> dict[Backend, str]:
    """Each framework of the tree's tensors, with the path of one tensor.

    `NotATensorError` if there is no tensor.
    """
    flat = flatten(tree)
    numbers = _first_leaf_by_property(flat, lambda leaf, ownership: {framework_of(leaf, ownership)})
    return {owner: flat.paths[i] for owner, i in numbers.items()}


def _first_leaf_by_property(
    flat: Flat, properties_of: Callable[[Leaf, LeafOwnership], set[T]]
) -> dict[T, int]:
    """The properties of the tensors, such as their devices, each with the number of the first leaf.

    Plain data such as NumPy scalars counts only if the tree has no other
    tensors.
    """
    first_leaf: dict[T, int] = {}
    first_data_leaf: dict[T, int] = {}

    def examine(i: int, leaf: Leaf) -> None:
        ownership = leaf_ownership(leaf)
        if ownership is not None:
            numbers = first_leaf
            if is_checked_data(leaf, ownership):
                numbers = first_data_leaf
            for value in properties_of(leaf, ownership):
                numbers.setdefault(value, i)

    flat.each(examine)
    if not first_leaf and not first_data_leaf:
        raise not_a_tensor(flat.tree)
    return first_leaf or first_data_leaf


def not_on_one_device(
    objs: tuple[tuple[str, Tree], ...], skip: Collection[str] = ()
) -> MixedDeviceError:
    """The error for named objects on several devices, with the paths of their tensors."""
    all_devices: set[Device] = set()
    paths_by_devices: dict[str, list[str]] = {}
    for name, obj in objs:
        for path, devices in _placements(name, obj, skip):
            all_devices |= devices
            paths_by_devices.setdefault(listed(devices), []).append(path.lstrip(".") or "it")
    placements = "; ".join(
        f"on {device}: {_shortened(paths)}" for device, paths in sorted(paths_by_devices.items())
    )
    return several_devices(
        f"one device was expected, but there are {len(all_devices)}: {placements}", all_devices
    )


def _placements(
    name: str, obj: Tree, skip: Collection[str] = ()
) -> Iterator[tuple[str, set[Device]]]:
    """The path and the devices of each tensor in an object, also of each tensor of a model."""
    if is_device(obj):
        yield name, {as_device(obj)}
        return
    flat = flatten(obj, skip)
    for i, (path, leaf) in enumerate(flat.named()):
        if i in flat.skipped:
            continue
        ownership = leaf_ownership(leaf)
        if ownership is None or is_checked_data(leaf, ownership):
            continue
        if isinstance(ownership, Ownership) and ownership.is_model:
            for tensor_name, tensor in ownership.backend.models.tensors_of(leaf):
                devices: set[Device] = set()
                tensor_ownership = owned_by(tensor)
                if tensor_ownership is not None:
                    devices = places_of(tensor, tensor_ownership)
                yield f"{name}{path}.{tensor_name}", devices
        else:
            yield name + path, devices_of_leaf(leaf, ownership)


def not_a_tensor(obj: Tree) -> NotATensorError:
    """The error for an object without a tensor, with what a container holds instead."""
    type_name = type(obj).__name__
    if is_device(obj) and not isinstance(obj, str):
        return NotATensorError(f"{obj!r} is a device, not a tensor; pass what is on it")
    if is_graph(type(obj)):
        return NotATensorError(graph_without_places(type_name))
    flat = flatten(obj)
    if flat.is_leaf:
        return NotATensorError(
            f"no framework owns this {type_name}; pass a tensor, a model, or containers of these"
        )
    for path, leaf in flat.named():
        if owned_by(leaf):
            return NotATensorError(
                f"a {type_name} is not a tensor; pass what is in it one by one, "
                f"at {path} for example"
            )
    if not flat.leaves:
        return NotATensorError(f"no tensor in this {type_name}: it is empty")
    contents = [f"{path} is of type {type(leaf).__name__}" for path, leaf in flat.named()]
    return NotATensorError(f"no tensor in this {type_name}: {_shortened(contents)}")


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error


def _shortened(items: list[str], most: int = 5) -> str:
    text = ", ".join(items[:most])
    if len(items) > most:
        text += f" and {len(items) - most} more"
    return text
