"""Which framework owns an object, by its type: the fast path of every question about a tensor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from xdevice.contract import Role, Tensor
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

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types that no framework owns and that contain nothing."""

_PLAIN = ATOMS | {list, tuple, dict, set, type}

locators: dict[type, Callable[[Tensor], Device]] = {}
"""The fast path: each type of tensor seen so far, with its adapter's `device_of`.

A type is added when its ownership is first asked: `ownership_of`.
"""

leaf_locators: dict[type, Callable[[Tensor], Device]] = {}
"""The same for the leaves of trees, where an array of text is plain data and has no device.

The function raises `NotATensorError` then, and the caller examines the leaf.
"""

sometimes_data: set[type] = set()
"""The types of tensors that may be plain data, such as NumPy's arrays."""

# Each type so far that a framework owns.
_owners: dict[type, Ownership] = {}
# Types that no framework owns, with the frameworks that were imported when all
# of them were asked.
_unowned: dict[type, list[Backend]] = {}
# Modules with a framework's name whose adapter does not load: a user's own
# file, for example.
_unusable: dict[Backend, ModuleType] = {}


class Ownership:
    """A framework, and the role of a type in it: a tensor, a model, a device, or plain data."""

    __slots__ = ("backend", "is_device", "is_model", "is_tensor", "role")

    def __init__(self, backend: Backend, role: Role) -> None:
        self.backend = backend
        self.role = role
        self.is_tensor = role == "tensor"
        self.is_model = role == "model"
        self.is_device = role == "device"


def ownership_of(cls: type) -> Ownership | None:
    """The framework that owns objects of this type, and their role; ``None`` if none does.

    Only the imported frameworks are asked: others cannot have made an object.
    """
    ownership = _owners.get(cls)
    if ownership is not None or cls in _PLAIN:
        return ownership
    name, role = _owner_and_role(cls)
    if role is None:
        return None
    return _remember(cls, Ownership(registered()[name], role))


def _owner_and_role(cls: type) -> tuple[str, Role | None]:
    """The name of the framework that owns objects of this type, and their role.

    The capability that the next question needs is loaded here, since a compiler
    cannot trace its import.
    """
    owners = imported()
    if _unowned.get(cls) == owners:
        return "", None
    asked = set()
    for owner in usable(cls):
        asked.add(owner)
        role = owner.placement.role(cls)
        if role is not None:
            owner.load("models" if role == "model" else "data")
            return str(owner), role
    # A framework or the class's own package that is still being imported may
    # give another answer later.
    package = sys.modules.get(cls.__module__.partition(".")[0])
    is_final = asked.union(_unusable).issuperset(owners) and not _is_being_imported(package)
    if is_final:
        if len(_unowned) >= 4096:
            _unowned.clear()  # a program may create any number of classes
        _unowned[cls] = owners
    return "", None


def _is_being_imported(module: ModuleType | None) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def leaf_locator_of(cls: type) -> Callable[[Tensor], Device] | None:
    """The function of `leaf_locators` for a type; ``None`` if it is not a type of tensors."""
    ownership_of(cls)
    return leaf_locators.get(cls)


def owned_by(obj: Any) -> Ownership | None:
    """The ownership of a tensor or model; ``None`` for everything else."""
    ownership = _owners.get(type(obj)) or ownership_of(type(obj))
    if ownership is None or not (ownership.is_tensor or ownership.is_model):
        return None
    return ownership


def tensor_owner(obj: Any) -> Backend | None:
    """The framework that owns this tensor; ``None`` if it is not a tensor."""
    cls = type(obj)
    if cls in _PLAIN:
        return None
    ownership = _owners.get(cls) or ownership_of(cls)
    if ownership is None or not ownership.is_tensor:
        return None
    return ownership.backend


def places_of(obj: Any, ownership: Ownership) -> set[Device]:
    """All devices that a tensor or model is on; empty for a model without parameters."""
    if ownership.is_tensor:
        return places_of_tensors([obj])
    return places_of_tensors(tensor for _, tensor in ownership.backend.models.tensors_of(obj))


def places_of_tensors(tensors: Iterable[Tensor]) -> set[Device]:
    """All devices that some tensors are on."""
    devices: set[Device] = set()
    # the last ones: most models have tensors of one class, on one device
    last_class: type | None = None
    last_device: Device | None = None
    locate: Any = None
    for tensor in tensors:
        if type(tensor) is not last_class:
            if owned_by(tensor) is None:
                continue
            last_class = type(tensor)
            locate = locators[last_class]
        try:
            device = locate(tensor)
        except MixedDeviceError as error:
            devices.update(error.devices)
        else:
            if device is not last_device:
                devices.add(device)
                last_device = device
    return devices


def _remember(cls: type, ownership: Ownership) -> Ownership:
    """Put the type into the tables, for the next object of it."""
    if ownership.is_tensor:
        owner = ownership.backend
        device_of = owner.placement.device_of
        locators[cls] = leaf_locators[cls] = device_of
        if owner.load("data").has("is_data"):
            is_data = owner.data.is_data

            def device_unless_data(tensor: Tensor) -> Device:
                if is_data(tensor):
                    raise NotATensorError("plain data")  # caught by every caller
                return device_of(tensor)

            sometimes_data.add(cls)
            leaf_locators[cls] = device_unless_data
    return _owners.setdefault(cls, ownership)


def check_arrival(tensor: Tensor, owner: Backend, device: Device) -> Tensor:
    """The tensor, if its framework put it on the device; else `MisplacedError`."""
    actual = owner.placement.device_of(tensor)
    if actual is not device:
        raise misplaced(owner, device, {actual})
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
                raise  # the object is the framework's
            if isinstance(error, BrokenBackendError) and not _is_being_imported(module):
                _unusable[owner] = module
        else:
            yield owner
