"""Tensors inside objects that are not opened.

They would not be moved, so they are an error. The search is that of `pickle`, so what
cannot be pickled is not searched.
"""

import pickle
import types
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any

from xdevice.contract import Tensor
from xdevice.errors import NotATensorError, XDeviceError
from xdevice.framework.ownership import known_of
from xdevice.tensors.trees.containers import (
    LEAF,
    attributes_of,
    containers,
    slots_of,
)

_HINT = (
    "take it out, give it a method to(device), register its class as a pytree, or name it in skip="
)

# Plain data that is not searched. What a function closes over is not searched
# either: a function cannot be rebuilt. The type is asked, since a proxy's `__class__` may raise.
DATA = (
    *(type(None), str, bytes, bytearray, memoryview, int, float, complex, range, type, Enum),
    *(types.FunctionType, types.ModuleType, types.CodeType),
)
_MAX_SEARCHED_OBJECTS = 20_000


def tensors_in(obj: Any) -> list[Tensor]:
    """Every tensor and model that `pickle` meets in an object."""
    search = _Search()
    try:
        search.dump(obj)
    except (NotATensorError, RecursionError):
        raise NotATensorError(
            f"an object of type {type(obj).__name__} has too much in it to be searched for "
            f"tensors; {_HINT}"
        ) from None
    except XDeviceError:
        raise
    except Exception:  # what a class of the user raises while it is pickled
        pass
    return search.tensors


class _Nowhere:
    """A file that forgets what is written."""

    def write(self, text: Any) -> int:
        return len(text)


class _Search(pickle.Pickler):
    """It meets all objects that can be reached, and keeps the tensors and models."""

    def __init__(self) -> None:
        super().__init__(_Nowhere(), protocol=4)
        self.tensors: list[Tensor] = []
        self._number = 0

    def persistent_id(self, obj: Any) -> bool | None:
        """Pickle calls this with each object, and goes on into it if the result is ``None``."""
        cls = type(obj)
        if issubclass(cls, DATA):
            return True
        self._number += 1
        if self._number > _MAX_SEARCHED_OBJECTS:
            raise NotATensorError
        known = known_of(cls)
        if known.backend is None:
            return None
        if known.is_data is not None and known.is_data(obj):
            return None if getattr(obj.dtype, "hasobject", False) else True
        if known.category in ("tensor", "model"):
            self.tensors.append(obj)
        return True

    def reducer_override(self, obj: Any) -> Any:
        """A stand-in with the same contents: what is after the first element, which is a function.

        What cannot be pickled, such as a lock, has none. The letters of a string, by which pickle
        would look the object up, are data.
        """
        try:
            _, *contents = obj.__reduce_ex__(4)
            contents = [list(part) if isinstance(part, Iterator) else part for part in contents]
        except Exception:  # whatever a class of the user raises
            contents = []
        return object, (), contents


def check_nothing_inside(leaf: Any) -> None:
    for tensor in tensors_in(leaf):
        name, path = type(leaf).__name__, _path_in(leaf, tensor)
        category, cls = known_of(type(tensor)).category, type(tensor).__name__
        found = f"{name}{path} is a {category} ({cls})"
        if not path:
            found = f"an object of type {name} holds a {category} ({cls})"
        raise NotATensorError(f"{found}, and xdevice cannot rebuild {name} objects; {_HINT}")


def _path_in(obj: Any, tensor: Tensor) -> str:
    """The shortest path to a tensor through attributes and containers; empty if there is none."""
    visited: set[int] = set()
    queue: deque[tuple[str, Any]] = deque([("", obj)])
    while queue and len(visited) < _MAX_SEARCHED_OBJECTS:
        path, node = queue.popleft()
        if node is tensor:
            return path
        if id(node) in visited or issubclass(type(node), DATA) or known_of(type(node)).backend:
            continue
        visited.add(id(node))
        container = containers[type(node)]
        if container is LEAF:
            attributes = attributes_of(node, slots_of(type(node)))
            steps = {f".{name}": value for name, value in attributes.items()}
        else:
            parts, _ = container.open(node)
            steps = dict(zip(container.paths(node), parts, strict=True))
        queue += [(path + step, part) for step, part in steps.items()]
    return ""
