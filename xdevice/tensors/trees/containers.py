"""How a container of each class is flattened into parts, and rebuilt from new parts.

One table, `containers`, has a function for each class that returns the parts of an object, their
paths, a function that rebuilds it, and what a rebuilt one keeps; ``None`` for a class that is not
opened. A class of a framework, or with a method ``to``, is never opened. A class that is registered
with optree, or as a pytree of its framework, is opened as registered. Otherwise these are
containers: dicts, lists, tuples, deques and sets, dataclasses, attrs classes and
`types.SimpleNamespace`, with subclasses. The parts are the items, and then the attributes.
How a class is opened is found out once: register it before.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial
from types import MemberDescriptorType, SimpleNamespace
from typing import Any, TypeAlias

from xdevice.contract import NodeParts
from xdevice.errors import in_one_line, shortened
from xdevice.framework.adapters import imported
from xdevice.framework.ownership import ATOMS, can_be_asked, classes, known_of
from xdevice.integers import as_integer

Node: TypeAlias = Any
"""An object that is a container."""

Parts: TypeAlias = list[Any]


Flatten: TypeAlias = Callable[[Node], NodeParts]

_MAX_BITS = 1000


class ObjectContainer:
    """An object with attributes: a dataclass, an attrs class or a `types.SimpleNamespace`.

    A subclass has items as well: its parts are the items, and then the attributes.
    """

    def __init__(self, cls: Any, base: Any = object) -> None:
        self.cls = cls
        self.base = base  # Python's own class, whose methods a subclass may have replaced
        self.slots = slots_of(cls)
        self.has_attributes = cls.__dictoffset__ != 0 or bool(self.slots)

    def __call__(self, node: Node) -> NodeParts:
        parts = self.items(node)
        if self.has_attributes:
            parts += self.attributes(node).values()
        return parts, self.paths, self.rebuild, self.static(node)

    def paths(self, node: Node) -> list[str]:
        return self.item_paths(node) + [f".{name}" for name in self.attributes(node)]

    def rebuild(self, node: Node, parts: Parts) -> Node:
        """A new object of the same class, without a call of its ``__init__``."""
        if not self.has_attributes:
            return self.with_items(node, parts)
        attributes = self.attributes(node)
        number_of_items = len(parts) - len(attributes)
        new_node = self.with_items(node, parts[:number_of_items])
        for name, value in zip(attributes, parts[number_of_items:], strict=True):
            if name in self.slots:
                object.__setattr__(new_node, name, value)  # the class may be frozen
            else:
                new_node.__dict__[name] = value
        return new_node

    def attributes(self, node: Node) -> dict[str, Any]:
        return attributes_of(node, self.slots)

    def items(self, node: Node) -> Parts:
        return []

    def item_paths(self, node: Node) -> list[str]:
        return []

    def static(self, node: Node) -> Parts:
        """What a rebuilt one keeps as it is, which may hold a tensor."""
        return []

    def with_items(self, node: Node, items: Parts) -> Node:
        # An error for a class whose base is written in C, such as an exception: what the base
        # stores would be lost. SimpleNamespace stores nothing beside its attributes.
        make = SimpleNamespace if issubclass(self.cls, SimpleNamespace) else object
        return make.__new__(self.cls)


class SequenceContainer(ObjectContainer):
    """A list, tuple, deque, set or frozenset."""

    def items(self, node: Node) -> Parts:
        return list(self.base.__iter__(node))

    def item_paths(self, node: Node) -> list[str]:
        if self.base in (set, frozenset):
            return [f".{{{i}}}" for i in range(self.base.__len__(node))]
        fields = getattr(self.cls, "_fields", None)
        if self.base is tuple and isinstance(fields, tuple) and len(fields) == len(node):
            return [f".{field}" for field in fields]  # of a named tuple
        return [f"[{i}]" for i in range(self.base.__len__(node))]

    def with_items(self, node: Node, items: Parts) -> Node:
        if self.base in (tuple, frozenset):
            if hasattr(self.cls, "n_sequence_fields"):  # a named tuple made in C
                return self.cls(items)
            return self.base.__new__(self.cls, items)
        new_node = self.cls.__new__(self.cls)
        if self.base is deque:
            deque.__init__(new_node, items, node.maxlen)
        else:
            self.base.__init__(new_node, items)
        return new_node


class DictContainer(ObjectContainer):
    """A dict. Some, ``AttrDict`` by name, are their own attributes: ``self.__dict__ = self``."""

    def attributes(self, node: Node) -> dict[str, Any]:
        attributes = attributes_of(node, self.slots)
        return {} if attributes is node else attributes

    def items(self, node: Node) -> Parts:
        return [dict.__getitem__(node, key) for key in self.base.__iter__(node)]

    def item_paths(self, node: Node) -> list[str]:
        return [step_to(key) for key in self.base.__iter__(node)]

    def static(self, node: Node) -> Parts:
        return [key for key in dict.__iter__(node) if type(key) not in ATOMS]

    def with_items(self, node: Node, items: Parts) -> Node:
        new_items = zip(self.base.__iter__(node), items, strict=True)
        new_node = self.cls.__new__(self.cls)
        for key, item in new_items:
            self.base.__setitem__(new_node, key, item)
        if self.base is defaultdict:
            new_node.default_factory = node.default_factory
        if getattr(node, "__dict__", None) is node:
            new_node.__dict__ = new_node
        return new_node


def step_to(key: object) -> str:
    """What is written after a container for the item of a key. Equal keys are written alike."""
    if isinstance(key, str):  # also of NumPy, or an enum
        return f"[{in_one_line(str.__repr__(key))}]"
    number = as_integer(key)
    if number is None or key != number:
        return f"[{in_one_line(repr(key))}]"
    # Python refuses the decimals of very long integers
    return f"[{number if number.bit_length() <= _MAX_BITS else shortened(number)}]"


def _find_container(cls: type) -> Flatten | None:
    if known_of(cls).category is not None:
        return None
    if cls.__module__ not in ("builtins", "collections"):
        entry = _optree_entry(cls)
        if entry is not None:
            return partial(_flattened_by_optree, entry)
        for owner in imported():
            if not can_be_asked(owner, cls) or not owner.has("models", "is_node"):
                continue
            if owner.models.is_node(cls):
                return owner.models.flatten_one_level
    for base, container in _CONTAINERS.items():
        if issubclass(cls, base):
            return container(cls, base)
    has_fields = hasattr(cls, "__dataclass_fields__") or hasattr(cls, "__attrs_attrs__")
    return ObjectContainer(cls) if has_fields or issubclass(cls, SimpleNamespace) else None


def _optree_entry(cls: type) -> Any:
    """The class's entry in optree's global registry."""
    optree: Any = sys.modules.get("optree")
    if not hasattr(optree, "register_pytree_node"):
        return None
    entry = optree.register_pytree_node.get(cls)
    return entry if getattr(getattr(entry, "kind", None), "name", "") == "CUSTOM" else None


def _flattened_by_optree(entry: Any, node: Node) -> NodeParts:
    children, metadata, *names = entry.flatten_func(node)
    children = list(children)
    given = names[0] if names else None
    entries = list(range(len(children)) if given is None else given)  # it may be an iterator

    def paths(_: Node) -> list[str]:
        return [f".{e}" if isinstance(e, str) and e.isidentifier() else f"[{e!r}]" for e in entries]

    def rebuild(_: Node, parts: Parts) -> Node:
        return entry.unflatten_func(metadata, parts)

    return children, paths, rebuild, [metadata]


def attributes_of(obj: Any, slots: dict[str, MemberDescriptorType]) -> dict[str, Any]:
    """The values in an object's ``__dict__`` and slots, by the names that are used there."""
    attributes: dict[str, Any] = getattr(obj, "__dict__", {})
    if not slots:
        return attributes
    attributes = dict(attributes)
    for name, member in slots.items():
        try:
            attributes.setdefault(name, member.__get__(obj))
        except AttributeError:  # the slot has no value
            continue
    return attributes


def slots_of(cls: type) -> dict[str, MemberDescriptorType]:
    """All slots. A slot hides one of the same name in a base class; ``__x`` is ``_Base__x``."""
    return {
        name: member
        for base in reversed(cls.__mro__)
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType)
    }


_CONTAINERS: dict[Any, type[ObjectContainer]] = {
    **dict.fromkeys((OrderedDict, defaultdict, dict), DictContainer),
    **dict.fromkeys((tuple, list, deque, set, frozenset), SequenceContainer),
}


class _Containers(dict[type, Flatten | None]):
    def __missing__(self, cls: type) -> Flatten | None:
        known = known_of(cls)
        flatten = _find_container(cls)
        # A class that is a leaf, and no framework's, may yet be registered; one of which nothing
        # is known for good, since its framework is being imported, is asked about again.
        if cls in classes and (flatten is not None or known.backend is not None):
            self[cls] = flatten
        return flatten


containers = _Containers(
    {
        **dict.fromkeys(ATOMS),
        dict: DictContainer(dict, dict),
        list: SequenceContainer(list, list),
        tuple: SequenceContainer(tuple, tuple),
    }
)
"""How objects of each class so far are flattened; ``None`` if they are leaves.

The usual ones are here from the start: compilers cannot trace the search.
"""


def flattened(node: Node) -> NodeParts:
    """The object, flattened by the function of its class; a leaf has no parts."""
    flatten = containers[type(node)]
    if flatten is None:
        return [], lambda _: [], lambda node, _: node, []
    return flatten(node)
