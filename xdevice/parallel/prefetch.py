"""``prefetch``: the next batches travel while this one is computed with.

A thread places them. It starts with the first batch that travels; where nothing does, there is none. Where the CPU
makes the copies, a thread costs more than it hides unless a batch takes long: the first are made in the consumer's
thread, and another now and then. The thread knows nothing of the consumer, so that a forgotten iterator is collected,
and stops it.
"""

import atexit
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context, copy_context
from functools import partial
from math import inf
from queue import SimpleQueue
from threading import Semaphore, Thread, current_thread
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar, overload
from weakref import WeakSet

from xdevice.contract import Lane, Mark
from xdevice.device import Device, whole_number
from xdevice.errors import ArgumentTypeError, XDeviceError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.ownership import Ownership
from xdevice.hardware import bus as buses
from xdevice.hardware.devices import as_device, is_device, require
from xdevice.hardware.virtual import is_virtual
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
_PATIENCE = 1.0  # seconds that the consumer waits, when it leaves early, for a source that is making a batch
_LONG = 2e-3  # seconds for a batch from which a thread pays where the CPU copies: several times what a hand-over costs
_ENOUGH = 3  # batches in a row that take so long: one may have waited for another program
_FEW = 8  # batches after which the time is measured again, and twice as many each time
# bytes of a tensor, and how many of a dtype, from which one vector is quicker: by benchmarks/transfers.py
_SMALL, _MANY = 2**14, 16


class Placed(NamedTuple):
    batch: Any
    has_travelled: bool  # any of it
    under_way: Sequence[tuple[Mark, list[Any]]] = ()  # what is still on its way, with its tensors
    by_cpu: bool = False  # whether the CPU has copied it, and no GPU

    def arrived(self) -> Any:
        """The batch, for this thread to compute with."""
        for mark, tensors in self.under_way:
            mark.join(tensors)
        return self.batch

    def marks(self) -> list[Mark]:
        """What to wait for before the source may write into the batch's memory again."""
        return [mark for mark, _ in self.under_way]


class Prefetched(Generic[T_co]):
    """The batches of an iterable, placed; as many times, and with the same length, as the iterable has."""

    def __init__(self, batches: Iterable[Any], place: Callable[[Any], Placed], size: int) -> None:
        self._batches, self._place, self._size = batches, place, size

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # raises its own error where it has no length

    def __iter__(self) -> Iterator[T_co]:
        placed: Placed | None
        place, context = self._place, copy_context()  # the source and the copies always run in this one
        source, turns, long = context.run(iter, self._batches), _FEW, 0
        try:
            while True:
                since = perf_counter()
                placed = context.run(lambda: place(next(source)))
                long = long + 1 if perf_counter() - since > _LONG else 0
                if not placed.has_travelled or (placed.by_cpu and long < _ENOUGH):
                    batch, placed = [placed.batch], None
                    yield batch.pop()  # nothing here keeps what the consumer lets go of
                    continue
                from xdevice.tensors.transfers.watching import stand_for  # not where nothing travels

                context.run(stand_for, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]  # who iterates
                most = turns if placed.by_cpu else inf
                worker = _Worker(context, self._size, source, place, placed.marks(), most)
                turns, long = 2 * turns, 0
                try:
                    while placed is not None:
                        batch, placed = [placed.arrived()], None
                        yield batch.pop()
                        placed = worker.next()
                finally:
                    worker.stop()
        except StopIteration:
            return


class _Worker:
    """A thread that places at most ``size`` batches more than were taken."""

    def __init__(self, context: Context, size: int, *work: Any) -> None:
        self._free, self._ready = Semaphore(size), SimpleQueue[Placed | BaseException | None]()
        self._is_stopped = False
        work = (self._work, *work)
        self._thread = Thread(target=context.run, args=work, name="xdevice.prefetch", daemon=True)
        _running.add(self)
        self._thread.start()

    def next(self) -> Placed | None:
        """The next batch; ``None`` after as many as asked for. Raises what the source or the copy has raised."""
        found = self._ready.get()
        self._free.release()
        if not isinstance(found, BaseException):
            return found
        try:
            raise found
        finally:
            del found  # which its traceback would keep alive

    def stop(self) -> None:
        """Let the thread end, and wait a while for the batch that it is making."""
        self._is_stopped = True
        self._free.release()
        if current_thread() is not self._thread:  # which may be the one that collects the consumer's iterator
            self._thread.join(_PATIENCE)

    def _work(self, source: Iterator[Any], place: Callable[[Any], Placed], under_way: list[Mark], most: float) -> None:
        try:
            while True:
                for mark in under_way:
                    mark.wait()
                self._free.acquire()
                if self._is_stopped or not most:
                    break
                placed = place(next(source))
                under_way, most = placed.marks(), most - 1
                self._ready.put(placed)
                del placed  # nothing here keeps what the consumer lets go of
            self._ready.put(None)
        except BaseException as error:
            self._ready.put(error)


_running: WeakSet[_Worker] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Before Python ends its threads wherever they are, which frameworks may not survive."""
    for worker in list(_running):
        worker.stop()


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
        return Prefetched(batches, _Way(as_device(device), bool(pin)), number)
    devices = checked_devices(device)
    ways = [_Way(each, bool(pin)) for each in devices]
    return Prefetched(batches, partial(_split, devices, ways), number)


class _Way:
    """How batches get to one device: on a lane of their own, where the framework has one to a real GPU."""

    def __init__(self, device: Device, pin: bool) -> None:
        self._device, self._pin = device, pin
        self._lanes: dict[Backend, Lane | None] = {}  # made once, for every iteration

    def __call__(self, batch: Any) -> Placed:
        device = self._device
        owner = None if device.kind == "cpu" else _owner_on_host(batch)
        if owner is None:
            placed = to_device(batch, device)
            return Placed(placed, placed is not batch)
        if owner not in self._lanes:
            require(owner, device)
            can = not is_virtual(owner, device) and owner.open("lanes").has("lane")
            self._lanes[owner] = owner.lanes.lane(device) if can else None
        lane = self._lanes[owner]
        if lane is None:
            by_cpu = is_virtual(owner, device) and not buses.requested()  # and no bus takes time beside it
            placed = to_device(batch if by_cpu else _packed(batch, owner, device), device)
            return Placed(placed, placed is not batch, by_cpu=by_cpu)
        with lane:
            pin = lane.pinned if self._pin else None
            batch = _packed(batch, owner, device, pin)
            if pin is not None:
                batch = flatten(batch).map(lambda leaf: leaf if what_is(leaf) is None else pin(leaf))
            placed = to_device(batch, device, non_blocking=True)
            return Placed(placed, True, [(lane.mark(), _tensors(placed))])


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


def _packed(batch: Any, owner: Backend, device: Device, pin: Callable[[Any], Any] | None = None) -> Any:
    """The batch with its small tensors on the device, if they are many: those of a dtype travel as one vector."""
    if not owner.open("packing").has("is_packable"):
        return batch
    there: dict[int, Any] = {}
    for pack in packs_of([tensor for tensor in _tensors(batch) if owner.packing.is_packable(tensor, _SMALL)]):
        if len(pack.tensors) >= _MANY:
            vector = pack.packed() if pin is None else pin(pack.packed())
            there.update(zip(map(id, pack.tensors), pack.unpacked(moved(vector, owner, device)), strict=True))
    return flatten(batch).map(lambda leaf: there.get(id(leaf), leaf)) if there else batch


def _tensors(tree: Any) -> list[Any]:
    leaves = {id(leaf): leaf for leaf in flatten(tree).leaves}.values()
    return [leaf for leaf in leaves if what_is(leaf) is not None]
