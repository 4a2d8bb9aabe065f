"""How containers are opened and rebuilt: Python's own, and those registered with a library of trees.

A container of a type is opened into its parts and rebuilt from others: same type, same attributes. What is
registered with optree, or with a framework that keeps a registry of its own, is opened as registered; other
classes as what they are in Python: dicts, lists, tuples, sets, mappings, partials, and the attributes of
dataclasses, attrs and pydantic models, `types.SimpleNamespace` and of all these.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Mapping
from types import SimpleNamespace

from xdevice.errors import ArgumentError, NotATensorError
from xdevice.framework.ownership import ATOMS, owned_by, ownership_of
from xdevice.tensors.attributes import attributes, blank, copied, slots_of, with_attributes
from xdevice.tensors.registered import opener_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from xdevice.tensors.registered import Opener


class Container:
    """How objects of one class are opened: into their contents, and the attributes that they have besides."""

    __slots__ = ("_contents", "_has_attributes", "_slots")

    def __init__(self, cls: type, contents: Contents | None) -> None:
        self._contents, self._slots = contents, slots_of(cls)
        self._has_attributes = bool(self._slots) or cls.__dictoffset__ != 0

    def parts(self, node: Any) -> list[Any]:
        """What is in it, in a fixed order."""
        found = self._contents.parts(node) if self._contents else []
        return found + list(self._own(node).values()) if self._has_attributes else found

    def keys(self, node: Any) -> list[str]:
        """How each part would be written: ``[0]``, ``['x']``, ``.x``."""
        found = self._contents.keys(node) if self._contents else []
        return found + [f".{name}" for name in self._own(node)]

    def outline(self, node: Any) -> Any:
        """What is equal for containers whose parts correspond to one another."""
        found = self._contents.outline(node) if self._contents else None
        return (found, tuple(self._own(node))) if self._has_attributes else found

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        """Another of its class with these parts."""
        own = self._own(node)
        if self._contents is None:
            return with_attributes(blank(node), node, dict(zip(own, parts, strict=True)))
        cut = len(parts) - len(own)
        new = self._contents.rebuilt(node, parts[:cut])
        return with_attributes(new, node, dict(zip(own, parts[cut:], strict=True)))

    def _own(self, node: Any) -> dict[str, Any]:
        if not self._has_attributes or getattr(node, "__dict__", None) is node:  # its attributes are its items
            return {}
        found = attributes(node, self._slots)
        if isinstance(self._contents, _User):
            found.pop("data", None)
        return found


class Contents:
    """What is inside of a container by position or key; the base is a sequence."""

    def parts(self, node: Any) -> list[Any]:
        return list(node)

    def keys(self, node: Any) -> list[str]:
        return [f"[{i}]" for i in range(len(node))]

    def outline(self, node: Any) -> Any:
        return len(node)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        if type(node) is list:
            return list(parts)
        new = copied(node)
        if isinstance(new, list):
            list.__setitem__(new, slice(None), parts)
        else:
            new.clear()
            new.extend(parts)
        return new


class _Tuple(Contents):
    def keys(self, node: Any) -> list[str]:
        names = getattr(node, "_fields", None)
        return [f".{name}" for name in names] if names else super().keys(node)

    def outline(self, node: Any) -> Any:
        return getattr(node, "_fields", len(node))

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        cls: Any = type(node)
        if cls is tuple:
            return tuple(parts)
        return cls(parts) if hasattr(cls, "n_sequence_fields") else tuple.__new__(cls, parts)  # C's named tuples


class _Set(Contents):
    def keys(self, node: Any) -> list[str]:
        return [f".{{{i}}}" for i in range(len(node))]

    def outline(self, node: Any) -> Any:
        return "set", len(node)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        return type(node)(parts)


class _Dict(Contents):
    """A dict: its items in the order of sorted keys, if these are strings or integers, so that dicts correspond."""

    def _order(self, node: Any) -> list[Any]:
        keys = list(dict.__iter__(node))
        kinds = set(map(type, keys))
        if kinds <= {str} or kinds <= {int}:
            return sorted(keys)
        if any(map(owned_by, keys)):
            raise NotATensorError("a key of this dict is a tensor, and keys do not move; keep tensors in its values")
        return keys  # others may compare as they like

    def parts(self, node: Any) -> list[Any]:
        return [dict.__getitem__(node, key) for key in self._order(node)]

    def keys(self, node: Any) -> list[str]:
        return [f"[{key!r}]" for key in self._order(node)]

    def outline(self, node: Any) -> Any:
        return tuple(self._order(node))

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        if type(node) is dict:
            return {**node, **dict(zip(self._order(node), parts, strict=True))}
        new = copied(node)
        put = (
            OrderedDict.__setitem__ if isinstance(node, OrderedDict) else dict.__setitem__
        )  # whatever the class forbids
        for key, part in zip(self._order(node), parts, strict=True):
            put(new, key, part)
        if getattr(node, "__dict__", None) is node:  # attributes and items are one
            new.__dict__ = new
        return new


class _OrderedDict(_Dict):
    def _order(self, node: Any) -> list[Any]:
        return list(OrderedDict.__iter__(node))


class _User(Contents):
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

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        new = copied(node)
        new.data = self._inner(node).rebuilt(node.data, parts)
        return new


class _Mapping(Contents):
    """A mapping that is not a dict: rebuilt by its class from a dict, else by assigning to a copy."""

    def parts(self, node: Any) -> list[Any]:
        return [node[key] for key in node]

    def keys(self, node: Any) -> list[str]:
        return [f"[{key!r}]" for key in node]

    def outline(self, node: Any) -> Any:
        return tuple(node)

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        contents = dict(zip(node, parts, strict=True))
        try:
            if hasattr(type(node), "__setitem__"):
                new = copied(node)
                for key, part in contents.items():
                    new[key] = part
            else:
                new = type(node)(contents)
            if list(new) == list(contents) and all(new[key] is part for key, part in contents.items()):
                return new
        except (TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
            pass
        raise ArgumentError(f"this {type(node).__name__} cannot be made from a dict; pass a dict of its items")


class _Partial(Contents):
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


class _Registered(Container):
    """A class that is registered as a node of trees: with what opens an object one level deep."""

    __slots__ = ("_open",)

    def __init__(self, opener: Opener) -> None:
        super().__init__(object, None)
        self._open = opener

    def parts(self, node: Any) -> list[Any]:
        return self._open(node)[0]

    def keys(self, node: Any) -> list[str]:
        return self._open(node)[1]

    def outline(self, node: Any) -> Any:
        return tuple(self._open(node)[1])

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        return self._open(node)[2](parts)


def container_of(node: Any) -> Container | None:
    """How the object is opened; ``None`` for a leaf."""
    cls = type(node)
    try:
        return _known[cls]
    except KeyError:
        if ownership_of(cls) is None and not moves_itself(cls) and cls not in ATOMS:
            opener = None if cls.__module__ in ("builtins", "collections") else opener_of(cls)
            found = _in_python(cls) if opener is None else _Registered(opener)
            if found is not None:
                return _known.setdefault(cls, found)
        return None  # not kept: a framework imported later may own it, and a class may yet be registered


def moves_itself(cls: type) -> bool:
    """Whether objects of the class have a method ``to`` of their own: boxes, graphs, caches, TensorDicts."""
    return callable(getattr(cls, "to", None)) and ownership_of(cls) is None


def _in_python(cls: type) -> Container | None:
    contents = next((kind for base, kind in _KINDS.items() if issubclass(cls, base)), None)
    if contents is None and "functools" in sys.modules and issubclass(cls, sys.modules["functools"].partial):
        contents = _Partial()
    fields = any(hasattr(cls, mark) for mark in ("__dataclass_fields__", "__attrs_attrs__", "__pydantic_fields__"))
    if contents is None and issubclass(cls, Mapping):
        contents = _Mapping()
    if contents is None and not fields and not issubclass(cls, SimpleNamespace):
        return None
    return Container(cls, contents)


_KINDS: dict[type, Contents] = {
    OrderedDict: _OrderedDict(),
    dict: _Dict(),
    tuple: _Tuple(),
    list: Contents(),
    deque: Contents(),
    set: _Set(),
    frozenset: _Set(),
    UserDict: _User(),
    UserList: _User(),
}

# each class of containers seen so far; the usual ones from the start, since compilers cannot trace the search
_known: dict[type, Container] = {cls: Container(cls, _KINDS[cls]) for cls in (dict, list, tuple)}
