"""What a leaf of a tree is: a tensor, a model, an object that moves itself, or plain data.

An object of any other class is plain data, unless a tensor is found inside it: then it is
an error, since the tensor would not be moved.
"""

from contextlib import suppress
from copy import deepcopy
from typing import Any, TypeAlias

from xdevice.device import Device, is_common
from xdevice.errors import NotATensorError, NotSupportedError, UnknownPlacementError, listed
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import Known, devices_of_owned, devices_of_tensors, known_of
from xdevice.hardware.devices import as_device, is_device, native_of
from xdevice.tensors.trees.inside import DATA, check_nothing_inside, tensors_in

Leaf: TypeAlias = Any
"""An object in a tree that is not opened."""


def known_leaf(leaf: Leaf) -> Known | None:
    """What is known of a tensor, a model or an object that moves itself; ``None`` for plain data.

    `NotATensorError` for an object of another class with a tensor inside.
    """
    known = known_of(type(leaf))
    if known.category in ("tensor", "model", "movable"):
        return known
    if known.category is None and not issubclass(type(leaf), DATA):
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
        return devices_of_tensors(tensors_in(leaf))
    devices: set[Device] = set()
    with suppress(NotATensorError):  # there is too much in it to be searched
        devices = devices_of_tensors(tensors_in(leaf))
    if devices and own not in devices:
        raise UnknownPlacementError(
            f"{type(leaf).__name__}.device is {own}, but its tensors are on {listed(devices)}; "
            "move its parts, or name it in skip="
        )
    return {own}


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
