"""Copies of a tree on several devices: `replicate`."""

from collections.abc import Sequence
from typing import Any

from xdevice.device import Device
from xdevice.errors import ArgumentError, ArgumentTypeError, NotSupportedError, shortened
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.devices import as_device, is_device
from xdevice.tensors.gradients import differentiating
from xdevice.tensors.placement import devices_of, to_device
from xdevice.tensors.trees.tree import Flat, flatten
from xdevice.typing import DeviceLike


class Replicas(list[Any]):
    """What `replicate` returns: a list of trees of equal structure, one for each device.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"):
    ...     replicas = xdevice.replicate({"w": xdevice.ones(2)}, ["cpu", "cpu"])
    >>> halves = xdevice.Replicas({"w": copy["w"] / 2} for copy in replicas)
    >>> len(halves), halves[1]["w"].tolist()
    (2, [0.5, 0.5])
    """

    __slots__ = ()


def replicate(tree: Any, devices: Sequence[DeviceLike]) -> Replicas:
    """Copy a tree to each device: always a copy, also where the tree is already, and one for each mention of a device.

    Floating-point tensors in the copies require gradients, in the framework's own way, and are detached. A
    leaf that appears twice is shared within each replica. Models are copied as by `to_device`.

    Raises
    ------
    ArgumentError
        No devices.
    ArgumentTypeError
        ``devices`` is not a list, or the tree has a set in it.
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    NotATensorError
        No tensor in the tree.
    NotSupportedError
        Inside `value_and_grad`, where its gradients would be lost.

    Examples
    --------
    >>> import numpy, xdevice
    >>> parameters = {"w": numpy.ones(2)}
    >>> replicas = xdevice.replicate(parameters, ["cpu", "cpu"])
    >>> len(replicas), replicas[0]["w"] is replicas[1]["w"], replicas[0]["w"] is parameters["w"]
    (2, False, False)
    """
    if differentiating():
        raise NotSupportedError("replicate has no gradient; make replicas outside value_and_grad")
    wanted = checked_devices(devices)
    if flatten(tree).unordered:
        raise ArgumentTypeError("replicate was given a set, whose order differs from replica to replica; give a list")
    devices_of(tree)  # raises where there is nothing to copy
    return Replicas(_ready(to_device(tree, device, copy=True)) for device in wanted)


def checked_devices(devices: Any) -> list[Device]:
    """The devices in a list, of which there must be one at least."""
    if is_device(devices) or not hasattr(devices, "__iter__"):
        raise ArgumentTypeError(f"devices={shortened(devices)} is not a list of devices; write ['gpu:0', 'gpu:1']")
    found = [as_device(device) for device in devices]
    if not found:
        raise ArgumentError("there is no device in the list; try_all_gpus() is never empty")
    return found


def check_alike(flats: Sequence[Flat]) -> None:
    """Raise an error unless the trees have the same structure, in a definite order."""
    for i, flat in enumerate(flats):
        if flat.unordered:
            raise ArgumentTypeError(f"tree {i} has a set in it, whose order differs from tree to tree; give a list")
        if not flats[0].same_structure(flat):
            first, other = [[path or "a single leaf" for path in each.paths] for each in (flats[0], flat)]
            path = next(iter([p for p in first if p not in other] or [p for p in other if p not in first]), None)
            if path is None:
                raise ArgumentError(f"tree 0 and tree {i} have containers of different structure; make them alike")
            having, lacking = (0, i) if path in first else (i, 0)
            raise ArgumentError(f"tree {having} has {path} and tree {lacking} has not; give trees of one structure")


def _ready(tree: Any) -> Any:
    """The tree that was just copied, with each tensor ready for gradients."""
    flat = flatten(tree)
    distinct = {id(leaf): leaf for leaf in flat.leaves}.values()
    ready = {id(leaf): owner.collectives.leaf(leaf) for leaf in distinct if (owner := tensor_owner(leaf)) is not None}
    return flat.map(lambda leaf: ready.get(id(leaf), leaf))
