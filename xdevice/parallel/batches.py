"""A batch in parts: `split_batch`."""

from __future__ import annotations

from xdevice.errors import ArgumentError, NotATensorError, shortened
from xdevice.framework.ownership import tensor_owner
from xdevice.hardware.devices import require
from xdevice.parallel.replicas import checked_devices
from xdevice.parallel.vectors import moved
from xdevice.tensors.trees.tree import flatten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from xdevice.device import Device
    from xdevice.tensors.trees.tree import Flat
    from xdevice.typing import DeviceLike


def split_batch(tree: Any, devices: Sequence[DeviceLike]) -> list[Any]:
    """One tree for each device, with its part of the rows of every tensor: the first gets the first rows.

    Rows are along the first axis; all tensors have the same number. If it cannot be divided evenly, the
    first devices get one more: 10 rows over 4 devices are 3, 3, 2 and 2. Whatever is not a tensor is in
    every part. A part may share memory with the batch where it is there already. Gradients may not flow.

    Raises
    ------
    ArgumentError
        No devices; a tensor without axes; tensors of different lengths; fewer rows than devices.
    ArgumentTypeError
        ``devices`` is not a list.
    DeviceNotFoundError
        The chosen framework does not have the device.
    DeviceSpellingError
        The string does not name a device.
    NotATensorError
        No tensor in the batch.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.split_batch({"x": numpy.arange(5), "name": "five"}, ["cpu", "cpu"])
    [{'x': array([0, 1, 2]), 'name': 'five'}, {'x': array([3, 4]), 'name': 'five'}]
    """
    return shards(tree, checked_devices(devices), non_blocking=False)[0]


def shards(tree: Any, devices: Sequence[Device], non_blocking: bool) -> tuple[list[Any], list[int]]:
    """A tree for each device, with its part of the rows; and how many these are."""
    flat = flatten(tree)
    owners = {id(leaf): owner for leaf in flat.leaves if (owner := tensor_owner(leaf)) is not None}
    tensors = {id(leaf): leaf for leaf in flat.leaves if id(leaf) in owners}
    sizes = _sizes(flat, tensors, len(devices))
    for owner in dict.fromkeys(owners.values()):
        for device in devices:
            require(owner, device)
    parts = {}
    for key, tensor in tensors.items():
        owner = owners[key]
        place = owner.placement.device_of(tensor)
        cut = owner.collectives.split(tensor, sizes) if len(devices) > 1 else [tensor]
        parts[key] = [
            part if place is device else moved(part, owner, device, non_blocking)
            for part, device in zip(cut, devices, strict=True)
        ]
    return [
        flat.rebuild(parts[id(leaf)][k] if id(leaf) in parts else leaf for leaf in flat.leaves)
        for k in range(len(devices))
    ], sizes


def _sizes(flat: Flat, tensors: dict[int, Any], k: int) -> list[int]:
    """How many rows each of so many devices gets."""
    lengths = {len(tensor.shape) and tensor.shape[0] for tensor in tensors.values() if len(tensor.shape)}
    if len(lengths) != 1 or not all(len(tensor.shape) for tensor in tensors.values()):
        raise _not_a_batch(flat, tensors)
    rows = int(lengths.pop())
    if rows < k:
        raise ArgumentError(
            f"a batch of {rows} rows is too small for {k} devices; give each one row at least, or name fewer devices"
        )
    return [rows // k + (i < rows % k) for i in range(k)]


def _not_a_batch(flat: Flat, tensors: dict[int, Any]) -> ArgumentError | NotATensorError:
    """The error for a tree that is not a batch: its tensors differ in length."""
    if not tensors:
        return NotATensorError(f"there is no tensor to split in {shortened(flat.tree)}; give the batch's tensors")
    seen = [(path or "it", leaf) for path, leaf in flat.named() if id(leaf) in tensors]
    for path, leaf in seen:
        if not len(leaf.shape):
            return ArgumentError(f"the tensor at {path} has no axis, so it has no rows; give it one, or pass a number")
    lengths = ", ".join(f"{leaf.shape[0]} at {path}" for path, leaf in seen)
    return ArgumentError(
        f"the tensors of a batch have as many rows each, but here are {lengths}; give those of one batch"
    )
