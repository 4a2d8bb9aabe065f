"""Objects of a framework's own classes, opened as nodes of trees."""

from collections.abc import Callable, Sequence
from typing import Any


def by_attributes(
    node: Any, names: Sequence[str]
) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
    """An object opened into these attributes, and made anew with others, past its ``__init__``.

    >>> from types import SimpleNamespace
    >>> parts, keys, rebuild, _ = by_attributes(SimpleNamespace(x=1, y=2), ["x"])
    >>> parts, keys, rebuild([3])
    ([1], ['.x'], namespace(x=3))
    """
    cls: Any = type(node)

    def rebuild(parts: list[Any]) -> Any:
        new = cls.__new__(cls)
        vars(new).update(zip(names, parts, strict=True))
        return new

    return [vars(node)[name] for name in names], [f".{name}" for name in names], rebuild, None
