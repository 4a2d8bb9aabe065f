"""Walking nested containers: optree's, and dataclasses and subclasses of containers besides.

A tree is nested containers with tensors as leaves. A tensor or model is never opened, even where
it happens to be a tuple. Containers keep their types; what nothing has changed in is not rebuilt.
"""

from __future__ import annotations

import copy
import sys
from collections import UserDict, UserList, deque

from xdevice.errors import ArgumentError
from xdevice.placement import where_by_type
from xdevice.registry import ATOMS, role_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

# Types that optree shall not open: tensors and models; and namedtuples, whose own `__new__` it would call.
_kept: dict[type, bool] = {}

_paths: dict[Any, tuple[str, ...]] = {}  # by optree's description of the structure


def leaves(tree: Any) -> list[Any] | None:
    """Every leaf, containers opened, in a fixed order; ``None`` of what is no container."""
    try:
        return _leaves(tree)
    except RecursionError:
        raise ArgumentError(
            f"this {type(tree).__name__} is nested too deeply, or contains itself; pass its parts one by one"
        ) from None


def named_leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path as one would write it: ``['batch'][0].mask``."""
    import optree

    for accessor, leaf in zip(
        optree.tree_accessors(tree, is_leaf=_is_kept, none_is_leaf=True), _flatten(tree)[0], strict=True
    ):
        path = prefix + accessor.codify("")
        inner = _children(leaf)
        if inner is None:
            yield path, leaf
        else:
            for key, child in inner:
                yield from named_leaves(child, path + key)


def paths(tree: Any) -> tuple[str, ...]:
    """The path of each leaf, as `named_leaves` gives it; quick for trees of a structure that was seen before."""
    flat, spec = _flatten(tree)
    if any(_children(leaf) is not None for leaf in flat):
        return tuple(path for path, _ in named_leaves(tree))
    if spec not in _paths:
        if len(_paths) > 1000:
            _paths.clear()
        _paths[spec] = tuple(path for path, _ in named_leaves(tree))
    return _paths[spec]


def unordered(tree: Any) -> bool:
    """Whether there is a set of several things in it: their order is another in every process and every tree."""
    for leaf in _flatten(tree)[0]:
        if type(leaf) in where_by_type:
            continue
        if isinstance(leaf, (set, frozenset)) and len(leaf) > 1:
            return True
        if any(unordered(child) for _, child in _children(leaf) or ()):
            return True
    return False


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``fn`` applied to each leaf; the same object where no leaf has changed."""
    flat, spec = _flatten(tree)
    new = [fn(leaf) if _children(leaf) is None else _map_children(fn, leaf) for leaf in flat]
    if all(map(_is, flat, new)):
        return tree
    return spec.unflatten(new)


def with_leaves(tree: Any, new: Iterable[Any]) -> Any:
    """The tree with these leaves in place of its own, in their order."""
    rest = iter(new)
    return map_leaves(lambda leaf: next(rest), tree)


def same_structure(a: Any, b: Any) -> bool:
    """Whether two trees have leaves at the same paths."""
    specs = _flatten(a)[1], _flatten(b)[1]
    if specs[0] == specs[1] and specs[0].num_leaves == len(leaves(a) or (a,)) == len(leaves(b) or (b,)):
        return True  # nothing in them that optree does not open
    return [path for path, _ in named_leaves(a)] == [path for path, _ in named_leaves(b)]


def _leaves(tree: Any) -> list[Any] | None:
    flat, spec = _flatten(tree)
    if spec.is_leaf():
        inner = _children(tree)
        if inner is None:
            return None
        flat = [child for _, child in inner]
    for i in range(len(flat) - 1, -1, -1):
        if type(flat[i]) not in where_by_type:  # else a tensor, as most leaves are
            deeper = _leaves(flat[i])
            if deeper is not None:
                flat[i : i + 1] = deeper
    return flat


def _flatten(tree: Any) -> tuple[list[Any], Any]:
    import optree  # 60 ms: only when a container is first met

    return optree.tree_flatten(tree, is_leaf=_is_kept, none_is_leaf=True)


def _is(a: object, b: object) -> bool:
    return a is b


def _is_kept(node: Any) -> bool:
    cls = type(node)
    try:
        return _kept[cls]
    except KeyError:
        import optree

        return _kept.setdefault(cls, optree.is_namedtuple_class(cls) or role_of(cls) is not None)


def _children(node: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container that optree does not open, with their keys; ``None`` for a leaf."""
    cls = type(node)
    if cls in ATOMS or role_of(cls) is not None:
        return None
    contents, fields = _contents(node), _fields(cls)
    if contents is None and fields is None:
        return None
    return (contents or []) + [(f".{name}", getattr(node, name)) for name in fields or () if hasattr(node, name)]


def _contents(node: Any) -> list[tuple[str, Any]] | None:
    if isinstance(node, (dict, UserDict)):
        return [(f"[{key!r}]", value) for key, value in node.items()]
    if isinstance(node, (list, UserList, deque, tuple)):
        names = getattr(node, "_fields", None)
        return [(f".{names[i]}" if names else f"[{i}]", value) for i, value in enumerate(node)]
    if isinstance(node, (set, frozenset)):
        return [(f".{{{i}}}", value) for i, value in enumerate(node)]
    return None


def _fields(cls: type) -> list[str] | None:
    # without importing dataclasses: if nobody has, there can be none
    if "dataclasses" not in sys.modules or not hasattr(cls, "__dataclass_fields__"):
        return None
    from dataclasses import fields

    return [field.name for field in fields(cls)]


def _map_children(fn: Callable[[Any], Any], node: Any) -> Any:
    old = _children(node) or []
    new = [map_leaves(fn, child) for _, child in old]
    if all(a is b for (_, a), b in zip(old, new, strict=True)):
        return node
    contents = len(_contents(node) or ())
    rebuilt = _rebuilt(node, new[:contents])
    for (key, _), value in zip(old[contents:], new[contents:], strict=True):
        object.__setattr__(rebuilt, key[1:], value)  # a frozen one too
    return rebuilt


def _rebuilt(node: Any, contents: list[Any]) -> Any:
    """A container of the same type, with the same attributes and other contents."""
    if isinstance(node, tuple):
        return _with_attributes(tuple.__new__(type(node), contents), node)
    if isinstance(node, (set, frozenset)):
        return type(node)(contents)
    if not isinstance(node, (dict, UserDict, list, UserList, deque)):
        return _with_attributes(object.__new__(type(node)), node)
    rebuilt = copy.copy(node)
    if rebuilt is node:
        raise ArgumentError(f"copying this {type(node).__name__} gives itself, so it cannot be moved; pass its parts")
    if isinstance(rebuilt, (dict, UserDict)):
        for key, value in zip(list(rebuilt), contents, strict=True):
            rebuilt[key] = value
    else:
        rebuilt.clear()
        rebuilt.extend(contents)
    return rebuilt


def _with_attributes(rebuilt: Any, node: Any) -> Any:
    slots = [getattr(cls, "__slots__", ()) for cls in type(node).__mro__]
    names = [name for of_one in slots for name in ([of_one] if isinstance(of_one, str) else of_one)]
    for name in (*names, *getattr(node, "__dict__", ())):
        if hasattr(node, name) and not name.startswith("__"):
            object.__setattr__(rebuilt, name, getattr(node, name))
    return rebuilt
