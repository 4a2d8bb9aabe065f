"""``prefetch``: the next batches travel while this one is computed with.

There is no thread. The source is called where the loop asks for a batch, some batches ahead, so
that all that belongs to a thread or a context is the loop's there, too: settings, random numbers,
gradients. A copy is begun there, and what makes it goes on by itself: a stream of the GPU's, the
framework's own threads, a stated bus. It is waited for before the source is called again, which may
write into the memory that it has given.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, overload

from xdevice.contract import Event, Stream
from xdevice.device import Device, whole_number
from xdevice.errors import ArgumentTypeError, XDeviceError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Ownership
from xdevice.hardware.devices import as_device, is_device, require
from xdevice.hardware.virtual import is_virtual, stream_of
from xdevice.parallel.batches import Shards, shards
from xdevice.parallel.interrupts import is_raised_by_handler
from xdevice.parallel.replicas import checked_devices
from xdevice.parallel.snapshots import plain, snapshot
from xdevice.parallel.vectors import moved, packs_of
from xdevice.tensors.placement import devices_of, to_device
from xdevice.tensors.trees.leaves import kind_of
from xdevice.tensors.trees.tree import Flat, flatten
from xdevice.typing import DeviceLike

__all__ = ["prefetch"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_HOST = Device("cpu", 0)
# bytes of a tensor, and how many of a dtype, from which one vector is quicker: by
# benchmarks/transfers.py
_SMALL, _MANY = 2**14, 16


class Placed(NamedTuple):
    """A batch on its device, or on its way there; what stays where it was is a copy, if anything has travelled."""

    batch: Any
    has_travelled: bool  # any of it
    under_way: Sequence[Event] = ()

    def arrived(self) -> Any:
        """The batch, for this thread to compute with."""
        for event in self.under_way:
            event.wait()
        return self.batch


class Prefetched(Generic[T_co]):
    """The batches of an iterable, placed; as many times, and with the same length, as the iterable has."""

    def __init__(self, batches: Iterable[Any], place: Callable[[Any], Placed], size: int) -> None:
        self._batches, self._place, self._size = batches, place, size

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # raises its own error where it has no length

    def __iter__(self) -> Iterator[T_co]:
        source, waiting, ahead = iter(self._batches), deque[Placed | Exception](), 0
        while True:
            while len(waiting) <= ahead and _is_read(waiting):
                waiting.append(self._next(source, ahead > 0))
                if getattr(waiting[-1], "has_travelled", False):
                    ahead = self._size  # from now on
            batch = _taken(waiting)
            if not batch:
                return
            yield batch.pop()  # nothing here keeps what the consumer lets go of

    def _next(self, source: Iterator[Any], is_ahead: bool) -> Placed | Exception:
        """The source's next batch, or the error that is to be raised in its place."""
        try:
            placed = self._place(next(source))
            must_copy = is_ahead and not placed.has_travelled
            return placed._replace(batch=snapshot(placed.batch)) if must_copy else placed
        except Exception as error:
            if is_raised_by_handler(error):
                raise
            return error


def _is_read(waiting: deque[Placed | Exception]) -> bool:
    """Wait until the last batch's memory may be written to; whether another may follow."""
    last = waiting[-1] if waiting else None
    try:
        for event in last.under_way if isinstance(last, Placed) else ():
            event.synchronize()
    except Exception as error:
        if is_raised_by_handler(error):
            raise
        waiting[-1] = error  # the copy has failed
    return not waiting or isinstance(waiting[-1], Placed)


def _taken(waiting: deque[Placed | Exception]) -> list[Any]:
    """The first batch that waits, alone in a list; none at the end. Raises what the source or its copy has raised."""
    found = waiting.popleft()
    if isinstance(found, Placed):
        return [found.arrived()]
    if isinstance(found, StopIteration):
        return []
    try:
        raise found
    finally:
        del found  # which its traceback would keep alive


@overload
def prefetch(
    batches: Iterable[Any], device: list[Any] | tuple[Any, ...], size: int = 2, *, pin: bool = False
) -> Prefetched[Shards]: ...
@overload
def prefetch(
    batches: Iterable[T], device: DeviceLike, size: int = 2, *, pin: bool = False
) -> Prefetched[T]: ...
def prefetch(
    batches: Iterable[Any], device: Any, size: int = 2, *, pin: bool = False
) -> Prefetched[Any]:
    """The batches on the device, in order; the next ``size`` are copied while one is used.

    The source runs in the loop's own thread, when the loop asks for a batch, ``size`` batches
    ahead: it has the loop's settings, and a seeded program draws the same numbers each time. A
    batch is what the source had yielded, whatever it writes into that memory afterwards. An error
    of the source is raised where its batch would be, one of a signal's handler at once. Where
    nothing has to travel, nothing runs ahead. Iterate several times, and ask for ``len``, where
    ``batches`` has that.

    Parameters
    ----------
    batches
        Any iterable of tensors and trees: a data loader, a list, a generator. An iterator has been read ahead when its
        loop is left.
    device
        Where to; a list of devices gives the parts of `split_batch`, one for each, which `data_parallel` takes.
    size
        How many batches the source runs ahead, which wait on the device beside the one in use.
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
        raise ArgumentTypeError(
            f"{shortened(batches)} cannot be iterated; pass a data loader, or a list of batches"
        )
    number = whole_number(
        size, f"size={shortened(size)} is not a number of batches; give an integer of 1 or more", 1
    )
    if is_device(device) or not hasattr(device, "__iter__"):
        return Prefetched(batches, _Way(as_device(device), bool(pin)), number)
    devices = checked_devices(device)
    ways = [_Way(each, bool(pin)) for each in devices]
    return Prefetched(batches, partial(_split, devices, ways), number)


class _Way:
    """How batches get to one device: on a stream of their own, where the framework has one to it."""

    def __init__(self, device: Device, pin: bool) -> None:
        self._device, self._pin = device, pin
        self._streams: dict[Backend, Stream | None] = {}  # made once, for every iteration

    def __call__(self, batch: Any) -> Placed:
        found = None if self._device.kind == "cpu" else _OnHost.found(batch)
        if found is not None:
            return self._sent(found)
        there = to_device(batch, self._device)
        if there is batch:
            return Placed(batch, False)
        new = {id(leaf) for leaf in flatten(there).leaves}.difference(
            map(id, flatten(batch).leaves)
        )
        return Placed(snapshot(there, new), True)

    def _sent(self, batch: "_OnHost") -> Placed:
        owner, device = batch.owner, self._device
        stream, bus = self._stream(owner), stream_of(owner, device)
        pin = stream.pinned if stream is not None and self._pin else None
        packs = bus is not None or not is_virtual(owner, device)
        with ExitStack() as stack:
            streams = [each for each in (stream, bus) if each is not None]
            for each in streams:
                stack.enter_context(each)
            there = batch.moved_to(device, packs, pin, non_blocking=stream is not None)
            under_way = [each.record(list(there.values())) for each in streams]
        return Placed(batch.with_tensors(there), True, under_way)

    def _stream(self, owner: Backend) -> Stream | None:
        if owner not in self._streams:
            require(owner, self._device)
            has_streams = owner.open("streams").has("stream")
            self._streams[owner] = owner.streams.stream(self._device) if has_streams else None
        return self._streams[owner]


class _OnHost(NamedTuple):
    """A batch whose tensors are on the host, and of one framework: what there is to send, by the ids of leaves."""

    flat: Flat
    owner: Backend
    tensors: dict[int, Any]

    @classmethod
    def found(cls, batch: Any) -> "_OnHost | None":
        """The batch so, if it is one."""
        tensors, owners = dict[int, Any](), set[Backend]()
        try:
            flat = flatten(batch)
            for leaf in flat.leaves:
                what = kind_of(leaf)
                if what is not None:
                    if not (isinstance(what, Ownership) and what.is_tensor):
                        return None
                    if what.backend.placement.device_of(leaf) is not _HOST:
                        return None
                    tensors[id(leaf)] = leaf
                    owners.add(what.backend)
        except XDeviceError:
            return None  # `to_device` raises it, with the path
        return cls(flat, owners.pop(), tensors) if len(owners) == 1 else None

    def moved_to(
        self,
        device: Device,
        packs: bool,
        pin: Callable[[Any], Any] | None = None,
        non_blocking: bool = False,
    ) -> dict[int, Any]:
        """Its tensors on the device, by the same ids; small ones of a dtype as one vector, if they are many."""
        owner = self.owner
        there: dict[int, Any] = {}
        small = self._packable() if packs else []
        for pack in packs_of(small) if len(small) >= _MANY else []:
            if len(pack.tensors) >= _MANY:
                vector = moved(pack.packed() if pin is None else pin(pack.packed()), owner, device)
                there.update(zip(map(id, pack.tensors), pack.unpacked(vector), strict=True))
        for key, tensor in self.tensors.items():
            if key not in there:
                there[key] = moved(
                    tensor if pin is None else pin(tensor), owner, device, non_blocking
                )
        return there

    def _packable(self) -> list[Any]:
        if not self.owner.open("packing").has("is_packable"):
            return []
        return [
            tensor
            for tensor in self.tensors.values()
            if self.owner.packing.is_packable(tensor, _SMALL)
        ]

    def with_tensors(self, there: dict[int, Any]) -> Any:
        """The batch with these in place of its own, and nothing that it could write to."""
        return self.flat.map(
            lambda leaf: there[id(leaf)] if id(leaf) in there else plain(leaf), afresh=True
        )


def _split(devices: Sequence[Device], ways: Sequence[_Way], batch: Any) -> Placed:
    """The batch's parts, each by the way to its device; from the host, where it is there."""
    here = devices_of(batch)
    parts, sizes = shards(
        batch, [_HOST] * len(devices) if here == {_HOST} else devices, non_blocking=False
    )
    placed = [way(part) for way, part in zip(ways, parts, strict=True)]
    has_travelled = not here.issuperset(devices)
    if has_travelled:
        placed = [
            part
            if part.has_travelled
            else Placed(snapshot(part.batch, tensors=device in here), False)
            for part, device in zip(placed, devices, strict=True)
        ]
    under_way = [event for part in placed for event in part.under_way]
    return Placed(Shards([part.batch for part in placed], devices, sizes), has_travelled, under_way)
