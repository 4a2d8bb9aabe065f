"""The attributes of an object: what is in its ``__dict__`` and slots, and another object with the same.

They are read past the class's own ``__getattr__`` and ``__getattribute__``, which may raise or invent anything.
"""

import copy
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

from xdevice.errors import ArgumentError

_dict_of: Any = object.__getattribute__
_slots: dict[type, dict[str, MemberDescriptorType]] = {}  # of each class seen so far


def attributes(node: Any) -> dict[str, Any]:
    """The values in the object's ``__dict__`` and slots, by the names under which they are kept."""
    cls = type(node)
    found = {} if cls.__dictoffset__ == 0 else dict(_dict_of(node, "__dict__"))
    for name, member in slots_of(cls).items():
        try:
            found.setdefault(name, member.__get__(node))
        except AttributeError:  # it has no value
            continue
    return found


def dict_of(node: Any) -> dict[str, Any]:
    """The object's ``__dict__``; empty where it has none."""
    return {} if type(node).__dictoffset__ == 0 else _dict_of(node, "__dict__")


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
        raise ArgumentError(f"copying this {type(node).__name__} gives itself, so it cannot be moved; pass its parts")
    return new
