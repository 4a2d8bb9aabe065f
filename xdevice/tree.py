"""Walking nested containers: optree's, and dataclasses and subclasses of containers besides.

A tree is nested containers with tensors as leaves. A tensor or model is never opened, even where
it happens to be a tuple. Containers keep their types; what nothing has changed in is not rebuilt.
"""

from __future__ import annotations

import copy
import sys
from collections import UserDict, UserList

from xdevice.errors import ArgumentError
from xdevice.registry import ATOMS, role_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_owned: dict[type, bool] = {}


def leaves(tree: Any) -> list[Any] | None:
    """Every leaf, containers opened, in a fixed order; ``None`` of what is no container."""
    flat, spec = _flatten(tree)
    if spec.is_leaf():
        inner = _children(tree)
        if inner is None:
            return None
        flat = [child for _, child in inner]
    for i in range(len(flat) - 1, -1, -1):
        if not _owned.get(type(flat[i])):  # else a tensor, as most leaves are
            deeper = leaves(flat[i])
            if deeper is not None:
                flat[i : i + 1] = deeper
    return flat


def named_leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path as one would write it: ``['batch'][0].mask``."""
    import optree

    for accessor, leaf in zip(
        optree.tree_accessors(tree, is_leaf=_is_owned, none_is_leaf=True), _flatten(tree)[0], strict=True
    ):
        path = prefix + accessor.codify("")
        inner = _children(leaf)
        if inner is None:
            yield path, leaf
        else:
            for key, child in inner:
                yield from named_leaves(child, path + key)


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``fn`` applied to each leaf; the same object where no leaf has changed."""
    flat, spec = _flatten(tree)
    new = [fn(leaf) if _children(leaf) is None else _map_children(fn, leaf) for leaf in flat]
    if all(map(_is, flat, new)):
        return tree
    return spec.unflatten(new)


def _is(a: object, b: object) -> bool:
    return a is b


def _flatten(tree: Any) -> tuple[list[Any], Any]:
    import optree  # 60 ms: only when a container is first met

    try:
        return optree.tree_flatten(tree, is_leaf=_is_owned, none_is_leaf=True)
    except RecursionError:
        raise ArgumentError(
            f"this {type(tree).__name__} is nested too deeply, or contains itself; pass its parts one by one"
        ) from None


def _is_owned(node: Any) -> bool:
    cls = type(node)
    try:
        return _owned[cls]
    except KeyError:
        return _owned.setdefault(cls, role_of(cls) is not None)


def _children(node: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container that optree does not open, with their keys; ``None`` for a leaf."""
    cls = type(node)
    if cls in ATOMS or _is_owned(node):
        return None
    if isinstance(node, (dict, UserDict)):
        return [(f"[{key!r}]", value) for key, value in node.items()]
    if isinstance(node, (list, UserList, tuple)):
        return [(f"[{i}]", value) for i, value in enumerate(node)]
    if isinstance(node, (set, frozenset)):
        return [(f".{{{i}}}", value) for i, value in enumerate(node)]
    if _is_dataclass(cls):
        return [(f".{name}", getattr(node, name)) for name in _fields(cls) if hasattr(node, name)]
    return None


def _map_children(fn: Callable[[Any], Any], node: Any) -> Any:
    old = _children(node) or []
    new = [map_leaves(fn, child) for _, child in old]
    if all(a is b for (_, a), b in zip(old, new, strict=True)):
        return node
    if isinstance(node, tuple):
        return tuple.__new__(type(node), new)
    if isinstance(node, (set, frozenset)):
        return type(node)(new)
    rebuilt = copy.copy(node)
    if isinstance(node, (dict, UserDict)):
        for key, value in zip(node, new, strict=True):
            rebuilt[key] = value
    elif isinstance(node, (list, UserList)):
        rebuilt[:] = new
    else:
        names = [name for name in _fields(type(node)) if hasattr(node, name)]
        for name, value in zip(names, new, strict=True):
            object.__setattr__(rebuilt, name, value)  # a frozen one too
    return rebuilt


def _is_dataclass(cls: type) -> bool:
    # without importing dataclasses: if nobody has, there can be none
    return "dataclasses" in sys.modules and hasattr(cls, "__dataclass_fields__")


def _fields(cls: type) -> list[str]:
    from dataclasses import fields

    return [field.name for field in fields(cls)]
