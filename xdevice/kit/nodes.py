"""Objects of a framework's own classes as nodes of trees."""

from collections.abc import Callable, Sequence
from typing import Any


def by_attributes(
    node: Any, names: Sequence[str]
) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    """The object's attributes of these names as the children of a node, and how to rebuild it.

    Rebuilding makes a new object without calling its ``__init__``.

    >>> from types import SimpleNamespace
    >>> children, keys, rebuild, _ = by_attributes(SimpleNamespace(x=1, y=2), ["x"])
    >>> children, keys, rebuild([3])
    ([1], ['.x'], namespace(x=3))
    """
    cls: Any = type(node)

    def rebuild(new_children: list[Any]) -> Any:
        new_node = cls.__new__(cls)
        vars(new_node).update(zip(names, new_children, strict=True))
        return new_node

    children = [vars(node)[name] for name in names]
    keys = [f".{name}" for name in names]
    return children, keys, rebuild, None
