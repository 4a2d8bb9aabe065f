"""``prefetch``: the next batches are copied while a device computes.

There is no thread. The loop calls the source when it asks for a batch, some
batches ahead. So the source has everything that belongs to the loop's thread
or context: settings, random numbers, gradients. The copies begin there, too. A
GPU's stream, the framework's own threads, or a bus with a stated speed makes
them meanwhile. A copy has ended before the source is called again, because the
source may write into the memory of its last batch.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, overload

from xdevice.contract import Event, Stream, Tensor, Tree
from xdevice.device import Device
from xdevice.errors import ArgumentTypeError, XDeviceError, shortened
from xdevice.framework.adapters import Backend
from xdevice.hardware.devices import as_device, is_device, require
from xdevice.hardware.virtual import is_virtual, stream_of
from xdevice.integers import whole_number
from xdevice.parallel.batches import Shards, shards
from xdevice.parallel.interrupts import is_raised_by_handler
from xdevice.parallel.replicas import checked_devices
from xdevice.parallel.snapshots import own_data, snapshot
from xdevice.parallel.vectors import Pack, moved, packs_of
from xdevice.tensors.moving import to_device
from xdevice.tensors.placement import devices_of
from xdevice.tensors.trees.leaves import Leaf, known_leaf
from xdevice.tensors.trees.tree import FlatTree
from xdevice.typing import DeviceLike

__all__ = ["prefetch"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_HOST = Device("cpu", 0)
# Tensors of at most _PACKED_SIZE bytes are packed into one vector if there are
# _PACKED_NUMBER of a dtype. Then it is faster, by benchmarks/transfers.py.
_PACKED_SIZE = 2**14
_PACKED_NUMBER = 16


class Placed(NamedTuple):
    """A batch on its device, or on its way there."""

    batch: Tree
    # whether any part was copied to the device; then the other parts are
    # copies, too
    has_travelled: bool
    pending_copies: Sequence[Event] = ()

    def arrived(self) -> Tree:
        """The batch, for this thread to compute with."""
        for event in self.pending_copies:
            event.wait()
        return self.batch


class Prefetched(Generic[T_co]):
    """The batches of an iterable, each placed.

    It can be iterated as often as the iterable, and has its length.
    """

    def __init__(self, batches: Iterable[Tree], place: Callable[[Tree], Placed], size: int) -> None:
        self._batches = batches
        self._place = place
        self._size = size

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # without a length, Python's own error

    def __iter__(self) -> Iterator[T_co]:
        source = iter(self._batches)
        # an error is raised in the place of its batch
        queue = deque[Placed | Exception]()
        ahead = 0  # how many batches the source runs ahead
        while True:
            while len(queue) <= ahead and _may_continue(queue):
                queue.append(self._next(source, ahead > 0))
                if getattr(queue[-1], "has_travelled", False):
                    ahead = self._size  # from now on
            batch = _take_first(queue)
            if not batch:
                return
            # no variable refers to the batch while the consumer has it
            yield batch.pop()

    def _next(self, source: Iterator[Tree], is_ahead: bool) -> Placed | Exception:
        """The source's next batch, or the error to raise in its place."""
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
        for event in last.pending_copies:
            event.synchronize()
    except Exception as error:
        if is_raised_by_handler(error):
            raise
        queue[-1] = error  # the copy has failed
        return False
    return True


def _take_first(queue: deque[Placed | Exception]) -> list[Tree]:
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
    batches: Iterable[Tree],
    device: list[Any] | tuple[Any, ...],
    size: int = 2,
    *,
    pin: bool = False,
) -> Prefetched[Shards]: ...
@overload
def prefetch(
    batches: Iterable[T], device: DeviceLike, size: int = 2, *, pin: bool = False
) -> Prefetched[T]: ...
def prefetch(
    batches: Iterable[Tree],
    device: Any,
    size: int = 2,
    *,
    pin: bool = False,
) -> Prefetched[Tree]:
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
        return Prefetched(batches, _Placer(as_device(device), bool(pin)), number)
    devices = checked_devices(device)
    placers = [_Placer(target, bool(pin)) for target in devices]
    return Prefetched(batches, partial(_split, devices, placers), number)


class _Placer:
    """A function that places batches on one device.

    It copies them in a stream of their own, if the framework has streams.
    """

    def __init__(self, device: Device, pin: bool) -> None:
        self._device = device
        self._pin = pin
        self._streams: dict[Backend, Stream | None] = {}  # made once, for every iteration

    def __call__(self, batch: Tree) -> Placed:
        if self._device.kind != "cpu":
            host_batch = _host_batch(batch)
            if host_batch is not None:
                return self._send(host_batch)
        moved_batch = to_device(batch, self._device)
        if moved_batch is batch:
            return Placed(batch, False)
        new_leaves = {id(leaf) for leaf in FlatTree(moved_batch).leaves}
        new_leaves -= {id(leaf) for leaf in FlatTree(batch).leaves}
        return Placed(snapshot(moved_batch, new_leaves), True)

    def _send(self, batch: "_HostBatch") -> Placed:
        owner = batch.owner
        device = self._device
        gpu_stream = self._stream(owner)
        bus_stream = stream_of(owner, device)
        streams = [stream for stream in (gpu_stream, bus_stream) if stream is not None]
        pin = None
        if gpu_stream is not None and self._pin:
            pin = gpu_stream.pinned
        packs = bus_stream is not None or not is_virtual(owner, device)
        with ExitStack() as stack:
            for stream in streams:
                stack.enter_context(stream)
            tensors = batch.tensors_on(device, packs, pin, non_blocking=gpu_stream is not None)
            pending_copies = [stream.record(list(tensors.values())) for stream in streams]
        return Placed(batch.with_tensors(tensors), True, pending_copies)

    def _stream(self, owner: Backend) -> Stream | None:
        if owner not in self._streams:
            require(owner, self._device)
            stream = None
            if owner.has("streams", "stream"):
                stream = owner.streams.stream(self._device)
            self._streams[owner] = stream
        return self._streams[owner]


class _HostBatch(NamedTuple):
    """A batch whose tensors are on the host and belong to one framework."""

    flat: FlatTree
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
            if pin is None:
                return tensor
            return pin(tensor)

        if packs:
            for pack in self._packs():
                vector = moved(pinned(pack.packed()), owner, device)
                unpacked = pack.unpacked(vector)
                new_tensors.update(zip(map(id, pack.tensors), unpacked, strict=True))
        for key, tensor in self.tensors.items():
            if key not in new_tensors:
                new_tensors[key] = moved(pinned(tensor), owner, device, non_blocking)
        return new_tensors

    def _packs(self) -> Iterator[Pack]:
        """The vectors that are worth making of small tensors."""
        if not self.owner.has("collectives", "is_packable"):
            return
        is_packable = self.owner.collectives.is_packable
        small_tensors = [
            tensor for tensor in self.tensors.values() if is_packable(tensor, _PACKED_SIZE)
        ]
        if len(small_tensors) < _PACKED_NUMBER:
            return
        for pack in packs_of(small_tensors):
            if len(pack.tensors) >= _PACKED_NUMBER:
                yield pack

    def with_tensors(self, tensors: dict[int, Tensor]) -> Tree:
        """The batch with these tensors in place of its own.

        Its source cannot write to any part of it.
        """

        def new_leaf(leaf: Leaf) -> Leaf:
            if id(leaf) in tensors:
                return tensors[id(leaf)]
            return own_data(leaf)

        return self.flat.map(new_leaf, afresh=True)


def _host_batch(batch: Tree) -> _HostBatch | None:
    """The batch, if all tensors are on the host and of one framework."""
    tensors: dict[int, Tensor] = {}
    owners: set[Backend] = set()
    try:
        flat = FlatTree(batch)
        for leaf in flat.leaves:
            known = known_leaf(leaf)
            if known is None:
                continue
            if known.device_of is None or known.backend is None:
                return None
            if known.device_of(leaf) is not _HOST:
                return None
            tensors[id(leaf)] = leaf
            owners.add(known.backend)
    except XDeviceError:
        return None  # `to_device` raises it, with the path
    if len(owners) != 1:
        return None
    return _HostBatch(flat, owners.pop(), tensors)


def _split(devices: Sequence[Device], placers: Sequence[_Placer], batch: Tree) -> Placed:
    """The parts of the batch, each on the way to its device.

    A batch on the host is split there.
    """
    sources = devices_of(batch)
    split_on = [_HOST] * len(devices) if sources == {_HOST} else devices
    parts, sizes = shards(batch, split_on, non_blocking=False)
    placed = [placer(part) for placer, part in zip(placers, parts, strict=True)]
    has_travelled = not sources.issuperset(devices)
    if has_travelled:
        for i, (part, device) in enumerate(zip(placed, devices, strict=True)):
            if not part.has_travelled:
                copied = snapshot(part.batch, copies_tensors=device in sources)
                placed[i] = Placed(copied, False)
    pending_copies = [event for part in placed for event in part.pending_copies]
    batches = Shards([part.batch for part in placed], devices, sizes)
    return Placed(batches, has_travelled, pending_copies)
