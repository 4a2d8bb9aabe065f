"""How containers are opened into their parts and rebuilt from others: same type, same attributes.

What is registered with optree, or with a framework that keeps a registry of its own, is opened as registered; other
classes as what they are in Python: dicts, lists, tuples, sets, mappings, partials, and the attributes of dataclasses,
attrs and pydantic models, msgspec structs, `types.SimpleNamespace` and of all these.
"""

import weakref
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from xdevice.errors import ArgumentError
from xdevice.framework.ownership import ATOMS, ownership_of
from xdevice.tensors.trees import container_handlers as handlers
from xdevice.tensors.trees.object_attributes import attributes, blank, copied, dict_of, slots_of, with_attributes
from xdevice.tensors.trees.registered_nodes import handler_of

_WITH_FIELDS = ("__dataclass_fields__", "__attrs_attrs__", "__pydantic_fields__", "__struct_fields__")
_WEAK = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)  # what moves would be lost at once


class Container:
    """How objects of one class are opened: into what their handler finds, and the attributes that they have besides."""

    __slots__ = ("_has_attributes", "handler")

    def __init__(self, cls: type, handler: handlers.Handler) -> None:
        self.handler = handler
        self._has_attributes = bool(slots_of(cls)) or cls.__dictoffset__ != 0

    def parts(self, node: Any) -> list[Any]:
        """What is in it, in a fixed order."""
        found = self.handler.parts(node)
        return found + list(self._own(node).values()) if self._has_attributes else found

    def keys(self, node: Any) -> list[str]:
        """How each part would be written: ``[0]``, ``['x']``, ``.x``."""
        return self.handler.keys(node) + [f".{name}" for name in self._own(node)]

    def outline(self, node: Any) -> Any:
        """What is equal for containers whose parts correspond to one another."""
        return self.handler.outline(node), tuple(self._own(node))

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        """Another of its class with these parts."""
        own = self._own(node)
        if not own:
            return self.handler.rebuilt(node, parts)
        cut = len(parts) - len(own)
        values = dict(zip(own, parts[cut:], strict=True))
        if isinstance(self.handler, handlers.MappingHandler):  # its items are usually in an attribute
            new = with_attributes(blank(node), node, values)
            if self.handler.agrees(new, node, parts[:cut]):
                return new
        return with_attributes(self.handler.rebuilt(node, parts[:cut]), node, values)

    def _own(self, node: Any) -> dict[str, Any]:
        if not self._has_attributes or dict_of(node) is node:  # they are its items
            return {}
        found = attributes(node)
        if type(self.handler) is _UserHandler:
            found.pop("data", None)
        return found


class _UserHandler(handlers.Handler):
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
        return self._inner(node).handler.fixed(node.data)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        new = copied(node)
        new.data = self._inner(node).rebuilt(node.data, parts)
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
            registered = None if in_python else handler_of(cls)
            handler = registered or _in_python(cls)
            if handler is not None:
                return _known.setdefault(cls, Container(object if registered else cls, handler))
        return None  # not kept: a framework imported later may own it, and a class may yet be registered


def moves_itself(cls: type) -> bool:
    """Whether objects of the class have a method ``to`` of their own: boxes, graphs, caches, TensorDicts."""
    return callable(getattr(cls, "to", None)) and ownership_of(cls) is None


def _in_python(cls: type) -> handlers.Handler | None:
    if issubclass(cls, _WEAK):
        return None
    with_fields = _FIELDS if any(hasattr(cls, mark) for mark in _WITH_FIELDS) else None
    return next((handler for base, handler in _HANDLERS.items() if issubclass(cls, base)), with_fields)


_FIELDS = handlers.AttributesHandler()
_HANDLERS: dict[type, handlers.Handler] = {
    OrderedDict: handlers.OrderedDictHandler(),
    dict: handlers.DictHandler(),
    tuple: handlers.TupleHandler(tuple),
    list: handlers.Handler(list),
    deque: handlers.Handler(deque),
    set: handlers.SetHandler(set),
    frozenset: handlers.SetHandler(frozenset),
    UserDict: _UserHandler(),
    UserList: _UserHandler(),
    partial: handlers.PartialHandler(),
    Mapping: handlers.MappingHandler(),
    SimpleNamespace: _FIELDS,
}

# each class of containers seen so far; the usual ones from the start, since compilers cannot trace the search
_known: dict[type, Container] = {cls: Container(cls, _HANDLERS[cls]) for cls in (dict, list, tuple)}
