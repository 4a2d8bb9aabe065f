"""Objects of a framework's own classes as nodes of trees."""

from collections.abc import Sequence
from typing import Any

from xdevice.contract import Node, NodeParts


def by_attributes(node: Node, names: Sequence[str]) -> NodeParts:
    """The object as a node: its attributes of these names are the children.

    Rebuilding makes a new object without calling its ``__init__``.

    >>> from types import SimpleNamespace
    >>> node = SimpleNamespace(x=1, y=2)
    >>> children, paths, rebuild, _ = by_attributes(node, ["x"])
    >>> children, paths(node), rebuild(node, [3])
    ([1], ['.x'], namespace(x=3))
    """

    def rebuild(node: Any, new_children: list[Any]) -> Node:
        cls: Any = type(node)
        new_node = cls.__new__(cls)
        vars(new_node).update(zip(names, new_children, strict=True))
        return new_node

    children = [vars(node)[name] for name in names]
    return children, lambda _: [f".{name}" for name in names], rebuild, []
