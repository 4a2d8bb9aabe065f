"""Python's containers: their parts, the paths to these, and rebuilding from new parts.

The parts of a container are its items, by position or key, and its attributes.
Items are read and written by the methods of Python's own class, because a
subclass may override them. Attributes are read from ``__dict__`` and slots and
not by the class's ``__getattr__``, which may raise anything.
"""

import copy
from collections import defaultdict, deque
from collections.abc import Sequence
from types import MemberDescriptorType, SimpleNamespace
from typing import Any, TypeAlias

from xdevice.errors import ArgumentError, in_one_line, shortened
from xdevice.framework.ownership import ATOMS

Node: TypeAlias = Any
"""An object that is a container."""

Part: TypeAlias = Any
"""An item or the value of an attribute of a container."""

Parts: TypeAlias = list[Part]
"""The items of a container, or its items and its attributes."""

Key: TypeAlias = Any
"""The key, the position, the field or the path of an item."""

Attributes: TypeAlias = dict[str, Part]
"""The values of attributes, by name."""

# The errors that the methods of users' classes may raise.
_USER_ERRORS = (TypeError, ValueError, AttributeError, KeyError, NotImplementedError)

_getattribute: Any = object.__getattribute__
_slots: dict[type, dict[str, MemberDescriptorType]] = {}  # by class


def _in_brackets(self: object, key: Key) -> str:
    """The method `path_of` of containers whose keys are written in brackets."""
    if isinstance(key, int):
        # Python refuses the repr of very long integers
        return f"[{shortened(key)}]"
    return f"[{in_one_line(repr(key))}]"


class Container:
    """How objects of one class are opened and rebuilt; here, of a class without items.

    The parts are the items and then the attributes. Callers use `parts`,
    `paths`, `static_parts`, `outline` and `rebuild`. A subclass says what the
    items are: it overrides `items`, `keys`, `path_of` and `with_items`.
    """

    def __init__(self, cls: type, base: Any = object) -> None:
        self._base = base  # Python's own class
        self._has_attributes = bool(slots_of(cls)) or cls.__dictoffset__ != 0

    def parts(self, node: Node) -> Parts:
        """The items and then the values of the attributes, in a fixed order."""
        if not self._has_attributes:
            return self.items(node)
        return [*self.items(node), *self.attributes(node).values()]

    def paths(self, node: Node) -> list[str]:
        """The path of each part within the container: ``[0]``, ``['x']``, ``.x``."""
        paths = [self.path_of(key) for key in self.keys(node)]
        paths += [f".{name}" for name in self.attributes(node)]
        return paths

    def outline(self, node: Node) -> object:
        """A value that is equal for containers whose parts correspond to one another.

        Functions of several trees compare it, such as those of gradients.
        """
        return self.keys(node), tuple(self.attributes(node))

    def rebuild(self, node: Node, parts: Parts) -> Node:
        """A new container of the same class with these parts."""
        attributes = self.attributes(node)
        if not attributes:
            return self.with_items(node, parts)
        number_of_items = len(parts) - len(attributes)
        new_attributes = dict(zip(attributes, parts[number_of_items:], strict=True))
        return self.with_items_and_attributes(node, parts[:number_of_items], new_attributes)

    def attributes(self, node: Node) -> Attributes:
        """The attributes that are parts, by name."""
        if not self._has_attributes:
            return {}
        return attributes_of(node)

    def items(self, node: Node) -> Parts:
        return []

    def keys(self, node: Node) -> Sequence[Key]:
        """The key or position of each item."""
        return ()

    def path_of(self, key: Key) -> str:
        """The path of an item within the container."""
        return str(key)

    def static_parts(self, node: Node) -> Parts:
        """What a rebuilt container keeps as it is: keys, for example."""
        return []

    def with_items(self, node: Node, items: Parts) -> Node:
        """A new container of the same class with these items; here there are none."""
        return new_without_attributes(node)

    def with_items_and_attributes(self, node: Node, items: Parts, attributes: Attributes) -> Node:
        return set_attributes(self.with_items(node, items), node, attributes)


class SequenceContainer(Container):
    path_of = _in_brackets

    def items(self, node: Node) -> Parts:
        return [*node] if type(node) is self._base else list(self._base.__iter__(node))

    def keys(self, node: Node) -> Sequence[Key]:
        return range(self._base.__len__(node))

    def with_items(self, node: Node, items: Parts) -> Node:
        if type(node) is list:
            return list(items)
        new_node = shallow_copy(node)
        if self._base is list:
            list.__setitem__(new_node, slice(None), items)
            return new_node
        self._base.clear(new_node)
        if self._base is set:
            set.update(new_node, items)
        else:
            deque.extend(new_node, items)
        return new_node


class TupleContainer(SequenceContainer):
    def keys(self, node: Node) -> Sequence[Key]:
        fields = getattr(type(node), "_fields", ())
        if isinstance(fields, tuple) and fields:
            return fields
        return super().keys(node)

    def path_of(self, key: Key) -> str:
        if isinstance(key, str):
            return f".{key}"
        return f"[{key}]"

    def with_items(self, node: Node, items: Parts) -> Node:
        cls: Any = type(node)
        if cls is tuple:
            return tuple(items)
        if hasattr(cls, "n_sequence_fields"):  # a named tuple made in C
            return cls(items)
        return tuple.__new__(cls, items)


class SetContainer(SequenceContainer):
    def path_of(self, key: Key) -> str:
        return f".{{{key}}}"

    def with_items(self, node: Node, items: Parts) -> Node:
        if self._base is frozenset:
            return frozenset.__new__(type(node), items)
        if type(node) is set:
            return set(items)
        return super().with_items(node, items)


class DictContainer(Container):
    """A dict. Its items are in the order of sorted keys if these are all strings or all integers.

    Dicts with the same keys in another order therefore correspond to one
    another.
    """

    path_of = _in_brackets

    def attributes(self, node: Node) -> Attributes:
        if dict_of(node) is node:  # its items are its attributes
            return {}
        return super().attributes(node)

    def keys(self, node: Node) -> list[Key]:
        keys = [*node] if type(node) is dict else list(self._base.__iter__(node))
        key_types = set(map(type, keys))
        # keys of other classes may define their comparison
        if self._base is dict and (key_types <= {str} or key_types <= {int}):
            keys.sort()
        return keys

    def items(self, node: Node) -> Parts:
        keys = self.keys(node)
        if type(node) is dict:
            return [node[key] for key in keys]
        return [dict.__getitem__(node, key) for key in keys]

    def static_parts(self, node: Node) -> Parts:
        keys = list(dict.__iter__(node))
        if ATOMS.issuperset(map(type, keys)):  # nearly always
            keys = []
        if isinstance(node, defaultdict):
            keys.append(node.default_factory)
        return keys

    def with_items(self, node: Node, items: Parts) -> Node:
        new_items = zip(self.keys(node), items, strict=True)
        if type(node) is dict:
            return {**node, **dict(new_items)}
        new_node = shallow_copy(node)
        for key, item in new_items:
            self._base.__setitem__(new_node, key, item)  # the class may forbid assignments
        if dict_of(node) is node:  # its items are its attributes
            new_node.__dict__ = new_node
        return new_node


class MappingContainer(Container):
    """A mapping that is not a dict: rebuilt by its class from a dict, or by assigning to a copy."""

    path_of = _in_brackets

    def items(self, node: Node) -> Parts:
        return [node[key] for key in node]

    def keys(self, node: Node) -> list[Key]:
        return list(node)

    static_parts = keys

    def with_items(self, node: Node, items: Parts) -> Node:
        try:
            new_node = self._from_dict(node, dict(zip(node, items, strict=True)))
        except _USER_ERRORS:
            new_node = None
        if new_node is None or not self._has_items(new_node, node, items):
            raise ArgumentError(
                f"this {type(node).__name__} cannot be made from a dict; pass a dict of its items"
            )
        return new_node

    def with_items_and_attributes(self, node: Node, items: Parts, attributes: Attributes) -> Node:
        # the items are usually in one of the attributes
        new_node = set_attributes(new_without_attributes(node), node, attributes)
        if self._has_items(new_node, node, items):
            return new_node
        return super().with_items_and_attributes(node, items, attributes)

    def _has_items(self, new_node: Node, node: Node, items: Parts) -> bool:
        """Whether the new mapping has the keys of ``node`` and these items."""
        try:
            if list(new_node) != list(node):
                return False
            return all(new_node[key] is item for key, item in zip(node, items, strict=True))
        except _USER_ERRORS:
            return False

    def _from_dict(self, node: Node, contents: dict[Key, Part]) -> Node:
        cls: Any = type(node)
        # a copy without `__copy__` would share the attribute that holds the
        # items
        may_share_items = attributes_of(node) and not hasattr(cls, "__copy__")
        if may_share_items or not hasattr(cls, "__setitem__"):
            return cls(contents)
        new_node = shallow_copy(node)
        for key, item in contents.items():
            new_node[key] = item
        return new_node


class PartialContainer(Container):
    """A `functools.partial`: its function and its arguments."""

    def items(self, node: Node) -> Parts:
        return [node.func, *node.args, *node.keywords.values()]

    def keys(self, node: Node) -> list[str]:
        positional = [f".args[{i}]" for i in range(len(node.args))]
        keywords = [f".keywords[{name!r}]" for name in node.keywords]
        return [".func", *positional, *keywords]

    def with_items(self, node: Node, items: Parts) -> Node:
        first_keyword = 1 + len(node.args)
        keywords = dict(zip(node.keywords, items[first_keyword:], strict=True))
        return type(node)(*items[:first_keyword], **keywords)


def attributes_of(node: Node) -> Attributes:
    """The values in the object's ``__dict__`` and slots, by the names that are used there."""
    attributes = dict(dict_of(node))
    for name, member in slots_of(type(node)).items():
        try:
            attributes.setdefault(name, member.__get__(node))
        except AttributeError:  # the slot has no value
            continue
    return attributes


def dict_of(node: Node) -> Attributes:
    """The object's ``__dict__``; empty if the object has none."""
    if type(node).__dictoffset__ == 0:
        return {}
    try:
        attributes: Attributes = _getattribute(node, "__dict__")
    except TypeError:  # a proxy, such as `tf.TensorArray`, has the descriptor of another class
        attributes = dict(vars(node))
    return attributes


def slots_of(cls: type) -> dict[str, MemberDescriptorType]:
    """All slots, also those of base classes, by the names under which they are stored.

    The name of a private slot is ``_Base__name``.
    """
    slots = _slots.get(cls)
    if slots is None:
        slots = {}
        for base in cls.__mro__:
            if "__slots__" in vars(base) or "__struct_fields__" in vars(base):
                members = vars(base).items()
                slots |= {
                    name: member
                    for name, member in members
                    if isinstance(member, MemberDescriptorType)
                }
        _slots[cls] = slots
    return slots


def new_without_attributes(node: Node) -> Node:
    """An object of the same class without attributes; its ``__init__`` is not called."""
    cls: Any = type(node)
    base: Any = object
    if issubclass(cls, SimpleNamespace):
        base = SimpleNamespace
    try:
        return base.__new__(cls)
    except TypeError:  # the class has data of its own in C
        return shallow_copy(node)


def set_attributes(new_node: Node, node: Node, attributes: Attributes) -> Node:
    """Store attributes where ``node`` stores those of the same names, and return ``new_node``.

    The class's ``__setattr__`` is not called, so that frozen objects can be
    rebuilt, too.
    """
    in_dict, slots = dict_of(node), slots_of(type(node))
    for name, value in attributes.items():
        if name in in_dict:
            dict_of(new_node)[name] = value
        else:
            slots[name].__set__(new_node, value)
    return new_node


def shallow_copy(node: Node) -> Node:
    """A shallow copy of the object; an error if its class returns the object itself as its copy."""
    try:
        new_node = copy.copy(node)
    except Exception:  # the class forbids copies, or changes to the object during the copy
        cls: Any = type(node)
        new_node = cls.__new__(cls)
        if isinstance(node, dict):
            dict.update(new_node, node)
        dict_of(new_node).update(dict_of(node))
    if new_node is node:
        raise ArgumentError(
            f"copying this {type(node).__name__} gives itself, so it cannot be moved; pass its "
            "parts"
        )
    return new_node
