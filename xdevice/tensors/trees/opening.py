"""How an object is opened into its parts, and rebuilt from others: same type, same attributes.

What is registered with optree, or with a framework that keeps a registry of its own, is opened as registered; other
classes as what they are in Python: dicts, lists, tuples, sets, mappings, partials, and the attributes of dataclasses,
attrs and pydantic models, msgspec structs, `types.SimpleNamespace` and of all these.
"""

import sys
import weakref
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from xdevice.errors import ArgumentError
from xdevice.framework.ownership import ATOMS, ownership_of, usable
from xdevice.tensors.trees import containers
from xdevice.tensors.trees.containers import Container, copied

_WITH_FIELDS = (
    "__dataclass_fields__",
    "__attrs_attrs__",
    "__pydantic_fields__",
    "__struct_fields__",
)
_WEAK = (
    weakref.WeakValueDictionary,
    weakref.WeakKeyDictionary,
    weakref.WeakSet,
)  # what moves would be lost at once

Opened = tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]
"""An object's parts, how each is written, what rebuilds it from others, and what it keeps beside them."""


class RegisteredContainer(Container):
    """A class that is registered as a node of trees: with what opens an object one level deep."""

    def __init__(self, opened: Callable[[Any], Opened]) -> None:
        super().__init__(object)
        self._opened = opened

    def items(self, node: Any) -> list[Any]:
        return self._opened(node)[0]

    def names(self, node: Any) -> list[str]:
        return self._opened(node)[1]

    def fixed(self, node: Any) -> list[Any]:
        return [self._opened(node)[3]]

    def made(self, node: Any, items: list[Any]) -> Any:
        return self._opened(node)[2](items)


class UserContainer(Container):
    """`collections.UserDict` and `UserList`: a container in the attribute ``data``."""

    def _inner(self, node: Any) -> Container:
        inner = container_of(node.data)
        if inner is None:
            raise ArgumentError(
                f"this {type(node).__name__} does not keep its data in a container; pass its parts"
            )
        return inner

    def own(self, node: Any) -> dict[str, Any]:
        return {name: value for name, value in super().own(node).items() if name != "data"}

    def items(self, node: Any) -> list[Any]:
        return self._inner(node).parts(node.data)

    def names(self, node: Any) -> list[str]:
        return self._inner(node).keys(node.data)

    def fixed(self, node: Any) -> list[Any]:
        return self._inner(node).fixed(node.data)

    def made(self, node: Any, items: list[Any]) -> Any:
        new = copied(node)
        new.data = self._inner(node).rebuilt(node.data, items)
        return new


def container_of(node: Any) -> Container | None:
    """How the object is opened; ``None`` for a leaf."""
    cls = type(node)
    try:
        return _known[cls]
    except KeyError:
        if ownership_of(cls) is None and not moves_itself(cls) and cls not in ATOMS:
            # a partial that is registered, too, would leave the tensors of its function behind
            in_python = cls.__module__ in ("builtins", "collections") or issubclass(cls, partial)
            found = (None if in_python else _registered(cls)) or _in_python(cls)
            if found is not None:
                return _known.setdefault(cls, found)
        return None  # not kept: a framework imported later may own it, and a class may yet be registered


def moves_itself(cls: type) -> bool:
    """Whether objects of the class have a method ``to`` of their own: boxes, graphs, caches, TensorDicts."""
    return callable(getattr(cls, "to", None)) and ownership_of(cls) is None


def _in_python(cls: type) -> Container | None:
    if issubclass(cls, _WEAK):
        return None
    with_fields = Container(cls) if any(hasattr(cls, mark) for mark in _WITH_FIELDS) else None
    return next(
        (kind(cls, base) for base, kind in _KINDS.items() if issubclass(cls, base)), with_fields
    )


def _registered(cls: type) -> RegisteredContainer | None:
    entry = _in_optree(cls)
    if entry is not None and getattr(entry.kind, "name", "") == "CUSTOM":
        return RegisteredContainer(lambda node: _opened_by_optree(entry, node))
    for owner in usable(cls):
        if owner.open("trees").has("is_node") and owner.trees.is_node(cls):
            return RegisteredContainer(owner.trees.opened)
    return None


def _in_optree(cls: type) -> Any:
    """How optree opens the class: as registered for all, else in a namespace, if there is one alone."""
    optree: Any = sys.modules.get("optree")
    if not hasattr(optree, "register_pytree_node"):
        return None
    entry = optree.register_pytree_node.get(cls)
    if entry is None:  # it has no list of namespaces of its own (0.20)
        registry = getattr(optree.registry, "_NODETYPE_REGISTRY", {})
        found = [
            registry[key] for key in list(registry) if isinstance(key, tuple) and key[-1] is cls
        ]
        entry = found[0] if len(found) == 1 else None
    return entry


def _opened_by_optree(entry: Any, node: Any) -> Opened:
    children, metadata, *entries = entry.flatten_func(node)
    parts = list(children)
    names = list(entries[0]) if entries and entries[0] is not None else range(len(parts))
    keys = [
        f".{name}" if isinstance(name, str) and name.isidentifier() else f"[{name!r}]"
        for name in names
    ]
    return parts, keys, lambda new: entry.unflatten_func(metadata, new), metadata


_KINDS: dict[type, type[Container]] = {
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

# each class of containers seen so far; the usual ones from the start, since compilers cannot trace the search
_known: dict[type, Container] = {cls: _KINDS[cls](cls, cls) for cls in (dict, list, tuple)}
