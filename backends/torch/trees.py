"""Containers registered with torch.utils._pytree: outputs of models, caches, user classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils import _pytree

if TYPE_CHECKING:
    from collections.abc import Callable


def is_node(cls: type) -> bool:
    return cls in _pytree.SUPPORTED_NODES


def opened(node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    definition = _pytree.SUPPORTED_NODES[type(node)]
    parts, context = definition.flatten_fn(node)
    if definition.flatten_with_keys_fn is None:
        keys = [f"[{i}]" for i in range(len(parts))]
    else:
        keys = [_pytree.keystr((key,)) for key, _ in definition.flatten_with_keys_fn(node)[0]]
    return list(parts), keys, lambda new: definition.unflatten_fn(new, context), context
