"""What a leaf of a tree is: a tensor, a model, an object that moves itself, or plain data.

An object of any other class is plain data, unless a tensor is found inside it:
then it is an error, since the tensor would not be moved. The search is that of
`pickle`, so what cannot be pickled is not searched.
"""

import pickle
import types
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from copy import deepcopy
from enum import Enum
from typing import Any, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.errors import NotATensorError, NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import Known, devices_of_owned, devices_of_tensors, known_of
from xdevice.hardware.devices import as_device, is_device, native_of
from xdevice.tensors.trees.containers import (
    LEAF,
    Node,
    RegisteredContainer,
    attributes_of,
    containers,
)

Leaf: TypeAlias = Any
"""An object in a tree that is not opened."""

_HINT = (
    "take it out, give it a method to(device), register its class as a pytree, or name it in skip="
)

# Plain data that is not searched. What a function closes over is not searched
# either: a function cannot be rebuilt.
_DATA = (
    *(type(None), str, bytes, bytearray, memoryview, int, float, complex, range, type, Enum),
    *(types.FunctionType, types.ModuleType, types.CodeType),
)
_MAX_SEARCHED_OBJECTS = 20_000


def known_leaf(leaf: Leaf) -> Known | None:
    """What is known of a tensor, a model or an object that moves itself; ``None`` for plain data.

    `NotATensorError` for an object of another class with a tensor inside.
    """
    if isinstance(leaf, _DATA):
        return None
    known = known_of(type(leaf))
    if known.category in ("tensor", "model", "movable"):
        return known
    if known.category is None:
        _check_nothing_inside(leaf)
    return None


def is_data(tensor: Leaf, known: Known) -> bool:
    """Whether a tensor is plain data in a tree: NumPy's scalars, arrays of text and of objects.

    `NotATensorError` for an array of objects with a tensor inside.
    """
    if known.is_data is None or not known.is_data(tensor):
        return False
    _check_nothing_inside(tensor)
    return True


def devices_of_leaf(leaf: Leaf, known: Known) -> set[Device]:
    """All devices of a tensor, model or self-moving object; empty if it holds no tensor."""
    if known.category != "movable":
        return devices_of_owned(leaf, known)
    with suppress(Exception):  # `.device` may be missing, raise, or be something else
        if is_device(leaf.device):
            return {as_device(leaf.device)}
    return devices_of_tensors(tensors_in(leaf))


def framework_of(leaf: Leaf, known: Known) -> Backend:
    """The framework of a tensor or model; for an object that moves itself, that of its tensors."""
    if known.backend is not None:
        return known.backend
    objects = tensors_in(leaf)
    with suppress(Exception):  # `.device` may be missing, or raise
        objects.append(leaf.device)
    owners = [known_of(type(obj)).backend for obj in objects]
    return next((owner for owner in owners if owner is not None), None) or backend()


def move_with_own_method(leaf: Leaf, device: Device, copy: bool) -> Leaf:
    """Move an object with its own method ``to``; the object itself if that moves in place."""
    source = leaf
    if copy:
        source = leaf.clone() if callable(getattr(leaf, "clone", None)) else deepcopy(leaf)
    target = native_of(framework_of(leaf, known_of(type(leaf))), device)
    try:
        moved = source.to(target)
    except TypeError as error:  # the method takes other arguments, or has another meaning
        try:
            moved = source.to(device=target)
        except TypeError:
            failure = f"{type(leaf).__name__}.to({target!r}) failed ({error})"
            raise NotSupportedError(f"{failure}; move its parts, or name it in skip=") from error
    return source if moved is None else moved


def check_static_parts(node: Node, skip: Collection[str]) -> None:
    """Raise an error if a tensor is in what a rebuilt container would keep as it is.

    That are a dict's keys, and what a registered class stores beside its parts, but for
    what is skipped: attributes, with a dot before each.
    """
    container = containers[type(node)]
    if not any(map(tensors_in, container.static(node))):
        return
    name = type(node).__name__
    if not isinstance(container, RegisteredContainer):
        raise NotATensorError(
            f"a key of this {name} holds a tensor, and does not move; keep tensors in its values"
        )
    moving = container.paths(node)
    attributes = attributes_of(node)
    fields = [f for f in attributes if f".{f}" not in moving and tensors_in(attributes[f])]
    for field in fields or [""]:
        if f".{field}" not in skip:
            place = f"{name}.{field}" if field else f"the static part of this {name}"
            raise NotATensorError(
                f"{place} holds a tensor and is registered as static, so it does not move; make "
                "it an ordinary field, or name it in skip="
            )


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
        self._known: dict[type, Known] = {}
        self._number = 0

    def persistent_id(self, obj: Any) -> bool | None:
        """Pickle calls this with each object, and goes on into it if the result is ``None``."""
        if isinstance(obj, _DATA):
            return True
        self._number += 1
        if self._number > _MAX_SEARCHED_OBJECTS:
            raise NotATensorError
        cls = type(obj)
        known = self._known.get(cls) or self._known.setdefault(cls, known_of(cls))
        if known.backend is None:
            return None
        if known.is_data is not None and known.is_data(obj):
            return None if getattr(obj.dtype, "hasobject", False) else True
        if known.category in ("tensor", "model"):
            self.tensors.append(obj)
        return True

    def reducer_override(self, obj: Any) -> Any:
        """What an object consists of; nothing if it cannot be pickled, such as a lock."""
        try:
            reduced = obj.__reduce_ex__(4)
        except Exception:
            return object, ()
        return reduced if isinstance(reduced, tuple) else (object, ())


def _check_nothing_inside(leaf: Leaf) -> None:
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
        if id(node) in visited or isinstance(node, _DATA) or known_of(type(node)).backend:
            continue
        visited.add(id(node))
        container = containers[type(node)]
        if container is LEAF:
            parts = {f".{name}": value for name, value in attributes_of(node).items()}
        else:
            parts = dict(zip(container.paths(node), container.parts(node), strict=True))
        queue += [(path + step, part) for step, part in parts.items()]
    return ""
