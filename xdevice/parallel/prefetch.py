"""``prefetch``: the next batches travel while this one is computed with.

There is no thread. The source is called where the loop asks for a batch, some
batches ahead, so that all that belongs to a thread or a context is the loop's
there, too: settings, random numbers, gradients. A copy is begun there, and
what makes it goes on by itself: a stream of the GPU's, the framework's own
threads, a stated bus. It is waited for before the source is called again,
which may write into the memory that it has given.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, overload

from xdevice.contract import Event, Stream, Tensor
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
from xdevice.parallel.vectors import Pack, moved, packs_of
from xdevice.tensors.placement import devices_of, to_device
from xdevice.tensors.trees.leaves import leaf_ownership
from xdevice.tensors.trees.tree import Flat, flatten
from xdevice.typing import DeviceLike

__all__ = ["prefetch"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_HOST = Device("cpu", 0)
# Tensors of at most so many bytes are packed into one vector if there are so
# many of a dtype: it is quicker then, by benchmarks/transfers.py.
_PACKED_SIZE = 2**14
_PACKED_NUMBER = 16


class Placed(NamedTuple):
    """A batch on its device, or on its way there."""

    batch: Any
    # whether any part was copied to the device; then the parts that stay are
    # copies, too
    has_travelled: bool
    under_way: Sequence[Event] = ()  # the copies that may not have ended

    def arrived(self) -> Any:
        """The batch, for this thread to compute with."""
        for event in self.under_way:
            event.wait()
        return self.batch


class Prefetched(Generic[T_co]):
    """The batches of an iterable, each placed.

    It can be iterated as often as the iterable, and has its length.
    """

    def __init__(self, batches: Iterable[Any], place: Callable[[Any], Placed], size: int) -> None:
        self._batches = batches
        self._place = place
        self._size = size

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # without a length, Python's own error

    def __iter__(self) -> Iterator[T_co]:
        source = iter(self._batches)
        queue = deque[Placed | Exception]()  # batches, or the errors that are raised in their place
        ahead = 0  # how many batches the source runs ahead
        while True:
            while len(queue) <= ahead and _may_continue(queue):
                queue.append(self._next(source, ahead > 0))
                if getattr(queue[-1], "has_travelled", False):
                    ahead = self._size  # from now on
            batch = _take_first(queue)
            if not batch:
                return
            yield batch.pop()  # no variable here refers to the batch while the consumer has it

    def _next(self, source: Iterator[Any], is_ahead: bool) -> Placed | Exception:
        """The source's next batch, or the error that is raised in its place."""
        try:
            placed = self._place(next(source))
            if is_ahead and not placed.has_travelled:
                placed = placed._replace(batch=snapshot(placed.batch))
            return placed
        except Exception as error:
            if is_raised_by_handler(error):
                raise
            return error


def _may_continue(queue: deque[Placed | Exception]) -> bool:
    """Wait until the source may write to the last batch's memory again.

    False if an error ends the source.
    """
    if not queue:
        return True
    last = queue[-1]
    if not isinstance(last, Placed):
        return False
    try:
        for event in last.under_way:
            event.synchronize()
    except Exception as error:
        if is_raised_by_handler(error):
            raise
        queue[-1] = error  # the copy has failed
        return False
    return True


def _take_first(queue: deque[Placed | Exception]) -> list[Any]:
    """The first batch of the queue, alone in a list.

    The list is empty at the end. An error in the queue is raised.
    """
    first = queue.popleft()
    if isinstance(first, Placed):
        return [first.arrived()]
    if isinstance(first, StopIteration):
        return []
    try:
        raise first
    finally:
        del first  # or the traceback would keep it alive


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
    """The batches on the device, in order.

    The next ``size`` batches are copied while one is used.

    The source runs in the loop's own thread, when the loop asks for a batch,
    ``size`` batches ahead: it has the loop's settings, and a seeded program
    draws the same numbers each time. A batch is what the source had yielded,
    whatever it writes into that memory afterwards. An error of the source is
    raised where its batch would be, one of a signal's handler at once. Where
    nothing has to travel, nothing runs ahead. Iterate several times, and ask
    for ``len``, where ``batches`` has that.

    Parameters
    ----------
    batches
        Any iterable of tensors and trees: a data loader, a list, a generator.
        An iterator has been read ahead when its loop is left.
    device
        Where to; a list of devices gives the parts of `split_batch`, one for
        each, which `data_parallel` takes.
    size
        How many batches the source runs ahead, which wait on the device beside
        the one in use.
    pin
        Copy to a real GPU by way of page-locked memory, which is quicker,
        where the framework can.

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
    """How batches get to one device.

    They have a stream of their own, if the framework has such streams.
    """

    def __init__(self, device: Device, pin: bool) -> None:
        self._device = device
        self._pin = pin
        self._streams: dict[Backend, Stream | None] = {}  # made once, for every iteration

    def __call__(self, batch: Any) -> Placed:
        host_batch = None if self._device.kind == "cpu" else _host_batch(batch)
        if host_batch is not None:
            return self._send(host_batch)
        moved_batch = to_device(batch, self._device)
        if moved_batch is batch:
            return Placed(batch, False)
        old_leaves = set(map(id, flatten(batch).leaves))
        new_leaves = set(map(id, flatten(moved_batch).leaves)) - old_leaves
        return Placed(snapshot(moved_batch, new_leaves), True)

    def _send(self, batch: "_HostBatch") -> Placed:
        owner, device = batch.owner, self._device
        stream, bus = self._stream(owner), stream_of(owner, device)
        pin = stream.pinned if stream is not None and self._pin else None
        packs = bus is not None or not is_virtual(owner, device)
        with ExitStack() as stack:
            streams = [each for each in (stream, bus) if each is not None]
            for each in streams:
                stack.enter_context(each)
            tensors = batch.tensors_on(device, packs, pin, non_blocking=stream is not None)
            under_way = [each.record(list(tensors.values())) for each in streams]
        return Placed(batch.with_tensors(tensors), True, under_way)

    def _stream(self, owner: Backend) -> Stream | None:
        if owner not in self._streams:
            require(owner, self._device)
            has_streams = owner.load("streams").has("stream")
            self._streams[owner] = owner.streams.stream(self._device) if has_streams else None
        return self._streams[owner]


class _HostBatch(NamedTuple):
    """A batch whose tensors are on the host and belong to one framework."""

    flat: Flat
    owner: Backend
    tensors: dict[int, Tensor]  # by the ids of the leaves

    def tensors_on(
        self,
        device: Device,
        packs: bool,
        pin: Callable[[Tensor], Tensor] | None = None,
        non_blocking: bool = False,
    ) -> dict[int, Tensor]:
        """The tensors on the device, by the same ids.

        Many small ones of a dtype are sent as one vector.
        """
        owner = self.owner
        new_tensors: dict[int, Tensor] = {}

        def pinned(tensor: Tensor) -> Tensor:
            return tensor if pin is None else pin(tensor)

        for pack in self._packs() if packs else []:
            vector = moved(pinned(pack.packed()), owner, device)
            new_tensors.update(zip(map(id, pack.tensors), pack.unpacked(vector), strict=True))
        for key, tensor in self.tensors.items():
            if key not in new_tensors:
                new_tensors[key] = moved(pinned(tensor), owner, device, non_blocking)
        return new_tensors

    def _packs(self) -> Iterator[Pack]:
        """The vectors that are worth making of small tensors."""
        if not self.owner.load("packing").has("is_packable"):
            return
        is_packable = self.owner.packing.is_packable
        small = [each for each in self.tensors.values() if is_packable(each, _PACKED_SIZE)]
        if len(small) < _PACKED_NUMBER:
            return
        for pack in packs_of(small):
            if len(pack.tensors) >= _PACKED_NUMBER:
                yield pack

    def with_tensors(self, tensors: dict[int, Tensor]) -> Any:
        """The batch with these tensors in place of its own.

        Its source cannot write to any part of it.
        """

        def new_leaf(leaf: Any) -> Any:
            return tensors[id(leaf)] if id(leaf) in tensors else plain(leaf)

        return self.flat.map(new_leaf, afresh=True)


def _host_batch(batch: Any) -> _HostBatch | None:
    """The batch, if all tensors are on the host and of one framework."""
    tensors: dict[int, Tensor] = {}
    owners: set[Backend] = set()
    try:
        flat = flatten(batch)
        for leaf in flat.leaves:
            ownership = leaf_ownership(leaf)
            if ownership is None:
                continue
            if not (isinstance(ownership, Ownership) and ownership.is_tensor):
                return None
            if ownership.backend.placement.device_of(leaf) is not _HOST:
                return None
            tensors[id(leaf)] = leaf
            owners.add(ownership.backend)
    except XDeviceError:
        return None  # `to_device` raises it, with the path
    return _HostBatch(flat, owners.pop(), tensors) if len(owners) == 1 else None


def _split(devices: Sequence[Device], ways: Sequence[_Way], batch: Any) -> Placed:
    """The parts of the batch, each on the way to its device.

    A batch on the host is split there.
    """
    sources = devices_of(batch)
    split_on = [_HOST] * len(devices) if sources == {_HOST} else devices
    parts, sizes = shards(batch, split_on, non_blocking=False)
    placed = [way(part) for way, part in zip(ways, parts, strict=True)]
    has_travelled = not sources.issuperset(devices)
    if has_travelled:
        for i, (part, device) in enumerate(zip(placed, devices, strict=True)):
            if not part.has_travelled:
                copied = snapshot(part.batch, tensors=device in sources)
                placed[i] = Placed(copied, False)
    under_way = [event for part in placed for event in part.under_way]
    return Placed(Shards([part.batch for part in placed], devices, sizes), has_travelled, under_way)
