"""Where the tensors of a tree are, and the long error messages: which is where, by its path, and what to type next."""

from collections.abc import Collection, Iterator
from typing import Any

from xdevice.device import Device
from xdevice.errors import MixedDeviceError, NotATensorError, XDeviceError, listed, mixed_devices
from xdevice.framework.ownership import Ownership, owned_by, places_of
from xdevice.hardware.devices import as_device, is_device
from xdevice.tensors.trees.leaves import is_weak, places, what_is
from xdevice.tensors.trees.tree import flatten


def devices_in(tree: Any, skip: Collection[str]) -> set[Device]:
    """All devices on which tensors of the tree are; `NotATensorError` if it has none."""
    flat = flatten(tree, skip)
    found: set[Device] = set()
    weak: set[Device] = set()  # of what counts only where there is nothing else
    for i, leaf in enumerate(flat.leaves):
        try:
            what = None if i in flat.skipped else what_is(leaf)
            if what is not None:
                (weak if is_weak(leaf, what) else found).update(places(leaf, what))
        except XDeviceError as error:
            raise at_path(error, flat.paths[i]) from error.__cause__
    if not found and not weak:
        raise not_a_tensor(tree)
    return found or weak


def mixed(objs: tuple[tuple[str, Any], ...], skip: Collection[str] = ()) -> MixedDeviceError:
    """The error for named objects on several devices; each tensor's path is under its device."""
    placed = [(path, found) for name, obj in objs for path, found in _placements(name, obj, skip)]
    devices: set[Device] = set().union(*(found for _, found in placed))
    groups: dict[str, list[str]] = {}
    for path, found in placed:
        groups.setdefault(listed(found), []).append(path.lstrip(".") or "it")
    where = "; ".join(f"on {device}: {_shortened(paths)}" for device, paths in sorted(groups.items()))
    return mixed_devices(f"one device was expected, but there are {len(devices)}: {where}", devices)


def not_a_tensor(obj: Any) -> NotATensorError:
    """The error for an object without a tensor; what a container holds instead is listed."""
    kind = type(obj).__name__
    if is_device(obj) and not isinstance(obj, str):
        return NotATensorError(f"{obj!r} is a device, not a tensor; pass what is on it")
    flat = flatten(obj)
    if flat.is_leaf:
        return NotATensorError(f"no framework owns this {kind}; pass a tensor, a model, or containers of these")
    held = next((path for path, leaf in flat.named() if owned_by(leaf)), None)
    if held is not None:
        return NotATensorError(f"a {kind} is not a tensor; pass what is in it one by one, at {held} for example")
    inside = [f"{path} is of type {type(leaf).__name__}" for path, leaf in flat.named()]
    return NotATensorError(f"no tensor in this {kind}: {_shortened(inside) if inside else 'it is empty'}")


def at_path(error: XDeviceError, path: str) -> XDeviceError:
    """The same error, with the path of the leaf that it is about in its message."""
    if path:
        error.args = (f"{error} (at {path})", *error.args[1:])
    return error


def _placements(path: str, obj: Any, skip: Collection[str] = ()) -> Iterator[tuple[str, set[Device]]]:
    """Where each tensor in the object is, with its path."""
    if is_device(obj):
        yield path, {as_device(obj)}
        return
    flat = flatten(obj, skip)
    for i, (key, leaf) in enumerate(flat.named()):
        what = None if i in flat.skipped else what_is(leaf)
        if what is None or is_weak(leaf, what):
            continue
        if isinstance(what, Ownership) and what.is_model:
            for name, tensor in what.backend.models.tensors_of(leaf):
                inside = owned_by(tensor)
                yield f"{path}{key}.{name}", places_of(tensor, inside) if inside else set()
        else:
            yield path + key, places(leaf, what)


def _shortened(items: list[str], most: int = 5) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
