"""What a leaf of a tree is: a tensor, a model, an object that moves itself, or plain data.

An object of any other class is plain data, unless a tensor is found inside it: then it is
an error, since the tensor would not be moved. The search is that of `pickle`, so what cannot be
pickled is not searched.
"""

import pickle
import types
from collections import deque
from contextlib import suppress
from copy import deepcopy
from enum import Enum
from typing import Any, TypeAlias

from xdevice.contract import Tensor
from xdevice.device import Device, is_common
from xdevice.errors import (
    NotATensorError,
    NotSupportedError,
    UnknownPlacementError,
    XDeviceError,
    listed,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import Known, devices_of_owned, known_of
from xdevice.hardware.devices import as_device, is_device, native_of
from xdevice.tensors.trees.containers import attributes_of, containers, slots_of

Leaf: TypeAlias = Any
"""An object in a tree that is not opened."""


_HINT = (
    "take it out, give it a method to(device), register its class as a pytree, or name it in skip="
)

# Plain data that is not searched. What a function closes over is not searched
# either: a function cannot be rebuilt. The type is asked, since a proxy's `__class__` may raise.
_DATA = (
    *(type(None), str, bytes, bytearray, memoryview, int, float, complex, range, type, Enum),
    *(types.FunctionType, types.ModuleType, types.CodeType),
)
_MAX_SEARCHED_OBJECTS = 20_000


def known_leaf(leaf: Leaf) -> Known | None:
    """What is known of a tensor, a model or an object that moves itself; ``None`` for plain data.

    `NotATensorError` for an object of another class with a tensor inside.
    """
    known = known_of(type(leaf))
    if known.category in ("tensor", "model", "movable"):
        return known
    if known.category is None and not issubclass(type(leaf), _DATA):
        check_nothing_inside(leaf)
    return None


def is_data(tensor: Leaf, known: Known) -> bool:
    """Whether a tensor is plain data in a tree: NumPy's scalars, arrays of text and of objects.

    `NotATensorError` for an array of objects with a tensor inside.
    """
    if known.is_data is None or not known.is_data(tensor):
        return False
    check_nothing_inside(tensor)
    return True


def devices_of_leaf(leaf: Leaf, known: Known) -> set[Device]:
    """All devices of a tensor, model or self-moving object; empty if it holds no tensor."""
    if known.category != "movable":
        return devices_of_owned(leaf, known)
    own = _own_device(leaf)
    if own is None:
        return _devices_inside(leaf)
    devices: set[Device] = set()
    # there is too much in it to be searched, or a model that is not built yet
    with suppress(NotATensorError, UnknownPlacementError):
        devices = _devices_inside(leaf)
    if devices and own not in devices:
        raise UnknownPlacementError(
            f"{type(leaf).__name__}.device is {own}, but its tensors are on {listed(devices)}; "
            "move its parts, or name it in skip="
        )
    return {own}


def _devices_inside(leaf: Leaf) -> set[Device]:
    """All devices of the tensors and models in an object."""
    found = tensors_in(leaf)
    return {device for obj in found for device in devices_of_owned(obj, known_of(type(obj)))}


def _own_device(leaf: Leaf) -> Device | None:
    """What an object says by its attribute ``device``, as a device or in a common spelling."""
    with suppress(Exception):  # it may be missing, or raise
        if is_device(leaf.device):
            device = as_device(leaf.device)
            return None if isinstance(leaf.device, str) and not is_common(device) else device
    return None


def framework_of(leaf: Leaf, known: Known) -> Backend:
    """The framework of a tensor or model; for an object that moves itself, that of its tensors."""
    if known.backend is not None:
        return known.backend
    objects: list[Any] = []
    with suppress(NotATensorError):  # there is too much in it to be searched
        objects += tensors_in(leaf)
    with suppress(Exception):  # `.device` may be missing, or raise
        objects.append(leaf.device)
    owners = [known_of(type(obj)).backend for obj in objects]
    return next((owner for owner in owners if owner is not None), None) or backend()


def move_with_own_method(leaf: Leaf, owner: Backend, device: Device, copy: bool) -> Leaf:
    """Move an object with its own method ``to``; the object itself if that moves in place."""
    source = leaf
    if copy:
        source = leaf.clone() if callable(getattr(leaf, "clone", None)) else deepcopy(leaf)
    target = native_of(owner, device)
    try:
        moved = source.to(target)
    except TypeError as error:  # the method takes other arguments, or has another meaning
        try:
            moved = source.to(device=target)
        except TypeError:
            failure = f"{type(leaf).__name__}.to({target!r}) failed ({error})"
            raise NotSupportedError(f"{failure}; move its parts, or name it in skip=") from error
    return source if moved is None else moved


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
        if issubclass(cls, _DATA):
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
        """What pickle goes into in place of the object: all that it would have stored of it.

        ``__reduce_ex__`` returns a function and what is stored: its arguments, the state and the
        items. The function is replaced, since only the contents count. For an object that cannot
        be pickled, such as a lock, there are none.
        """
        try:
            _, *contents = obj.__reduce_ex__(4)  # or a global's name, whose letters are data
            # the items of a list, and those of a dict, are iterators made for this
            contents[2:4] = [list(items or ()) for items in contents[2:4]]
        except Exception:  # whatever a class of the user raises
            contents = []
        return object, (), contents


def check_nothing_inside(leaf: Any) -> None:
    """`NotATensorError`, with the path, if a tensor or model is found inside."""
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
        if id(node) in visited or issubclass(type(node), _DATA) or known_of(type(node)).backend:
            continue
        visited.add(id(node))
        flatten = containers[type(node)]
        if flatten is None:
            attributes = attributes_of(node, slots_of(type(node)))
            steps = {f".{name}": value for name, value in attributes.items()}
        else:
            parts, paths, _, _ = flatten(node)
            steps = dict(zip(paths(node), parts, strict=True))
        queue += [(path + step, part) for step, part in steps.items()]
    return ""
