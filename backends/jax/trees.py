"""What is registered with jax.tree_util: states of flax and equinox, sparse arrays, a user's own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax.tree_util import default_registry, keystr, tree_flatten_with_path, tree_unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

_registered: Callable[[type], Any]
if hasattr(default_registry, "is_node"):
    _registered = default_registry.is_node
else:  # up to JAX 0.4.34 it tells of objects only; this is where it keeps the classes
    from jax._src import tree_util

    inside: Any = tree_util
    _registered = inside._registry.__contains__


def is_node(cls: type) -> bool:
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return False  # JAX opens every named tuple, and rebuilds it by a call that the class may refuse
    return bool(_registered(cls))


def opened(node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    structure: Any
    named, structure = tree_flatten_with_path(node, is_leaf=lambda part: part is not node)
    parts, keys = [part for _, part in named], [keystr(path) for path, _ in named]
    return parts, keys, lambda new: tree_unflatten(structure, new), structure.node_data()
