"""Classes registered as nodes of trees: with optree, or with a framework that keeps a registry of its own."""

import sys
from collections.abc import Callable
from typing import Any

from xdevice.framework.ownership import usable
from xdevice.tensors.trees.container_handlers import Handler

Opened = tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]
"""An object's parts, how each is written, what rebuilds it from others, and what it keeps beside them."""


class RegisteredHandler(Handler):
    """A class that is registered as a node of trees: with what opens an object one level deep."""

    def __init__(self, opened: Callable[[Any], Opened]) -> None:
        self._opened = opened

    def parts(self, node: Any) -> list[Any]:
        return self._opened(node)[0]

    def keys(self, node: Any) -> list[str]:
        return self._opened(node)[1]

    def outline(self, node: Any) -> Any:
        return tuple(self._opened(node)[1])

    def fixed(self, node: Any) -> list[Any]:
        return [self._opened(node)[3]]

    def rebuilt(self, node: Any, parts: list[Any]) -> Any:
        return self._opened(node)[2](parts)


def handler_of(cls: type) -> RegisteredHandler | None:
    """What opens objects of the class, if it is registered."""
    entry = _in_optree(cls)
    if entry is not None and getattr(entry.kind, "name", "") == "CUSTOM":
        return RegisteredHandler(lambda node: _opened_by_optree(entry, node))
    for owner in usable(cls):
        if owner.open("trees").has("is_node") and owner.trees.is_node(cls):
            return RegisteredHandler(owner.trees.opened)
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
