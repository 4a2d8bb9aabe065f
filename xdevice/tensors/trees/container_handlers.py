"""What is inside of Python's own containers, by position or key; and another one with other parts.

Each handler reads and writes by the methods of Python's own class, since a subclass may mean others by them.
"""

from collections import OrderedDict, defaultdict, deque
from typing import Any

from xdevice.errors import ArgumentError, shortened
from xdevice.framework.ownership import ATOMS
from xdevice.tensors.trees.object_attributes import attributes, blank, copied, dict_of

_FROM_USERS = (TypeError, ValueError, AttributeError, KeyError, NotImplementedError)  # what their classes may raise


def _bracketed(key: Any) -> str:
    return f"[{shortened(key) if isinstance(key, int) else repr(key)}]"  # not every int has a repr


class Handler:
    """How containers of one kind are opened by position or key; the base is a sequence."""

    def __init__(self, base: Any = list) -> None:
        self._base = base

    def parts(self, node: Any) -> list[Any]:
        return [*node] if type(node) is self._base else list(self._base.__iter__(node))

    def keys(self, node: Any) -> list[str]:
        return [f"[{i}]" for i in range(self._base.__len__(node))]

    def outline(self, node: Any) -> Any:
        """What is equal for containers whose parts correspond to one another."""
        return self._base.__len__(node)

    def fixed(self, node: Any) -> list[Any]:
        """What a rebuilt one keeps as it is."""
        return []

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        if type(node) is list:
            return list(parts)
        new = copied(node)
        if self._base is list:
            list.__setitem__(new, slice(None), parts)
        else:
            self._base.clear(new)
            (set.update if self._base is set else deque.extend)(new, parts)
        return new


class AttributesHandler(Handler):
    """An object that has attributes alone."""

    def parts(self, node: Any) -> list[Any]:
        return []

    def keys(self, node: Any) -> list[str]:
        return []

    def outline(self, node: Any) -> Any:
        return None

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        return blank(node)


class TupleHandler(Handler):
    def keys(self, node: Any) -> list[str]:
        names = _fields(node)
        return [f".{name}" for name in names] if names else super().keys(node)

    def outline(self, node: Any) -> Any:
        return _fields(node) or super().outline(node)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        cls: Any = type(node)
        if cls is tuple:
            return tuple(parts)
        return cls(parts) if hasattr(cls, "n_sequence_fields") else tuple.__new__(cls, parts)  # C's named tuples


class SetHandler(Handler):
    def keys(self, node: Any) -> list[str]:
        return [f".{{{i}}}" for i in range(self._base.__len__(node))]

    def outline(self, node: Any) -> Any:
        return "set", super().outline(node)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        if self._base is frozenset:
            return frozenset.__new__(type(node), parts)
        return set(parts) if type(node) is set else super().rebuilt(node, parts)


class DictHandler(Handler):
    """A dict: its items in the order of sorted keys, if these are strings or integers, so that dicts correspond."""

    def _order(self, node: Any) -> list[Any]:
        keys = list(dict.__iter__(node))
        kinds = set(map(type, keys))
        return sorted(keys) if kinds <= {str} or kinds <= {int} else keys  # others may compare as they like

    def parts(self, node: Any) -> list[Any]:
        keys = self._order(node)
        return [node[key] for key in keys] if type(node) is dict else [dict.__getitem__(node, key) for key in keys]

    def keys(self, node: Any) -> list[str]:
        return [_bracketed(key) for key in self._order(node)]

    def outline(self, node: Any) -> Any:
        return tuple(self._order(node))

    def fixed(self, node: Any) -> list[Any]:
        keys = list(dict.__iter__(node))
        if ATOMS.issuperset(map(type, keys)):  # nearly always
            keys = []
        return [*keys, node.default_factory] if isinstance(node, defaultdict) else keys

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        if type(node) is dict:
            return {**node, **dict(zip(self._order(node), parts, strict=True))}
        new = copied(node)
        # past what the class forbids
        put = OrderedDict.__setitem__ if isinstance(node, OrderedDict) else dict.__setitem__
        for key, part in zip(self._order(node), parts, strict=True):
            put(new, key, part)
        if dict_of(node) is node:  # attributes and items are one
            new.__dict__ = new
        return new


class OrderedDictHandler(DictHandler):
    def _order(self, node: Any) -> list[Any]:
        return list(OrderedDict.__iter__(node))


class MappingHandler(Handler):
    """A mapping that is not a dict: rebuilt by its class from a dict, else by assigning to a copy."""

    def parts(self, node: Any) -> list[Any]:
        return [node[key] for key in node]

    def keys(self, node: Any) -> list[str]:
        return [_bracketed(key) for key in node]

    def outline(self, node: Any) -> Any:
        return tuple(node)

    def fixed(self, node: Any) -> list[Any]:
        return list(node)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        contents = dict(zip(node, parts, strict=True))
        try:
            new = self._made(node, contents)
        except _FROM_USERS:
            new = None
        if new is None or not self.agrees(new, node, parts):
            raise ArgumentError(f"this {type(node).__name__} cannot be made from a dict; pass a dict of its items")
        return new

    def agrees(self, new: Any, node: Any, parts: list[Any]) -> bool:
        """Whether the new mapping has the node's keys and these parts."""
        try:
            return list(new) == list(node) and all(new[k] is part for k, part in zip(node, parts, strict=True))
        except _FROM_USERS:
            return False

    def _made(self, node: Any, contents: dict[Any, Any]) -> Any:
        if not hasattr(type(node), "__setitem__") or (attributes(node) and not hasattr(type(node), "__copy__")):
            return type(node)(contents)  # a copy would share the attribute in which the items are
        new = copied(node)
        for key, part in contents.items():
            new[key] = part
        return new


class PartialHandler(Handler):
    """`functools.partial`: its function and its arguments."""

    def parts(self, node: Any) -> list[Any]:
        return [node.func, *node.args, *node.keywords.values()]

    def keys(self, node: Any) -> list[str]:
        return [".func", *(f".args[{i}]" for i in range(len(node.args))), *(f".keywords[{k!r}]" for k in node.keywords)]

    def outline(self, node: Any) -> Any:
        return len(node.args), tuple(node.keywords)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        cut = 1 + len(node.args)
        return type(node)(*parts[:cut], **dict(zip(node.keywords, parts[cut:], strict=True)))


def _fields(node: Any) -> tuple[str, ...]:
    """The names of a named tuple's fields, as its class has them."""
    names = getattr(type(node), "_fields", ())
    return names if isinstance(names, tuple) else ()
