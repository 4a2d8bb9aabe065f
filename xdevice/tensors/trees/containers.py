"""Python's containers: their parts, by position or key, their attributes, and another one with others in their place.

Each kind reads and writes by the methods of Python's own class, since a subclass may mean others by them. Attributes
are what is in ``__dict__`` and slots, past the class's ``__getattr__``, which may raise or invent anything.
"""

import copy
from collections import defaultdict, deque
from collections.abc import Sequence
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

from xdevice.errors import ArgumentError, shortened
from xdevice.framework.ownership import ATOMS

_FROM_USERS = (
    TypeError,
    ValueError,
    AttributeError,
    KeyError,
    NotImplementedError,
)  # what their classes may raise
_dict_of: Any = object.__getattribute__
_slots: dict[type, dict[str, MemberDescriptorType]] = {}  # of each class seen so far


def _bracketed(self: Any, name: Any) -> str:
    return (
        f"[{shortened(name) if isinstance(name, int) else repr(name)}]"  # not every int has a repr
    )


class Container:
    """How objects of one class are opened, and rebuilt: into items, and attributes; this kind has attributes alone."""

    def __init__(self, cls: type, base: Any = object) -> None:
        self._base = base  # Python's own class
        self._has_attributes = bool(slots_of(cls)) or cls.__dictoffset__ != 0

    def parts(self, node: Any) -> list[Any]:
        """What is in it, in a fixed order."""
        return (
            [*self.items(node), *self.own(node).values()]
            if self._has_attributes
            else self.items(node)
        )

    def keys(self, node: Any) -> list[str]:
        """How each part would be written: ``[0]``, ``['x']``, ``.x``."""
        return [*map(self.written, self.names(node)), *(f".{name}" for name in self.own(node))]

    def outline(self, node: Any) -> Any:
        """What is equal for containers of a kind whose parts correspond to one another."""
        return self.names(node), tuple(self.own(node))

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        """Another of its class with these parts."""
        own = self.own(node)
        if not own:
            return self.made(node, parts)
        cut = len(parts) - len(own)
        return self.made_with(node, parts[:cut], dict(zip(own, parts[cut:], strict=True)))

    def own(self, node: Any) -> dict[str, Any]:
        return attributes(node) if self._has_attributes else {}

    def items(self, node: Any) -> list[Any]:
        return []

    def names(self, node: Any) -> Sequence[Any]:
        return ()

    def written(self, name: Any) -> str:
        return str(name)

    def fixed(self, node: Any) -> list[Any]:
        return []  # what a rebuilt one keeps as it is

    def made(self, node: Any, items: list[Any]) -> Any:
        return blank(node)

    def made_with(self, node: Any, items: list[Any], own: dict[str, Any]) -> Any:
        return with_attributes(self.made(node, items), node, own)


class SequenceContainer(Container):
    written = _bracketed

    def items(self, node: Any) -> list[Any]:
        return [*node] if type(node) is self._base else list(self._base.__iter__(node))

    def names(self, node: Any) -> Sequence[Any]:
        return range(self._base.__len__(node))

    def made(self, node: Any, items: list[Any]) -> Any:
        if type(node) is list:
            return list(items)
        new = copied(node)
        if self._base is list:
            list.__setitem__(new, slice(None), items)
        else:
            self._base.clear(new)
            (set.update if self._base is set else deque.extend)(new, items)
        return new


class TupleContainer(SequenceContainer):
    def names(self, node: Any) -> Sequence[Any]:
        fields = getattr(type(node), "_fields", ())
        return fields if fields and isinstance(fields, tuple) else super().names(node)

    def written(self, name: Any) -> str:
        return f".{name}" if isinstance(name, str) else f"[{name}]"

    def made(self, node: Any, items: list[Any]) -> Any:
        cls: Any = type(node)
        if cls is tuple:
            return tuple(items)
        return (
            cls(items) if hasattr(cls, "n_sequence_fields") else tuple.__new__(cls, items)
        )  # C's named tuples


class SetContainer(SequenceContainer):
    def written(self, name: Any) -> str:
        return f".{{{name}}}"

    def made(self, node: Any, items: list[Any]) -> Any:
        if self._base is frozenset:
            return frozenset.__new__(type(node), items)
        return set(items) if type(node) is set else super().made(node, items)


class DictContainer(Container):
    """A dict: its items in the order of sorted keys, if these are strings or integers, so that dicts correspond."""

    written = _bracketed

    def own(self, node: Any) -> dict[str, Any]:
        return {} if dict_of(node) is node else super().own(node)  # where they are its items

    def names(self, node: Any) -> list[Any]:
        keys = [*node] if type(node) is dict else list(self._base.__iter__(node))
        kinds = set(map(type, keys))
        is_sorted = self._base is dict and (
            kinds <= {str} or kinds <= {int}
        )  # others may compare as they like
        return sorted(keys) if is_sorted else keys

    def items(self, node: Any) -> list[Any]:
        keys = self.names(node)
        return (
            [node[key] for key in keys]
            if type(node) is dict
            else [dict.__getitem__(node, key) for key in keys]
        )

    def fixed(self, node: Any) -> list[Any]:
        keys = list(dict.__iter__(node))
        if ATOMS.issuperset(map(type, keys)):  # nearly always
            keys = []
        return [*keys, node.default_factory] if isinstance(node, defaultdict) else keys

    def made(self, node: Any, items: list[Any]) -> Any:
        if type(node) is dict:
            return {**node, **dict(zip(self.names(node), items, strict=True))}
        new = copied(node)
        for key, item in zip(self.names(node), items, strict=True):
            self._base.__setitem__(new, key, item)  # past what the class forbids
        if dict_of(node) is node:  # attributes and items are one
            new.__dict__ = new
        return new


class MappingContainer(Container):
    """A mapping that is not a dict: rebuilt by its class from a dict, else by assigning to a copy."""

    written = _bracketed

    def items(self, node: Any) -> list[Any]:
        return [node[key] for key in node]

    def names(self, node: Any) -> list[Any]:
        return list(node)

    fixed = names

    def made(self, node: Any, items: list[Any]) -> Any:
        try:
            new = self._from_dict(node, dict(zip(node, items, strict=True)))
        except _FROM_USERS:
            new = None
        if new is None or not self._agrees(new, node, items):
            raise ArgumentError(
                f"this {type(node).__name__} cannot be made from a dict; pass a dict of its items"
            )
        return new

    def made_with(self, node: Any, items: list[Any], own: dict[str, Any]) -> Any:
        new = with_attributes(blank(node), node, own)  # its items are usually in an attribute
        return new if self._agrees(new, node, items) else super().made_with(node, items, own)

    def _agrees(self, new: Any, node: Any, items: list[Any]) -> bool:
        """Whether the new mapping has the node's keys and these items."""
        try:
            return list(new) == list(node) and all(
                new[k] is item for k, item in zip(node, items, strict=True)
            )
        except _FROM_USERS:
            return False

    def _from_dict(self, node: Any, contents: dict[Any, Any]) -> Any:
        if not hasattr(type(node), "__setitem__") or (
            attributes(node) and not hasattr(type(node), "__copy__")
        ):
            return type(node)(contents)  # a copy would share the attribute in which the items are
        new = copied(node)
        for key, item in contents.items():
            new[key] = item
        return new


class PartialContainer(Container):
    def items(self, node: Any) -> list[Any]:
        return [node.func, *node.args, *node.keywords.values()]

    def names(self, node: Any) -> list[str]:
        return [
            ".func",
            *(f".args[{i}]" for i in range(len(node.args))),
            *(f".keywords[{k!r}]" for k in node.keywords),
        ]

    def made(self, node: Any, items: list[Any]) -> Any:
        cut = 1 + len(node.args)
        return type(node)(*items[:cut], **dict(zip(node.keywords, items[cut:], strict=True)))


def attributes(node: Any) -> dict[str, Any]:
    """The values in the object's ``__dict__`` and slots, by the names under which they are kept."""
    found = dict(dict_of(node))
    for name, member in slots_of(type(node)).items():
        try:
            found.setdefault(name, member.__get__(node))
        except AttributeError:  # it has no value
            continue
    return found


def dict_of(node: Any) -> dict[str, Any]:
    """The object's ``__dict__``; empty where it has none."""
    if type(node).__dictoffset__ == 0:
        return {}
    try:
        found: dict[str, Any] = _dict_of(node, "__dict__")
    except TypeError:  # of a proxy, as of a `tf.TensorArray`: a class with another one's descriptor
        found = dict(vars(node))
    return found


def slots_of(cls: type) -> dict[str, MemberDescriptorType]:
    """All slots, those of base classes and private ones by the name under which they are kept: ``_Base__name``."""
    known = _slots.get(cls)
    if known is None:
        known = _slots[cls] = {
            name: member
            for base in cls.__mro__
            if "__slots__" in vars(base) or "__struct_fields__" in vars(base)
            for name, member in vars(base).items()
            if isinstance(member, MemberDescriptorType)
        }
    return known


def blank(node: Any) -> Any:
    """An object of the same class without attributes; its ``__init__`` is not called."""
    cls: Any = type(node)
    base: Any = SimpleNamespace if issubclass(cls, SimpleNamespace) else object
    try:
        return base.__new__(cls)
    except TypeError:  # it has data of its own in C
        return copied(node)


def with_attributes(new: Any, node: Any, attributes: dict[str, Any]) -> Any:
    """The new object with these attributes, past its class's own ``__setattr__``: frozen ones too."""
    own, slots = dict_of(node), slots_of(type(node))
    for name, value in attributes.items():
        if name in own:
            dict_of(new)[name] = value
        else:
            slots[name].__set__(new, value)
    return new


def copied(node: Any) -> Any:
    """A shallow copy of the object; an error where copying it gives itself."""
    try:
        new = copy.copy(node)
    except Exception:  # it refuses to be copied, or to be changed while it is
        cls: Any = type(node)
        new = cls.__new__(cls)
        if isinstance(node, dict):
            dict.update(new, node)
        dict_of(new).update(dict_of(node))
    if new is node:
        raise ArgumentError(
            f"copying this {type(node).__name__} gives itself, so it cannot be moved; pass its parts"
        )
    return new
