"""Which framework owns an object, by its type: the fast path of every question about a tensor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from xdevice.contract import Role
from xdevice.device import Device
from xdevice.errors import (
    BrokenBackendError,
    MixedDeviceError,
    NotATensorError,
    NotSupportedError,
    VirtualDeviceError,
    misplaced,
)
from xdevice.framework.adapters import Backend, imported, registered
from xdevice.tracing import constant

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types that no framework owns and that contain nothing."""

_PLAIN = ATOMS | {list, tuple, dict, set, type}

where_by_type: dict[type, Callable[[Any], Device]] = {}
"""The fast path: each type of tensor seen so far, with its adapter's `device_of`."""

where_in_trees: dict[type, Callable[[Any], Device]] = {}
"""The same for a leaf of a tree, where plain data is an error: NumPy's arrays may be of text or objects."""

sometimes_data: set[type] = set()  # the types of tensor that may be plain data
_owners: dict[type, Ownership] = {}  # each type seen so far that a framework owns
_unowned: dict[
    type, list[Backend]
] = {}  # types that no framework owns, and the frameworks that have said so
_unusable: dict[
    Backend, ModuleType
] = {}  # modules with a framework's name that cannot be used as one


class Ownership:
    """A framework, and what objects of a type are to it: a tensor, a model, a device, or plain data."""

    __slots__ = ("backend", "is_device", "is_model", "is_tensor", "role")

    def __init__(self, backend: Backend, role: Role) -> None:
        self.backend, self.role = backend, role
        self.is_tensor, self.is_model, self.is_device = (
            role == "tensor",
            role == "model",
            role == "device",
        )


def ownership_of(cls: type) -> Ownership | None:
    """The framework that owns objects of this type, and their role; ``None`` if none does.

    Only frameworks that are already imported are asked, since no other can have made one.
    """
    known = _owners.get(cls)
    if known is not None or cls in _PLAIN:
        return known
    name, role = _found(cls)
    return _remember(cls, Ownership(registered()[name], role)) if role else None


@constant
def _found(cls: type) -> tuple[str, Role | None]:
    """The name of the framework that owns objects of this type, and their role; its adapter is loaded."""
    here = imported()
    if _unowned.get(cls) == here:
        return "", None
    asked = 0
    for owner in usable(cls):
        asked += 1
        role = owner.placement.role(cls)
        if role is not None:
            owner.open("models" if role == "model" else "data")
            return str(owner), role
    # not before all have been asked, and can know the class
    package = sys.modules.get(cls.__module__.partition(".")[0])
    if asked + sum(b in _unusable for b in here) == len(here) and not _is_being_imported(package):
        if len(_unowned) >= 4096:
            _unowned.clear()  # a program may make classes without end
        _unowned[cls] = here
    return "", None


def _is_being_imported(module: ModuleType | None) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def where_in_tree(cls: type) -> Callable[[Any], Device] | None:
    """What answers for a tensor of this type in a tree, also at first sight; ``None`` for every other type."""
    ownership_of(cls)
    return where_in_trees.get(cls)


def owned_by(obj: Any) -> Ownership | None:
    """The ownership of a tensor or model; ``None`` for everything else."""
    owned = _owners.get(type(obj)) or ownership_of(type(obj))
    return owned if owned is not None and (owned.is_tensor or owned.is_model) else None


def tensor_owner(obj: Any) -> Backend | None:
    """The framework that owns this tensor; ``None`` if it is not a tensor."""
    owned = _owners.get(type(obj)) or ownership_of(type(obj))
    return owned.backend if owned is not None and owned.is_tensor else None


def places_of(obj: Any, owned: Ownership) -> set[Device]:
    """All devices that a tensor or model is on; empty for a model without parameters."""
    if owned.is_tensor:
        try:
            return {where_by_type[type(obj)](obj)}
        except MixedDeviceError as error:
            return set(error.devices)
    found: set[Device] = set()
    for _, tensor in owned.backend.models.tensors_of(obj):
        inside = owned_by(tensor)
        if inside is not None:
            found |= places_of(tensor, inside)
    return found


def _remember(cls: type, owned: Ownership) -> Ownership:
    if owned.is_tensor:
        where = where_by_type[cls] = where_in_trees[cls] = owned.backend.placement.device_of
        if owned.backend.open("data").has("is_data"):
            is_data = owned.backend.data.is_data

            def unless_data(tensor: Any) -> Device:
                if is_data(tensor):
                    raise NotATensorError("plain data")  # never shown: the caller examines the leaf
                return where(tensor)

            sometimes_data.add(cls)
            where_in_trees[cls] = unless_data
    return _owners.setdefault(cls, owned)


def check_arrival(tensor: Any, owner: Backend, device: Device) -> Any:
    """The tensor, if its framework put it on the device; else `MisplacedError`."""
    there = owner.placement.device_of(tensor)
    if there is not device:
        raise misplaced(owner, device, {there})
    return tensor


def usable(cls: type) -> Iterator[Backend]:
    """The imported frameworks that may own the class: those with an adapter that loads."""
    for owner in imported():
        module = sys.modules.get(owner)
        if module is None or _unusable.get(owner) is module:
            continue
        try:
            _ = owner.placement.role
        except (BrokenBackendError, NotSupportedError, VirtualDeviceError) as error:
            if cls.__module__.partition(".")[0] == owner:
                raise  # the framework's own object: the caller has to know
            if isinstance(error, BrokenBackendError) and not _is_being_imported(module):
                _unusable[owner] = module  # a user's own file of that name, say
        else:
            yield owner
