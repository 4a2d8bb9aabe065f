"""How an object of each class is opened into parts, and rebuilt from new parts.

A class that is registered with optree, or with a framework's own registry, is
opened as registered. Other classes are opened as Python's containers are:
dicts, lists, tuples, sets, mappings, partials, `types.SimpleNamespace`, and
the attributes of dataclasses, attrs and pydantic models and msgspec structs.
"""

import sys
import weakref
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

from xdevice.errors import ArgumentError, XDeviceError
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import ATOMS, locators, ownership_of, tensor_owner, usable
from xdevice.tensors.trees import containers
from xdevice.tensors.trees.containers import Container, Node, Parts, shallow_copy

OptreeEntry: TypeAlias = Any
"""The functions that are registered with optree for a class."""

# Attributes of classes whose instances have declared fields.
_FIELD_MARKS = (
    "__dataclass_fields__",
    "__attrs_attrs__",
    "__pydantic_fields__",
    "__struct_fields__",
)

# Not opened: nothing else refers to a moved copy, so that a rebuilt one would
# be empty at once.
_WEAK_CONTAINERS = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)


class Opened(NamedTuple):
    """An object of a registered class, opened one level deep."""

    parts: Parts
    paths: list[str]
    rebuild: Callable[[Parts], Node]
    static: object
    """What a rebuilt object keeps as it is."""


class RegisteredContainer(Container):
    """A class that is registered as a node of trees, with the function that opens its instances."""

    def __init__(self, open_node: Callable[[Node], Opened]) -> None:
        super().__init__(object)
        self._open = open_node

    def items(self, node: Node) -> Parts:
        return self._open(node).parts

    def keys(self, node: Node) -> list[str]:
        return self._open(node).paths

    def static_parts(self, node: Node) -> Parts:
        return [self._open(node).static]

    def with_items(self, node: Node, items: Parts) -> Node:
        new_node = self._open(node).rebuild(items)
        if not self._has_tensors(new_node, node, items):
            name = type(node).__name__
            raise ArgumentError(
                f"rebuilding this {name}, by the function that is registered for its class, loses "
                "a tensor; mend that function, or pass its parts"
            )
        return new_node

    def _has_tensors(self, new_node: Node, node: Node, items: Parts) -> bool:
        """Whether the new node has the class of ``node``, and the tensors of ``items``.

        A class may wrap a tensor in another one on the same device.
        """
        if type(new_node) is not type(node):
            return False
        new_items = self._open(new_node).parts
        if len(new_items) != len(items):
            return False
        return all(map(_replaces, new_items, items))


def _replaces(new_part: object, part: object) -> bool:
    """Whether a part is the same object, or a tensor on the same device if it is a tensor."""
    if new_part is part or tensor_owner(part) is None:
        return True
    if tensor_owner(new_part) is None:
        return False
    try:
        return locators[type(new_part)](new_part) is locators[type(part)](part)
    except XDeviceError:
        return True  # the device of one of them is not known, or not a single one


class UserContainer(Container):
    """`collections.UserDict` and `UserList`: a container in the attribute ``data``."""

    def _inner(self, node: Node) -> Container:
        inner = container_of(node.data)
        if inner is None:
            raise ArgumentError(
                f"this {type(node).__name__} does not keep its data in a container; pass its parts"
            )
        return inner

    def attributes(self, node: Node) -> dict[str, Any]:
        attributes = dict(super().attributes(node))
        attributes.pop("data", None)
        return attributes

    def items(self, node: Node) -> Parts:
        return self._inner(node).parts(node.data)

    def keys(self, node: Node) -> list[str]:
        return self._inner(node).paths(node.data)

    def static_parts(self, node: Node) -> Parts:
        return self._inner(node).static_parts(node.data)

    def with_items(self, node: Node, items: Parts) -> Node:
        new_node = shallow_copy(node)
        new_node.data = self._inner(node).rebuild(node.data, items)
        return new_node


def container_of(node: Node) -> Container | None:
    """How the object is opened; ``None`` if it is a leaf."""
    cls = type(node)
    try:
        return _containers[cls]
    except KeyError:
        container = _find_container(cls)
    if container is None:
        # not stored: a framework imported later may own the class, and it may
        # yet be registered
        return None
    return _containers.setdefault(cls, container)


def _find_container(cls: type) -> Container | None:
    if cls in ATOMS or ownership_of(cls) is not None or moves_itself(cls):
        return None
    # A registered class may leave out the tensors of a partial's function.
    is_python_class = cls.__module__ in ("builtins", "collections") or issubclass(cls, partial)
    if is_python_class:
        return _python_container(cls)
    return _registered_container(cls) or _python_container(cls)


def moves_itself(cls: type) -> bool:
    """Whether instances have their own method ``to``: boxes, graphs, caches, TensorDicts."""
    return callable(getattr(cls, "to", None)) and ownership_of(cls) is None


def _python_container(cls: type) -> Container | None:
    if issubclass(cls, _WEAK_CONTAINERS):
        return None
    for base, container_class in _CONTAINER_CLASSES.items():
        if issubclass(cls, base):
            return container_class(cls, base)
    if any(hasattr(cls, mark) for mark in _FIELD_MARKS):
        return Container(cls)
    return None


def _registered_container(cls: type) -> RegisteredContainer | None:
    entry = _optree_entry(cls)
    if entry is not None and getattr(entry.kind, "name", "") == "CUSTOM":
        return RegisteredContainer(lambda node: _open_with_optree(entry, node))
    for owner in usable(cls):
        if owner.load("trees").has("is_node") and owner.trees.is_node(cls):
            return RegisteredContainer(partial(_open_with_framework, owner))
    return None


def _open_with_framework(owner: Backend, node: Node) -> Opened:
    return Opened(*owner.trees.opened(node))


def _optree_entry(cls: type) -> OptreeEntry | None:
    """The class's entry in optree's global registry, or else in the only namespace that has one."""
    optree: Any = sys.modules.get("optree")
    if not hasattr(optree, "register_pytree_node"):
        return None
    entry = optree.register_pytree_node.get(cls)
    if entry is not None:
        return entry
    # optree 0.20 has no public list of namespaces
    registry = getattr(optree.registry, "_NODETYPE_REGISTRY", {})
    keys = [key for key in list(registry) if isinstance(key, tuple) and key[-1] is cls]
    if len(keys) != 1:
        return None
    return registry[keys[0]]


def _open_with_optree(entry: OptreeEntry, node: Node) -> Opened:
    children, metadata, *entries = entry.flatten_func(node)
    parts = list(children)
    names = list(range(len(parts)))
    if entries and entries[0] is not None:
        names = list(entries[0])
    paths = [_path_of_entry(name) for name in names]
    return Opened(
        parts, paths, lambda new_parts: entry.unflatten_func(metadata, new_parts), metadata
    )


def _path_of_entry(name: object) -> str:
    if isinstance(name, str) and name.isidentifier():
        return f".{name}"
    return f"[{name!r}]"


_CONTAINER_CLASSES: dict[type, type[Container]] = {
    OrderedDict: containers.DictContainer,
    dict: containers.DictContainer,
    tuple: containers.TupleContainer,
    list: containers.SequenceContainer,
    deque: containers.SequenceContainer,
    set: containers.SetContainer,
    frozenset: containers.SetContainer,
    UserDict: UserContainer,
    UserList: UserContainer,
    partial: containers.PartialContainer,
    Mapping: containers.MappingContainer,
    SimpleNamespace: Container,
}

# The container of each class opened so far. The usual ones are here from the
# start, since compilers cannot trace the search.
_containers: dict[type, Container] = {
    cls: _CONTAINER_CLASSES[cls](cls, cls) for cls in (dict, list, tuple)
}
