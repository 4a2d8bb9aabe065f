"""``prefetch``: the next batches travel while this one is computed with."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, overload

from xdevice.contract import Lane
from xdevice.device import Device, whole_number
from xdevice.errors import ArgumentTypeError, XDeviceError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Ownership
from xdevice.hardware import bus as buses
from xdevice.hardware.devices import as_device, is_device, require
from xdevice.hardware.virtual import is_virtual
from xdevice.parallel.ahead import Ahead, Placed
from xdevice.parallel.batches import Shards, shards
from xdevice.parallel.replicas import checked_devices
from xdevice.parallel.vectors import moved, packs_of
from xdevice.tensors.placement import devices_of, to_device
from xdevice.tensors.trees.leaves import what_is
from xdevice.tensors.trees.tree import flatten
from xdevice.typing import DeviceLike

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_HOST = Device("cpu", 0)


class Prefetched(Protocol[T_co]):
    """What `prefetch` returns."""

    def __iter__(self) -> Iterator[T_co]: ...
    def __len__(self) -> int: ...


@overload
def prefetch(
    batches: Iterable[Any], device: list[Any] | tuple[Any, ...], size: int = 2, *, pin: bool = False
) -> Prefetched[Shards]: ...
@overload
def prefetch(batches: Iterable[T], device: DeviceLike, size: int = 2, *, pin: bool = False) -> Prefetched[T]: ...
def prefetch(batches: Iterable[Any], device: Any, size: int = 2, *, pin: bool = False) -> Prefetched[Any]:
    """The batches on the device, in order; the next ``size`` of them travel while this one is computed with.

    A thread takes them from their source and moves them, as by `to_device`, under the caller's `using` and `scope`.
    It ends with the loop, however that is left; an error of the source is raised where its batch would be. Where
    nothing has to travel there is no thread; nor on a virtual GPU where a batch takes less than 2 ms, which a thread
    would not hide. Iterate several times, and ask for ``len``, where ``batches`` has that.

    Parameters
    ----------
    batches
        Any iterable of tensors and trees: a data loader, a list, a generator. An iterator has been read ahead when its
        loop is left.
    device
        Where to; a list of devices gives the parts of `split_batch`, one for each, which `data_parallel` takes.
    size
        How many batches may wait on the device, beside the one in use.
    pin
        Copy to a real GPU by way of page-locked memory, which is quicker, where the framework can.

    Raises
    ------
    ArgumentError
        ``size`` is under 1, or the list of devices is empty.
    ArgumentTypeError
        ``batches`` cannot be iterated, or ``size`` is not an integer.
    DeviceSpellingError
        The string does not name a device.
    DeviceNotFoundError
        On iterating: the batch's framework does not have the device.

    Examples
    --------
    >>> import numpy, xdevice
    >>> batches = [{"x": numpy.full(2, i)} for i in range(3)]
    >>> for batch in xdevice.prefetch(batches, xdevice.try_gpu()):
    ...     print(batch["x"].sum())
    0
    2
    4
    """
    if not hasattr(type(batches), "__iter__") and not hasattr(type(batches), "__getitem__"):
        raise ArgumentTypeError(f"{shortened(batches)} cannot be iterated; pass a data loader, or a list of batches")
    number = whole_number(size, f"size={shortened(size)} is not a number of batches; give an integer of 1 or more", 1)
    if is_device(device) or not hasattr(device, "__iter__"):
        return Ahead(batches, _Way(as_device(device), bool(pin)), number)
    devices = checked_devices(device)
    ways = [_Way(each, bool(pin)) for each in devices]
    return Ahead(batches, partial(_split, devices, ways), number)


_SMALL, _MANY = 2**14, 16
"""Bytes of a tensor, and how many of a dtype, from which one vector is quicker: by benchmarks/transfers.py."""


def _same(tensor: Any) -> Any:
    return tensor


class _Way:
    """How batches get to one device: on a lane of their own, where the framework has one to a real GPU."""

    def __init__(self, device: Device, pin: bool) -> None:
        self._device, self._pin = device, pin
        self._lanes: dict[Backend, Lane | None] = {}  # made once, for every iteration
        self._by_cpu: dict[Backend, bool] = {}

    def __call__(self, batch: Any) -> Placed:
        owner = None if self._device.kind == "cpu" else _owner_on_host(batch)
        if owner is not None and self._is_by_cpu(owner):
            placed = to_device(batch, self._device)
            return Placed(placed, placed is not batch, by_cpu=True)
        lane = None if owner is None else self._lane(owner)
        if owner is None or lane is None:
            placed = to_device(batch if owner is None else _packed(batch, owner, self._device), self._device)
            return Placed(placed, placed is not batch)
        with lane:
            packed = _packed(batch, owner, self._device, lane.pinned if self._pin else _same)
            pinned = _mapped(packed, lane.pinned)[0] if self._pin else packed
            placed, tensors = _mapped(to_device(pinned, self._device, non_blocking=True), _same)
            return Placed(placed, True, [(lane.mark(), tensors)])

    def _is_by_cpu(self, owner: Backend) -> bool:
        """Whether the CPU makes the copies, with no bus that takes time beside it."""
        if owner not in self._by_cpu:
            require(owner, self._device)
            self._by_cpu[owner] = is_virtual(owner, self._device) and not buses.requested()
        return self._by_cpu[owner]

    def _lane(self, owner: Backend) -> Lane | None:
        if owner not in self._lanes:
            require(owner, self._device)
            can = not is_virtual(owner, self._device) and owner.open("lanes").has("lane")
            self._lanes[owner] = owner.lanes.lane(self._device) if can else None
        return self._lanes[owner]


def _split(devices: Sequence[Device], ways: Sequence[_Way], batch: Any) -> Placed:
    """The batch's parts, each by the way to its device; from the host, where it is there."""
    here = devices_of(batch)
    parts, sizes = shards(batch, [_HOST] * len(devices) if here == {_HOST} else devices, non_blocking=False)
    placed = [way(part) for way, part in zip(ways, parts, strict=True)]
    under_way = [each for part in placed for each in part.under_way]
    found = Shards([part.batch for part in placed], devices, sizes)
    return Placed(found, not here.issuperset(devices), under_way, all(part.by_cpu for part in placed))


def _owner_on_host(batch: Any) -> Backend | None:
    """The framework of the batch, where that is plain tensors of one framework, all on the host."""
    try:
        found = {what.backend if isinstance(what, Ownership) and what.is_tensor else None
                 for leaf in flatten(batch).leaves if (what := what_is(leaf)) is not None}  # fmt: skip
        return found.pop() if len(found) == 1 and devices_of(batch) == {_HOST} else None
    except XDeviceError:
        return None  # `to_device` raises it, with the path


def _packed(batch: Any, owner: Backend, device: Device, prepared: Callable[[Any], Any] = _same) -> Any:
    """The batch with its small tensors on the device, if they are many: those of a dtype travel as one vector."""
    if not owner.open("packing").has("is_packable"):
        return batch
    require(owner, device)
    there: dict[int, Any] = {}
    for pack in packs_of([tensor for tensor in _mapped(batch, _same)[1] if owner.packing.is_packable(tensor, _SMALL)]):
        if len(pack.tensors) >= _MANY:
            parts = pack.unpacked(moved(prepared(pack.packed()), owner, device))
            there.update(zip(map(id, pack.tensors), parts, strict=True))
    return _mapped(batch, lambda tensor: there.get(id(tensor), tensor))[0] if there else batch


def _mapped(tree: Any, change: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
    """The tree with each of its tensors changed, and these."""
    flat = flatten(tree)
    changed = {id(leaf): change(leaf) for leaf in flat.leaves if what_is(leaf) is not None}
    return flat.map(lambda leaf: changed.get(id(leaf), leaf)), list(changed.values())
