"""One tree on many devices."""

from __future__ import annotations

from xdevice.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from xdevice.gradients import differentiating
from xdevice.hardware import as_device, shortened
from xdevice.placement import devices_of, is_device, owned_by, to_device
from xdevice.tree import map_leaves, named_leaves, same_structure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from xdevice.device import Device


class Replicas(list["Any"]):
    """What `replicate` returns: a list of trees alike, one for each device."""

    __slots__ = ()


def replicate(tree: Any, devices: Sequence[Any]) -> Replicas:
    """A copy of the tree on each device, also where it is already, and twice on a device that is named twice.

    Floating-point tensors in it are ready for gradients, in the framework's own words, and belong to no
    graph. A leaf that appears twice is shared within each replica. Models are copied as `to_device` does.

    >>> import numpy, xdevice
    >>> parameters = {"w": numpy.ones(2)}
    >>> replicas = xdevice.replicate(parameters, ["cpu", "cpu"])
    >>> len(replicas), replicas[0]["w"] is replicas[1]["w"], replicas[0]["w"] is parameters["w"]
    (2, False, False)

    Raises
    ------
    ArgumentError, ArgumentTypeError
        No devices.
    DeviceNotFoundError, DeviceSpellingError
        No such device.
    NotATensorError
        No tensor in the tree.
    NotSupportedError
        Inside `value_and_grad`, where its gradients would be lost.
    """
    if differentiating():
        raise NotSupportedError("replicate has no gradient; make replicas outside value_and_grad")
    wanted = checked_devices(devices)
    devices_of(tree)  # there is something to copy
    return Replicas(_ready(to_device(tree, device, copy=True)) for device in wanted)


def checked_devices(devices: Any) -> list[Device]:
    """The devices of a list; an error if there is none."""
    if is_device(devices) or not hasattr(devices, "__iter__"):
        raise ArgumentTypeError(f"devices={shortened(devices)} is no list of devices; write ['gpu:0', 'gpu:1']")
    found = [as_device(device) for device in devices]
    if not found:
        raise ArgumentError("there is no device in the list; try_all_gpus() is never empty")
    return found


def check_alike(trees: Sequence[Any]) -> None:
    """An error if the trees are not of one structure."""
    for i, tree in enumerate(trees[1:], 1):
        if not same_structure(trees[0], tree):
            first, other = [[path or "a single leaf" for path, _ in named_leaves(each)] for each in (trees[0], tree)]
            path = next(iter([p for p in first if p not in other] or [p for p in other if p not in first]), first[0])
            having, lacking = (0, i) if path in first else (i, 0)
            raise ArgumentError(f"tree {having} has {path} and tree {lacking} has not; give trees of one structure")


def _ready(tree: Any) -> Any:
    """The tree that was just copied, with each tensor ready for gradients."""
    ready: dict[int, Any] = {}

    def leaf(tensor: Any) -> Any:
        owned = owned_by(tensor)
        if owned is None or owned[1] != "tensor":
            return tensor
        if id(tensor) not in ready:
            ready[id(tensor)] = owned[0].collectives.leaf(tensor)
        return ready[id(tensor)]

    return map_leaves(leaf, tree)
