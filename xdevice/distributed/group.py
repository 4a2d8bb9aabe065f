"""The group that this process belongs to: joined once, left once."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xdevice._version import __version__
from xdevice.contract import Job
from xdevice.distributed import ending
from xdevice.distributed.member import Membership
from xdevice.distributed.ports import check_ports
from xdevice.distributed.seat import ALONE, seat
from xdevice.errors import ArgumentError, ArgumentTypeError, DistributedError
from xdevice.framework.choosing import backend

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType
    from typing import TypeVar

    from xdevice.contract import Engine
    from xdevice.distributed.seat import Seat
    from xdevice.framework.adapters import Backend

    T = TypeVar("T")

TIMEOUT = 120.0
"""Seconds to wait for the others, if nobody says otherwise."""

ENGINES = ("native", "mpi")


class Group:
    """What there is between `init` and `shutdown`. Alone, it has no members and no engine."""

    def __init__(self, owner: Backend, engine: Engine | None, members: Membership | None, bound: bool = False) -> None:
        self.owner, self.engine, self.members = owner, engine, members
        self.bound = bound  # to one framework's tensors
        self.job = members.job if members is not None else Job(0, 1, 0, ("127.0.0.1",), (0,), 0)
        self._thread, self._lock = threading.get_ident(), threading.RLock()

    @contextmanager
    def alone(self, name: str) -> Generator[None, None, None]:
        """One collective at a time, from one thread: of two threads' each process would have an order of its own."""
        if self.members is not None and threading.get_ident() != self._thread:
            raise DistributedError(f"{name} comes from another thread than init(); call collectives from that one")
        with self._lock:
            yield


_group: Group | None = None
_seats: set[Seat] = set()  # that this process has had: engines may keep their ports for the next time


def init(timeout: float | None = None, *, start: float | None = None, engine: str | None = None) -> None:
    """Join the other processes of the job, which ``xdevice launch`` or another launcher has started.

    Comes back when all are there and the engine runs. Alone, without a launcher, it starts nothing. Call it
    before the framework makes its first tensor: some engines can only be started then.

    Parameters
    ----------
    timeout
        Seconds to wait for the others, here and in every collective; ``XDEVICE_TIMEOUT``, else 120.
    start
        Seconds to wait for the others here, if that is to be another number.
    engine
        ``"native"``, the chosen framework's own, or ``"mpi"``, which works on the CPU under all;
        ``XDEVICE_ENGINE``, else ``"native"``.

    >>>     >>> from xdevice import distributed
    >>> xdevice.use("numpy")
    >>> distributed.init()
    >>> distributed.rank(), distributed.world_size()
    (0, 1)
    >>> distributed.shutdown()

    Raises
    ------
    DistributedTimeoutError
        Not all processes came in time; their ranks are named.
    DistributedError
        Two processes of one rank, another world size elsewhere, a taken port, or an engine that does not start;
        also if this process is in a group already.
    NotSupportedError
        The framework has no engine.
    ArgumentError
        No such engine, or the environment contradicts itself.
    """
    global _group
    if _group is not None:
        raise DistributedError("init() comes twice; shutdown() leaves the first group")
    here = seat()
    name, seconds = _engine_name(engine), _seconds(timeout)
    at_first = seconds if start is None else _seconds(start)
    if here.world_size == 1:
        _group = Group(backend(), None, None)
        return
    owner = backend()
    running = _engine(owner, name)
    if name == "native" and here not in _seats:
        check_ports(here.rank, here.world_size, here.port)
        _seats.add(here)
    words = {"backend": str(owner), "engine": name, "version": __version__, "timeout": seconds}
    with ending.minded():
        members = Membership(here, at_first, words)
    _group = Group(owner, running, members, name == "native")
    ending.mind(members, _forget)
    try:
        work(_group, "the start of the engine", lambda: running.start(members.job, max(seconds, at_first)))
        members.enter("the first meeting")
        members.wait_at_most(seconds)
    except BaseException as error:
        _break_off(error)
        raise


def shutdown() -> None:
    """Leave the group, when every process of the job does so. Does nothing where there is none.

    Raises
    ------
    DistributedError
        Another process has failed, or does not shut down.
    """
    group = _group
    if group is None:
        return
    if group.members is not None and group.members.told:
        _break_off(DistributedError("the job has failed"))  # as its caller knows
        return
    try:
        if group.members is not None and group.engine is not None:
            with group.alone("shutdown"):
                group.members.enter("shutdown")
                work(group, "the end of the engine", group.engine.stop)
    except BaseException as error:
        _break_off(error)
        raise
    _leave()


class process_group:  # noqa: N801  (reads as what it opens: `with process_group():`)
    """A ``with`` block between `init` and `shutdown`; parameters and errors are theirs.

    If the block raises, the other processes are told, and raise `DistributedError` with this one's rank.

    >>>     >>> from xdevice import distributed
    >>> with xdevice.using("numpy"), distributed.process_group():
    ...     distributed.world_size()
    1
    """

    def __init__(self, timeout: float | None = None, *, start: float | None = None, engine: str | None = None) -> None:
        self._timeout, self._start, self._engine = timeout, start, engine

    def __enter__(self) -> None:
        init(self._timeout, start=self._start, engine=self._engine)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            shutdown()
        else:
            _break_off(error)


def is_initialized() -> bool:
    """Whether this process is between `init` and `shutdown`.

    >>> from xdevice import distributed
    >>> distributed.is_initialized()
    False
    """
    return _group is not None


def rank() -> int:
    """This process's number in the job, from 0; known before `init` too, and 0 without a launcher.

    >>> from xdevice import distributed
    >>> distributed.rank()
    0

    Raises
    ------
    ArgumentError, DistributedError
        The environment contradicts itself; likewise for `local_rank` and `world_size`.
    """
    return _group.job.rank if _group is not None else seat().rank


def local_rank() -> int:
    """This process's number on its host, from 0: that of its GPU, say.

    >>> from xdevice import distributed
    >>> distributed.local_rank()
    0
    """
    return _group.job.local_rank if _group is not None else seat().local_rank


def world_size() -> int:
    """How many processes the job has; 1 without a launcher.

    >>> from xdevice import distributed
    >>> distributed.world_size()
    1
    """
    return _group.job.world_size if _group is not None else seat().world_size


def current() -> Group:
    """The group that this process is in; one of its own where there is no launcher."""
    if _group is not None:
        return _group
    if seat() is ALONE or seat().world_size == 1:
        return Group(backend(), None, None)
    raise DistributedError("this process is in no group yet; call xdevice.distributed.init() first")


def on_rank_0(name: str, act: Callable[[], None]) -> None:
    """Let rank 0 act while the others wait until it has; without a group this process acts itself.

    If rank 0 raises, the job has failed, and every process raises.
    """
    group = _group
    if group is None or group.members is None:
        act()
        return
    members = group.members
    with group.alone(name):
        try:
            if members.seat.rank == 0:
                act()
        except BaseException as error:
            members.raised(error)  # the others wait for it
            raise
        members.enter(name)


def work(group: Group, what: str, engine: Callable[[], T]) -> T:
    """Let the engine work, under the watch of the other processes."""
    members = group.members
    if members is None:
        return engine()
    members.watch_over(what)
    try:
        result = engine()
    except Exception as error:
        raise members.explained(error, what) from error
    except BaseException as error:
        members.interrupted(error)
        raise
    members.came_back()
    return result


def _engine(owner: Backend, name: str) -> Engine:
    if name == "mpi":
        from xdevice.distributed import mpi

        return mpi.Engine(owner)
    _ = owner.engine.start  # NotSupportedError, before anybody is met
    return owner.engine


def _engine_name(engine: str | None) -> str:
    name = engine or os.environ.get("XDEVICE_ENGINE") or "native"
    if name not in ENGINES:
        raise ArgumentError(f"no engine {name!r}; there are 'native', the framework's own, and 'mpi'")
    return name


def _seconds(timeout: float | None) -> float:
    given: Any = os.environ.get("XDEVICE_TIMEOUT") or TIMEOUT if timeout is None else timeout
    try:
        seconds = float(given) if not isinstance(given, bool) else 0.0
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"timeout={given!r} is no number of seconds") from None
    if not 0 < seconds < 1e7:
        raise ArgumentError(f"timeout={given!r} is no number of seconds above 0")
    return seconds


def _break_off(error: BaseException) -> None:
    """Tell the others of the error, and leave without them."""
    ending.break_off(error)
    _leave()


def _forget() -> None:
    """In a forked child: it is in no group, and the parent's goes on."""
    global _group
    group, _group = _group, None
    if group is not None and group.members is not None:
        group.members.forget()


def _leave() -> None:
    global _group
    group, _group = _group, None
    if group is not None and group.members is not None:
        ending.forget()
        group.members.close()
