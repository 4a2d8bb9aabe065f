"""What to say when something is not where it should be: paths, devices, and what to type next."""

from __future__ import annotations

from xdevice.errors import MisplacedError, MixedDeviceError, NotATensorError
from xdevice.hardware import as_device
from xdevice.placement import is_device, owned_by, places_of
from xdevice.tree import leaves, named_leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from xdevice.adapters import Backend
    from xdevice.device import Device


def misplaced(owner: Backend, asked: Device, found: set[Device]) -> MisplacedError:
    """The error for a framework that has put a tensor elsewhere in silence."""
    return MisplacedError(
        f"asked for {asked}, but {owner} silently chose {listed(found)}; it cannot hold this on {asked}"
    )


def _placements(path: str, obj: Any) -> Iterator[tuple[str, set[Device]]]:
    """Where each tensor in the object is, with its path: for messages, so at leisure."""
    owned = owned_by(obj)
    if is_device(obj):
        yield path, {as_device(obj)}
    elif owned is None:
        for key, leaf in named_leaves(obj):
            if owned_by(leaf) is not None:
                yield from _placements(path + key, leaf)
    elif owned[1] == "tensor":
        yield path, places_of(obj)
    else:
        for name, tensor in owned[0].models.tensors_of(obj):
            yield f"{path}.{name}", places_of(tensor)


def mixed(objs: tuple[tuple[str, Any], ...]) -> MixedDeviceError:
    """The error for named objects on several devices; each tensor's path is under its device."""
    placed = [(path, found) for name, obj in objs for path, found in _placements(name, obj)]
    devices: set[Device] = set().union(*(found for _, found in placed))
    groups: dict[str, list[str]] = {}
    for path, found in placed:
        groups.setdefault(listed(found), []).append(path.lstrip(".") or "it")
    where = "; ".join(f"on {device}: {_shortened(paths)}" for device, paths in sorted(groups.items()))
    gpus = [device for device in devices if device.kind == "gpu"]
    return MixedDeviceError(
        f"one device was expected, but there are {len(devices)}: {where}; "
        f"bring them together with to_device(…, '{min(gpus or devices)}'), or ask devices_of",
        devices,
    )


def not_a_tensor(obj: Any) -> NotATensorError:
    """The error for an object without a tensor; what a container holds instead is listed."""
    kind = type(obj).__name__
    if is_device(obj) and not isinstance(obj, str):
        return NotATensorError(f"{obj!r} is a device, not a tensor; pass what is on it")
    if leaves(obj) is None:
        return NotATensorError(f"no framework owns this {kind}; pass a tensor, a model, or containers of these")
    inside = [f"{path} is of type {type(leaf).__name__}" for path, leaf in named_leaves(obj)]
    return NotATensorError(f"no tensor in this {kind}: {_shortened(inside) if inside else 'it is empty'}")


def path_of(leaf: Any, tree: Any) -> str:
    """How one would write that leaf of the tree."""
    return next(path for path, other in named_leaves(tree) if other is leaf)


def listed(devices: set[Device]) -> str:
    """The devices, in words."""
    return " and ".join(map(str, sorted(devices)))


def _shortened(items: list[str], most: int = 5) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
