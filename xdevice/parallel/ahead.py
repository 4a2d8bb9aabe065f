"""Batches that a thread places while the consumer computes with earlier ones: the work behind `prefetch`.

The thread starts with the first batch that travels; where nothing does, there is none. Where the CPU makes the copies,
a thread costs more than it hides unless a batch takes long: the first are made in the consumer's thread, and another
now and then. The thread knows nothing of the consumer, so that a forgotten iterator is collected, and stops it.
"""

import atexit
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Semaphore, Thread, current_thread
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

from xdevice.contract import Mark

T = TypeVar("T")

_PATIENCE = 1.0
"""Seconds that the consumer waits, when it leaves early, for a source that is making a batch."""

_LONG = 2e-3
"""Seconds for a batch from which a thread pays where the CPU copies: several times what handing one over costs."""

_ENOUGH = 3
"""Batches in a row that take so long: one may have waited for another program."""

_FEW = 8
"""Batches after which the time is measured again, and twice as many each time."""


class Placed(NamedTuple):
    """A batch where it is to be."""

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


class Ahead(Generic[T]):
    """The batches of an iterable, placed; as many times, and with the same length, as the iterable has."""

    def __init__(self, batches: Iterable[Any], place: Callable[[Any], Placed], size: int) -> None:
        self._batches, self._place, self._size = batches, place, size

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # raises its own error where it has no length

    def __iter__(self) -> Iterator[T]:
        return _iterated(self._batches, self._place, self._size)


def _iterated(batches: Iterable[Any], place: Callable[[Any], Placed], size: int) -> Iterator[Any]:
    placed: Placed | None
    context = copy_context()  # the source and the copies always run in this one, in whichever thread
    source, turns, long = context.run(iter, batches), _FEW, 0
    try:
        while True:
            since = perf_counter()
            placed = context.run(_next, source, place)
            long = long + 1 if perf_counter() - since > _LONG else 0
            if not placed.has_travelled or (placed.by_cpu and long < _ENOUGH):
                batch, placed = [placed.batch], None
                yield batch.pop()  # nothing here keeps what the consumer lets go of
                continue
            from xdevice.tensors.transfers.watching import stand_for  # programs in which nothing travels never need it

            context.run(stand_for, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]  # who iterates
            worker = _Worker(source, place, placed.marks(), size, context)
            worker.start(turns if placed.by_cpu else None)
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


def _next(source: Iterator[Any], place: Callable[[Any], Placed]) -> Placed:
    return place(next(source))


class _Worker:
    """A thread that places at most ``size`` batches more than were taken."""

    def __init__(
        self, source: Iterator[Any], place: Callable[[Any], Placed], under_way: list[Mark], size: int, context: Context
    ) -> None:
        self._under_way = under_way  # of the last batch, which is not kept
        self._left: int | None = None  # batches to make; None: all
        self._free, self._ready = Semaphore(size), SimpleQueue[Placed | BaseException | None]()
        self._is_stopped = False
        work = (self._work, source, place)
        self._thread = Thread(target=context.run, args=work, name="xdevice.prefetch", daemon=True)
        _running.add(self)

    def start(self, most: int | None) -> None:
        """Let the thread make at most so many batches."""
        self._left = most
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

    def _work(self, source: Iterator[Any], place: Callable[[Any], Placed]) -> None:
        try:
            while self._may_go_on():
                self._one(_next(source, place))
            self._ready.put(None)
        except BaseException as error:
            self._ready.put(error)

    def _may_go_on(self) -> bool:
        for mark in self._under_way:
            mark.wait()
        self._free.acquire()
        if self._left is not None:
            self._left -= 1
        return not self._is_stopped and self._left != -1

    def _one(self, placed: Placed) -> None:
        self._under_way = placed.marks()
        self._ready.put(placed)


_running: WeakSet[_Worker] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Before Python ends its threads wherever they are, which frameworks may not survive."""
    for worker in list(_running):
        worker.stop()
