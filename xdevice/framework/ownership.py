"""What is known of a class: the framework that owns it, and what it is there.

One table, `classes`, answers every question about an object by its type.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

from xdevice.contract import Category, Tensor
from xdevice.device import Device
from xdevice.errors import (
    BrokenBackendError,
    MixedDeviceError,
    NotSupportedError,
    VirtualDeviceError,
    misplaced,
)
from xdevice.framework.adapters import Backend, imported, is_being_imported

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Python's own types of plain data. No framework owns them, and nothing is in them."""


class Known:
    """What is known of a class.

    Attributes
    ----------
    backend
        The framework that owns the class; ``None`` if none does.
    category
        What the class is to its framework. ``movable``: no framework owns it,
        and its objects have a method ``to`` of their own.
    device_of
        The adapter's function for a class of tensors; ``None`` for others.
    is_data
        The adapter's function that tells plain data from tensors, for a class
        that has both, such as NumPy's arrays; ``None`` for others.
    """

    __slots__ = ("backend", "category", "device_of", "is_data")

    def __init__(
        self,
        backend: Backend | None = None,
        category: Category | Literal["movable"] | None = None,
    ) -> None:
        self.backend = backend
        self.category = category
        self.device_of: Callable[[Tensor], Device] | None = None
        self.is_data: Callable[[Tensor], bool] | None = None
        if backend is not None and category == "tensor":
            self.device_of = backend.placement.device_of
            if backend.has("placement", "is_data"):
                self.is_data = backend.placement.is_data


# Frameworks whose adapter will never load: the module may be a user's own file of that name.
_broken: set[Backend] = set()


class _Classes(dict[type, Known]):
    def __missing__(self, cls: type) -> Known:
        """Ask the imported frameworks about the class; one that is not imported cannot own it.

        The answer that none owns it is kept only if it cannot change: neither a framework nor the
        class's own package is still being imported, and each framework was asked or is broken for
        good.
        """
        frameworks = imported()
        packages = [_package(cls), *frameworks]
        is_final = not any(is_being_imported(sys.modules.get(name)) for name in packages)
        for owner in frameworks:
            if not can_be_asked(owner, cls):
                is_final = is_final and owner in _broken
                continue
            category = owner.placement.category(cls)
            if category is not None:
                if category == "model":
                    owner.load("models")  # now, since a compiler cannot trace the import
                return self.setdefault(cls, Known(owner, category))
        known = Known(None, "movable" if callable(getattr(cls, "to", None)) else None)
        if is_final:
            self[cls] = known
        return known


def can_be_asked(owner: Backend, cls: type) -> bool:
    """Whether the adapter of an imported framework loads.

    If it does not, a class that is derived from one of the framework's own raises the error.
    """
    # JAX's arrays are of `jaxlib`
    is_own = any(_package(base) in (owner, f"{owner}lib") for base in cls.__mro__)
    if owner in _broken and not is_own:
        return False
    try:
        _ = owner.placement.category
    except (BrokenBackendError, NotSupportedError, VirtualDeviceError) as error:
        if is_own:
            raise
        if isinstance(error, BrokenBackendError) and not is_being_imported(sys.modules.get(owner)):
            _broken.add(owner)
        return False
    return True


def _package(cls: type) -> str:
    return str(cls.__module__).partition(".")[0]


classes = _Classes({cls: Known() for cls in (*ATOMS, list, tuple, dict, set, type)})
"""What is known of each class so far.

A class is defined after the framework that owns it is imported, so one without an owner stays
without. The usual ones are here from the start: compilers cannot trace the questions.
"""

known_of = classes.__getitem__
"""What is known of a class. Bound once, since Python is slower with a method of an imported name."""


def tensor_owner(obj: Any) -> Backend | None:
    """The framework that owns this tensor; ``None`` if it is not a tensor."""
    known = known_of(type(obj))
    return None if known.device_of is None else known.backend


def devices_of_owned(obj: Any, known: Known) -> set[Device]:
    """All devices that a tensor or model is on; empty for a model without parameters."""
    if known.device_of is not None or known.backend is None:
        return devices_of_tensors([obj])
    return devices_of_tensors(tensor for _, tensor in known.backend.models.tensors_of(obj))


def devices_of_tensors(tensors: Iterable[Tensor]) -> set[Device]:
    """All devices that some tensors are on."""
    devices: set[Device] = set()
    last_device: Device | None = None  # most models are on one: a set would hash it each time
    for tensor in tensors:
        locate = known_of(type(tensor)).device_of
        if locate is None:
            continue
        try:
            device = locate(tensor)
        except MixedDeviceError as error:
            devices.update(error.devices)
        else:
            if device is not last_device:
                devices.add(device)
                last_device = device
    return devices


def check_arrival(tensor: Tensor, owner: Backend, device: Device) -> Tensor:
    """The tensor, if its framework put it on the device; else `MisplacedError`."""
    actual = owner.placement.device_of(tensor)
    if actual is not device:
        raise misplaced(owner, device, {actual})
    return tensor
