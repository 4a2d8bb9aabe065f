"""Searching an object of an unknown class for tensors."""

import gc
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any

from xdevice.errors import NotATensorError
from xdevice.framework.ownership import Ownership, owned_by, ownership_of, sometimes_data
from xdevice.tensors.trees.containers import container_of
from xdevice.tensors.trees.object_attributes import attributes

DATA = (
    *(str, bytes, int, float, complex, bytearray, memoryview, range, type, Enum),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType, types.ModuleType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.GenericAlias, types.CodeType),
    *(type(None), type(Ellipsis), type(NotImplemented)),
)
"""Classes of plain data, which is not searched."""

HINT = "take it out, give it a method to(device), register its class as a pytree, or name it in skip="

_MOST = 20_000  # objects that a search looks at


def tensors_in(root: Any) -> Iterator[tuple[str, Any, Ownership]]:
    """Each tensor and model that can be reached through containers, attributes and weak references, with its path."""
    seen: set[int] = set()
    ahead: deque[tuple[str, Any]] = deque([("", root)])
    while ahead:
        if len(seen) > _MOST:
            kind = type(root).__name__
            raise NotATensorError(f"an object of type {kind} has too much in it to be searched for tensors; {HINT}")
        path, node = ahead.popleft()
        if id(node) in seen or isinstance(node, DATA):
            continue
        seen.add(id(node))
        owned = owned_by(node) or _proxied(node)
        if owned is None:
            ahead.extend(_inside(node, path))
        elif _holds_objects(node):
            ahead.extend((f"{path}.flat[{i}]", part) for i, part in enumerate(node.flat))
        elif not is_text(node, owned):
            yield path, node, owned


def is_text(node: Any, owned: Ownership) -> bool:
    """Whether it is a tensor that is plain data beside others: a scalar, text, dates."""
    return owned.is_tensor and type(node) in sometimes_data and owned.backend.data.is_data(node)


def is_pythons(cls: type) -> bool:
    """Whether it is a class of Python's standard library."""
    return cls.__module__.partition(".")[0] in sys.stdlib_module_names


def _proxied(node: Any) -> Ownership | None:
    """The ownership of the tensor or model that a proxy stands for: it answers with the class of that."""
    claimed = node.__class__
    owned = None if claimed is type(node) else ownership_of(claimed)
    return owned if owned is not None and (owned.is_tensor or owned.is_model) else None


def _holds_objects(node: Any) -> bool:
    """Whether it is an array of Python objects, as NumPy's may be."""
    return getattr(getattr(node, "dtype", None), "hasobject", False) is True and hasattr(node, "flat")


def _inside(node: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(node, weakref.ReferenceType):
        return [(f"{path}()", node())]
    if isinstance(node, types.FrameType):  # of a generator; its globals are not in it
        return [(f"{path}.{name}", value) for name, value in node.f_locals.items()]
    container = container_of(node)
    if container is not None:
        return [(path + key, part) for key, part in zip(container.keys(node), container.parts(node), strict=True)]
    found = [(f"{path}.{name}", value) for name, value in attributes(node).items()]
    if isinstance(node, BaseException):
        found += [(f"{path}.args[{i}]", part) for i, part in enumerate(node.args)]
    if is_pythons(type(node)) and not callable(node):  # views and iterators too, which are not read
        found += [(path, part) for part in gc.get_referents(node)]
    if isinstance(node, (dict, list, tuple, set, frozenset)):  # of a class that moves itself
        found += [(f"{path}[{i}]", part) for i, part in enumerate(node.values() if isinstance(node, dict) else node)]
    return found
