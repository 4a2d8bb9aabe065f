"""The attributes of an object: what is in its ``__dict__`` and slots, and another object with the same."""

from __future__ import annotations

import copy
from types import MemberDescriptorType, SimpleNamespace

from xdevice.errors import ArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def attributes(node: Any, slots: Sequence[str] | None = None) -> dict[str, Any]:
    """The values in the object's ``__dict__`` and slots, by the names under which they are kept."""
    found = dict(getattr(node, "__dict__", ()))
    for name in slots_of(type(node)) if slots is None else slots:
        if hasattr(node, name):
            found.setdefault(name, getattr(node, name))
    return found


def slots_of(cls: type) -> list[str]:
    """The names of all slots, those of base classes and private ones as they are kept: ``_Base__name``."""
    return [
        name
        for base in cls.__mro__
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType)
    ]


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
    own = getattr(node, "__dict__", ())
    for name, value in attributes.items():
        if name in own:
            new.__dict__[name] = value
        else:
            object.__setattr__(new, name, value)
    return new


def copied(node: Any) -> Any:
    try:
        new = copy.copy(node)
    except Exception:  # it refuses to be copied, or to be changed while it is
        cls: Any = type(node)
        new = cls.__new__(cls)
        if isinstance(node, dict):
            dict.update(new, node)
        new.__dict__.update(getattr(node, "__dict__", {})) if hasattr(new, "__dict__") else None
    if new is node:
        raise ArgumentError(f"copying this {type(node).__name__} gives itself, so it cannot be moved; pass its parts")
    return new
