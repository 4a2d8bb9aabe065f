"""Classes registered as nodes of trees: with optree, or with a framework that keeps a registry of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from xdevice.framework.ownership import usable

Opened = tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]
Opener = Callable[[Any], Opened]


def opener_of(cls: type) -> Opener | None:
    """What opens objects of the class one level deep.

    Into parts, how each is written, what rebuilds it, and what it keeps beside them.
    """
    entry = _in_optree(cls)
    if entry is not None and getattr(entry.kind, "name", "") == "CUSTOM":
        return lambda node: _opened_by_optree(entry, node)
    for owner in usable(cls):
        if owner.open("trees").has("is_node") and owner.trees.is_node(cls):
            return owner.trees.opened
    return None


def _in_optree(cls: type) -> Any:
    """How optree opens the class: as registered for all, else in a namespace, if there is one alone."""
    optree: Any = sys.modules.get("optree")
    if not hasattr(optree, "register_pytree_node"):
        return None
    entry = optree.register_pytree_node.get(cls)
    if entry is None:  # it has no list of namespaces of its own (0.20)
        registry = getattr(optree.registry, "_NODETYPE_REGISTRY", {})
        found = [registry[key] for key in list(registry) if isinstance(key, tuple) and key[-1] is cls]
        entry = found[0] if len(found) == 1 else None
    return entry


def _opened_by_optree(entry: Any, node: Any) -> Opened:
    children, metadata, *entries = entry.flatten_func(node)
    parts = list(children)
    names = list(entries[0]) if entries and entries[0] is not None else range(len(parts))
    keys = [f".{name}" if isinstance(name, str) and name.isidentifier() else f"[{name!r}]" for name in names]
    return parts, keys, lambda new: entry.unflatten_func(metadata, new), metadata
