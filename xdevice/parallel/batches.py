"""Splitting a batch over devices: `split_batch`."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from xdevice.contract import Tensor, Tree
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotATensorError,
    NotSupportedError,
    shortened,
)
from xdevice.framework.adapters import Backend
from xdevice.hardware.devices import require
from xdevice.parallel.replicas import checked_devices
from xdevice.parallel.vectors import moved
from xdevice.tensors.trees.leaves import Leaf, devices_of_leaf, is_data, known_leaf
from xdevice.tensors.trees.tree import FlatTree
from xdevice.typing import DeviceLike

__all__ = ["split_batch"]


class Shards(list[Tree]):
    """A batch in parts, one for each device.

    `prefetch` yields such batches for a list of devices.
    """

    def __init__(
        self, parts: Iterable[Tree], devices: Sequence[Device], sizes: Sequence[int]
    ) -> None:
        super().__init__(parts)
        self.devices = list(devices)
        self.sizes = list(sizes)  # the number of rows of each part


def split_batch(tree: Tree, devices: Sequence[DeviceLike]) -> list[Tree]:
    """One tree for each device, with its rows of every tensor, in order.

    Rows are along the first axis, and all tensors have the same number of
    rows. If that cannot be divided evenly, the first devices get one more: 10
    rows over 4 devices are 3, 3, 2 and 2. Plain data is in every part; arrays
    of text and dates are split, and stay on the host. A part may share memory
    with the batch if the batch is on its device. Gradients may not flow.

    Raises
    ------
    ArgumentError
        There are no devices or fewer rows than devices, a tensor has no axes,
        or tensors have different lengths.
    ArgumentTypeError
        ``devices`` is not a list.
    DeviceNotFoundError, DeviceSpellingError
        The chosen framework does not have the device, or the string does not
        name one.
    NotATensorError
        The batch contains no tensor, or an object without rows that holds
        tensors: a model, a packed sequence.
    NotSupportedError
        The framework cannot split such a tensor, a sparse one for example.

    Examples
    --------
    >>> import numpy, xdevice
    >>> xdevice.split_batch({"x": numpy.arange(5), "name": "five"}, ["cpu", "cpu"])
    [{'x': array([0, 1, 2]), 'name': 'five'}, {'x': array([3, 4]), 'name': 'five'}]
    """
    return shards(tree, checked_devices(devices), non_blocking=False)[0]


def shards(
    tree: Tree, devices: Sequence[Device], non_blocking: bool
) -> tuple[list[Tree], list[int]]:
    """A tree for each device, with its part of the rows.

    And the number of rows of each part.
    """
    flat = FlatTree(tree)
    found = flat.for_each(_splittable)
    tensors = {key: leaf for key, leaf in found.items() if leaf is not None}
    sizes = _sizes(flat, list(tensors.values()), len(devices))
    for owner in dict.fromkeys(leaf.owner for leaf in tensors.values() if leaf.is_moved):
        for device in devices:
            require(owner, device)
    parts = {key: leaf.split(sizes, devices, non_blocking) for key, leaf in tensors.items()}
    trees = [
        flat.replace({key: leaf_parts[k] for key, leaf_parts in parts.items()})
        for k in range(len(devices))
    ]
    return trees, sizes


def split_arguments(
    batch: Sequence[Tree], devices: Sequence[Device]
) -> tuple[list[Tree], list[int]]:
    """A function's arguments for each device, and the numbers of rows.

    `Shards` are not split.
    """
    prefetched = [argument for argument in batch if isinstance(argument, Shards)]
    if not prefetched:
        return shards(tuple(batch), devices, non_blocking=True)
    first = prefetched[0]
    has_other_arguments = len(prefetched) < len(batch)
    if has_other_arguments or any(part.sizes != first.sizes for part in prefetched):
        raise ArgumentTypeError(
            "a batch of prefetch comes alone; let prefetch move one tree of all that fn takes"
        )
    if first.devices != list(devices):
        prefetched_to = ", ".join(map(str, first.devices))
        used_on = ", ".join(map(str, devices))
        raise ArgumentError(
            f"the batch was prefetched to {prefetched_to}, and is used on {used_on}; give both the "
            "same devices"
        )
    return list(zip(*prefetched, strict=True)), first.sizes


class _Splittable(NamedTuple):
    """A tensor of a batch that is split.

    Text and dates are split, too, but not moved.
    """

    tensor: Tensor
    owner: Backend
    shape: tuple[int, ...]
    device: Device
    is_moved: bool

    def split(
        self, sizes: list[int], devices: Sequence[Device], non_blocking: bool
    ) -> list[Tensor]:
        parts = [self.tensor]
        if len(devices) > 1:
            parts = self.owner.collectives.split(self.tensor, sizes)
        if not self.is_moved:
            return parts
        return [
            part if self.device is device else moved(part, self.owner, device, non_blocking)
            for part, device in zip(parts, devices, strict=True)
        ]


def _splittable(leaf: Leaf) -> _Splittable | None:
    """A leaf that is split.

    ``None`` for plain data, which is in every part as it is.
    """
    known = known_leaf(leaf)
    if known is None:
        return None
    if known.device_of is not None and known.backend is not None:
        is_moved = not is_data(leaf, known)
        if not is_moved and len(leaf.shape) == 0:
            return None
        shape = _shape(leaf, known.backend)
        return _Splittable(leaf, known.backend, shape, known.device_of(leaf), is_moved)
    if known.category == "movable" and not devices_of_leaf(leaf, known):
        return None  # it moves itself, but holds no tensor
    raise NotATensorError(
        f"an object of type {type(leaf).__name__} holds tensors, and has no rows to split; pass "
        "the tensors in it, or let the function know it from outside"
    )


def _shape(tensor: Tensor, owner: Backend) -> tuple[int, ...]:
    try:
        return tuple(tensor.shape)
    except (RuntimeError, ValueError) as error:  # torch's nested tensors have no shape
        raise NotSupportedError(
            f"{owner} gives this {type(tensor).__name__} no shape; split its parts"
        ) from error


def _sizes(flat: FlatTree, leaves: list[_Splittable], k: int) -> list[int]:
    """The number of rows for each of ``k`` devices.

    An error if the tensors do not correspond.
    """
    shapes = [leaf.shape for leaf in leaves]
    if not shapes:
        raise NotATensorError(
            f"there is no tensor to split in {shortened(flat.tree)}; give the batch's tensors"
        )
    if not all(shapes) or len({shape[0] for shape in shapes}) > 1:
        raise _shapes_error(flat, leaves)
    rows = int(shapes[0][0])
    if rows < k:
        raise ArgumentError(
            f"a batch of {rows} rows is too small for {k} devices; give each one row at least, or "
            "name fewer devices"
        )
    return [rows // k + (i < rows % k) for i in range(k)]


def _shapes_error(flat: FlatTree, leaves: list[_Splittable]) -> ArgumentError:
    """The error for a tensor without axes, or for unequal numbers of rows."""
    lengths = []
    for leaf in leaves:
        path = flat.path_to(leaf.tensor) or "it"
        if not leaf.shape:
            return ArgumentError(
                f"the tensor at {path} has no axis, so it has no rows; give it one, or "
                "pass a number"
            )
        lengths.append(f"{leaf.shape[0]} at {path}")
    return ArgumentError(
        f"the tensors of a batch have as many rows each, but here are {', '.join(lengths)}; give "
        "those of one batch"
    )
