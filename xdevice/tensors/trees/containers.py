"""How containers are opened and rebuilt: Python's own, and those registered with a library of trees.

A container of a type is opened into its parts and rebuilt from others: same type, same attributes. What is
registered with optree, or with a framework that keeps a registry of its own, is opened as registered; other
classes as what they are in Python: dicts, lists, tuples, sets, mappings, partials, and the attributes of
dataclasses, attrs and pydantic models, msgspec structs, `types.SimpleNamespace` and of all these.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from xdevice.errors import ArgumentError
from xdevice.framework.ownership import ATOMS, ownership_of
from xdevice.tensors.trees.container_handlers import (
    DictHandler,
    Handler,
    MappingHandler,
    OrderedDictHandler,
    PartialHandler,
    SetHandler,
    TupleHandler,
)
from xdevice.tensors.trees.object_attributes import attributes, blank, copied, dict_of, slots_of, with_attributes
from xdevice.tensors.trees.registered_nodes import Opener, opener_of

_WITH_FIELDS = ("__dataclass_fields__", "__attrs_attrs__", "__pydantic_fields__", "__struct_fields__")
_WEAK = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)  # what moves would be lost at once


class Container:
    """How objects of one class are opened: into what their handler finds, and the attributes that they have besides."""

    __slots__ = ("_handler", "_has_attributes")
    is_registered = False

    def __init__(self, cls: type, handler: Handler | None) -> None:
        self._handler = handler
        self._has_attributes = bool(slots_of(cls)) or cls.__dictoffset__ != 0

    def parts(self, node: Any) -> list[Any]:
        """What is in it, in a fixed order."""
        if self._handler is None:
            return [*attributes(node).values()]
        found = self._handler.parts(node)
        return found + list(self._own(node).values()) if self._has_attributes else found

    def keys(self, node: Any) -> list[str]:
        """How each part would be written: ``[0]``, ``['x']``, ``.x``."""
        found = self._handler.keys(node) if self._handler else []
        return found + [f".{name}" for name in self._own(node)]

    def outline(self, node: Any) -> Any:
        """What is equal for containers whose parts correspond to one another."""
        found = self._handler.outline(node) if self._handler else None
        return (found, tuple(self._own(node))) if self._has_attributes else found

    def fixed(self, node: Any) -> list[Any]:
        """What a rebuilt one keeps as it is: keys, and what a registered class has beside its parts."""
        return self._handler.fixed(node) if self._handler else []

    def fixed_noun(self, node: Any) -> str:
        """What an error calls it."""
        return "a key or the default_factory" if isinstance(node, defaultdict) else "a key"

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        """Another of its class with these parts."""
        own = self._own(node)
        if self._handler is None:
            return with_attributes(blank(node), node, dict(zip(own, parts, strict=True)))
        cut = len(parts) - len(own)
        if own and isinstance(self._handler, MappingHandler):  # its items are usually in an attribute
            new = with_attributes(blank(node), node, dict(zip(own, parts[cut:], strict=True)))
            if self._handler.agrees(new, node, parts[:cut]):
                return new
        new = self._handler.rebuilt(node, parts[:cut])
        return with_attributes(new, node, dict(zip(own, parts[cut:], strict=True)))

    def _own(self, node: Any) -> dict[str, Any]:
        if not self._has_attributes or (self._handler is not None and dict_of(node) is node):  # they are its items
            return {}
        found = attributes(node)
        if type(self._handler) is _UserHandler:
            found.pop("data", None)
        return found


class _UserHandler(Handler):
    """`collections.UserDict` and `UserList`: a container in the attribute ``data``."""

    def _inner(self, node: Any) -> Container:
        inner = container_of(node.data)
        if inner is None:
            raise ArgumentError(f"this {type(node).__name__} does not keep its data in a container; pass its parts")
        return inner

    def parts(self, node: Any) -> list[Any]:
        return self._inner(node).parts(node.data)

    def keys(self, node: Any) -> list[str]:
        return self._inner(node).keys(node.data)

    def outline(self, node: Any) -> Any:
        return self._inner(node).outline(node.data)

    def fixed(self, node: Any) -> list[Any]:
        return self._inner(node).fixed(node.data)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        new = copied(node)
        new.data = self._inner(node).rebuilt(node.data, parts)
        return new


class _Registered(Container):
    """A class that is registered as a node of trees: with what opens an object one level deep."""

    __slots__ = ("_open",)
    is_registered = True

    def __init__(self, opener: Opener) -> None:
        super().__init__(object, None)
        self._open = opener

    def parts(self, node: Any) -> list[Any]:
        return self._open(node)[0]

    def keys(self, node: Any) -> list[str]:
        return self._open(node)[1]

    def outline(self, node: Any) -> Any:
        return tuple(self._open(node)[1])

    def fixed(self, node: Any) -> list[Any]:
        return [self._open(node)[3]]

    def fixed_noun(self, node: Any) -> str:
        return "the static part"

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        return self._open(node)[2](parts)


def container_of(node: Any) -> Container | None:
    """How the object is opened; ``None`` for a leaf."""
    cls = type(node)
    try:
        return _known[cls]
    except KeyError:
        if ownership_of(cls) is None and not moves_itself(cls) and cls not in ATOMS:
            opener = None if cls.__module__ in ("builtins", "collections") or _is_partial(cls) else opener_of(cls)
            found = _in_python(cls) if opener is None else _Registered(opener)
            if found is not None:
                return _known.setdefault(cls, found)
        return None  # not kept: a framework imported later may own it, and a class may yet be registered


def moves_itself(cls: type) -> bool:
    """Whether objects of the class have a method ``to`` of their own: boxes, graphs, caches, TensorDicts."""
    return callable(getattr(cls, "to", None)) and ownership_of(cls) is None


def _in_python(cls: type) -> Container | None:
    if issubclass(cls, _WEAK):
        return None
    handler = next((kind for base, kind in _HANDLERS.items() if issubclass(cls, base)), None)
    if handler is None and _is_partial(cls):
        handler = PartialHandler()
    if handler is None and issubclass(cls, Mapping):
        handler = MappingHandler()
    if (
        handler is None
        and not any(hasattr(cls, mark) for mark in _WITH_FIELDS)
        and not issubclass(cls, SimpleNamespace)
    ):
        return None
    return Container(cls, handler)


def _is_partial(cls: type) -> bool:
    """Whether it is a partial: also where it is registered, as that would leave the tensors of its function behind."""
    return "functools" in sys.modules and issubclass(cls, sys.modules["functools"].partial)


_HANDLERS: dict[type, Handler] = {
    OrderedDict: OrderedDictHandler(),
    dict: DictHandler(),
    tuple: TupleHandler(tuple),
    list: Handler(list),
    deque: Handler(deque),
    set: SetHandler(set),
    frozenset: SetHandler(frozenset),
    UserDict: _UserHandler(),
    UserList: _UserHandler(),
}

# each class of containers seen so far; the usual ones from the start, since compilers cannot trace the search
_known: dict[type, Container] = {cls: Container(cls, _HANDLERS[cls]) for cls in (dict, list, tuple)}
