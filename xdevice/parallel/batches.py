"""A batch in parts: `split_batch`."""

from collections.abc import Iterable, Sequence
from typing import Any

from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotATensorError,
    NotSupportedError,
    shortened,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Ownership
from xdevice.hardware.devices import require
from xdevice.parallel.replicas import checked_devices
from xdevice.parallel.vectors import moved
from xdevice.tensors.trees.leaves import is_weak, places, what_is
from xdevice.tensors.trees.tree import Flat, flatten
from xdevice.typing import DeviceLike

__all__ = ["split_batch"]


class Shards(list[Any]):
    """A batch in parts, one for each of the devices: what `prefetch` gives to a list of them."""

    def __init__(
        self, parts: Iterable[Any], devices: Sequence[Device], sizes: Sequence[int]
    ) -> None:
        super().__init__(parts)
        self.devices, self.sizes = list(devices), list(sizes)  # rows of each part


def split_batch(tree: Any, devices: Sequence[DeviceLike]) -> list[Any]:
    """One tree for each device, with its part of the rows of every tensor, in order.

    Rows are along the first axis; all tensors have the same number. If it cannot be divided evenly, the
    first devices get one more: 10 rows over 4 devices are 3, 3, 2 and 2. Plain data is in every part; arrays of
    text and dates are split, and stay on the host. A part may share memory with the batch where it is there
    already. Gradients may not flow.

    Raises
    ------
    ArgumentError
        No devices; a tensor without axes; tensors of different lengths; fewer rows than devices.
    ArgumentTypeError
        ``devices`` is not a list.
    DeviceNotFoundError, DeviceSpellingError
        The chosen framework does not have the device, or the string does not name one.
    NotATensorError
        No tensor in the batch, or something else that holds tensors and has no rows: a model, a packed sequence.
    NotSupportedError
        The framework cannot split such a tensor, a sparse one say.

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
    found = flat.each(_rows_in)
    tensors = {id(rows.tensor): rows for rows in found if rows is not None}
    sizes = _sizes(flat, found, len(devices))
    for owner in dict.fromkeys(rows.owner for rows in tensors.values() if not rows.stays):
        for device in devices:
            require(owner, device)
    parts = {key: rows.split(sizes, devices, non_blocking) for key, rows in tensors.items()}
    return [
        flat.rebuild(parts[id(leaf)][k] if id(leaf) in parts else leaf for leaf in flat.leaves)
        for k in range(len(devices))
    ], sizes


def split_arguments(batch: Sequence[Any], devices: Sequence[Device]) -> tuple[list[Any], list[int]]:
    """A function's arguments for each device, and the number of their rows; `Shards` are split already."""
    ready = [each for each in batch if isinstance(each, Shards)]
    if not ready:
        return shards(tuple(batch), devices, non_blocking=True)
    if len(ready) < len(batch) or any(each.sizes != ready[0].sizes for each in ready):
        raise ArgumentTypeError(
            "a batch of prefetch comes alone; let prefetch move one tree of all that fn takes"
        )
    if ready[0].devices != list(devices):
        there, here = (", ".join(map(str, each)) for each in (ready[0].devices, devices))
        raise ArgumentError(
            f"the batch was prefetched to {there}, and is used on {here}; give both the same devices"
        )
    return list(zip(*ready, strict=True)), ready[0].sizes


class _Rows:
    """A tensor of a batch, with its shape; text and dates stay where they are."""

    def __init__(self, tensor: Any, owner: Backend, stays: bool) -> None:
        self.tensor, self.owner, self.stays = tensor, owner, stays
        self.place = owner.placement.device_of(tensor)
        try:
            self.shape = tuple(tensor.shape)
        except (RuntimeError, ValueError) as error:  # that of torch's nested tensors cannot be told
            raise NotSupportedError(
                f"{owner} gives this {type(tensor).__name__} no shape; split its parts"
            ) from error

    def split(self, sizes: list[int], devices: Sequence[Device], non_blocking: bool) -> list[Any]:
        cut = (
            self.owner.collectives.split(self.tensor, sizes) if len(devices) > 1 else [self.tensor]
        )
        return [
            part
            if self.stays or self.place is device
            else moved(part, self.owner, device, non_blocking)
            for part, device in zip(cut, devices, strict=True)
        ]


def _rows_in(_: int, leaf: Any) -> _Rows | None:
    """A leaf that is split; ``None`` for plain data, which is given to every device as it is."""
    what = what_is(leaf)
    if isinstance(what, Ownership) and what.is_tensor:
        is_data = is_weak(leaf, what)
        return None if is_data and not len(leaf.shape) else _Rows(leaf, what.backend, is_data)
    if what is None or not (isinstance(what, Ownership) or places(leaf, what)):
        return None
    kind = f"an object of type {type(leaf).__name__} holds tensors, and has no rows to split"
    raise NotATensorError(
        f"{kind}; pass the tensors in it, or let the function know it from outside"
    )


def _sizes(flat: Flat, found: list[_Rows | None], k: int) -> list[int]:
    shapes = [rows.shape for rows in found if rows is not None]
    if not all(shapes) or len({shape[0] for shape in shapes}) != 1:
        seen = [
            (path or "it", rows.shape)
            for path, rows in zip(flat.paths, found, strict=True)
            if rows is not None
        ]
        if not seen:
            raise NotATensorError(
                f"there is no tensor to split in {shortened(flat.tree)}; give the batch's tensors"
            )
        for path, shape in seen:
            if not shape:
                no_axis = f"the tensor at {path} has no axis, so it has no rows"
                raise ArgumentError(f"{no_axis}; give it one, or pass a number")
        lengths = ", ".join(f"{shape[0]} at {path}" for path, shape in seen)
        alike = "the tensors of a batch have as many rows each"
        raise ArgumentError(f"{alike}, but here are {lengths}; give those of one batch")
    rows = int(shapes[0][0])
    if rows < k:
        too_small = f"a batch of {rows} rows is too small for {k} devices"
        raise ArgumentError(f"{too_small}; give each one row at least, or name fewer devices")
    return [rows // k + (i < rows % k) for i in range(k)]
