"""The group that this process belongs to: joined once, left once."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from xdevice._version import __version__
from xdevice.contract import Job
from xdevice.distributed import ending
from xdevice.distributed.entry import Entry
from xdevice.distributed.given import seat_given
from xdevice.distributed.member import Membership
from xdevice.distributed.options import check_reach, engine_name, seconds_of, trusts_network
from xdevice.distributed.ports import check_ports
from xdevice.distributed.seat import NO_LAUNCHER, seat, take
from xdevice.errors import DistributedError
from xdevice.framework.choosing import backend

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import TypeVar

    from xdevice.contract import Engine
    from xdevice.distributed.seat import Seat
    from xdevice.framework.adapters import Backend

    T = TypeVar("T")


class Group:
    """What exists between `init` and `shutdown`. A job of one process has no membership and no engine."""

    def __init__(
        self, owner: Backend, engine: Engine | None, membership: Membership | None, bound: bool = False
    ) -> None:
        self.owner, self.engine, self.membership = owner, engine, membership
        self.bound = bound  # to one framework's tensors
        self.job = membership.job if membership is not None else Job(0, 1, 0, ("127.0.0.1",), (0,), 0)
        self._thread, self._lock = threading.get_ident(), threading.RLock()

    @contextmanager
    def one_at_a_time(self, name: str) -> Generator[None, None, None]:
        """One collective at a time, from one thread: two threads' would come in another order in each process."""
        if self.membership is not None and threading.get_ident() != self._thread:
            raise DistributedError(f"{name} comes from another thread than init(); call collectives from that one")
        with self._lock:
            yield


_group: Group | None = None
_seats: set[Seat] = set()  # that this process has had: engines may keep the ports for the next group


def init(  # noqa: PLR0913  (four of them are one thing, the seat)
    timeout: float | None = None,
    *,
    start: float | None = None,
    engine: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    address: str | None = None,
    local_rank: int | None = None,
    token: str | None = None,
    trust_network: bool | None = None,
) -> None:
    """Join the other processes of the job, which ``xdevice launch`` or another launcher has started.

    Returns when all have joined and the engine runs. Without a launcher it starts nothing. Call it before the
    framework makes its first tensor: some engines can only be started then.

    Parameters
    ----------
    timeout
        Seconds to wait for the others, here and in every collective; ``XDEVICE_TIMEOUT``, else 120.
    start
        Seconds to wait for the others here, if not ``timeout``.
    engine
        ``"native"``, the chosen framework's own, or ``"mpi"``, which works on the CPU under all;
        ``XDEVICE_ENGINE``, else ``"native"``.
    rank, world_size, address
        This process's place, where no launcher tells it, as in a Dask worker or a Ray actor: its number from 0, how
        many processes there are, and where they meet, as in ``"10.0.0.1:29400"``: rank 0's host, and the first of
        ``3 + 2 * world_size`` ports. All three or none.
    local_rank
        This process's number on its host, from 0. On one host it is the rank, if not given.
    token
        The job's secret, the same for all processes; ``XDEVICE_TOKEN``, else on one host a file that only this user
        can read.
    trust_network
        Whether the engine may listen where any process can connect to it: on several hosts it has to; on one host,
        an engine that otherwise uses shared memory then does. ``XDEVICE_TRUST_NETWORK``, else False.

    Raises
    ------
    DistributedTimeoutError
        Not all processes came in time; the missing ranks are named.
    DistributedError
        Two processes have the same rank, world sizes differ, a port is taken, the engine does not start, the job
        spans hosts without ``trust_network``, or this process is in a group already.
    NotSupportedError
        The framework has no engine.
    ArgumentError
        The engine does not exist, part of the seat is missing, or the seat contradicts the launcher's variables, or
        those each other.

    Examples
    --------
    >>> import xdevice
    >>> from xdevice import distributed
    >>> xdevice.use("numpy")
    >>> distributed.init()
    >>> distributed.rank(), distributed.world_size()
    (0, 1)
    >>> distributed.shutdown()
    """
    global _group
    if _group is not None:
        raise DistributedError("init() was called twice; shutdown() leaves the first group")
    place = {"rank": rank, "world_size": world_size, "address": address, "local_rank": local_rank, "token": token}
    take(seat_given(place))
    here, trusts = seat(), trusts_network(trust_network)
    name, seconds = engine_name(engine), seconds_of(timeout)
    at_first = seconds if start is None else seconds_of(start)
    if here.world_size == 1:
        _group = Group(backend(), None, None)
        return
    owner = backend()
    running = _engine(owner, name)
    check_reach(here, trusts, "MPI" if name == "mpi" else f"the engine of {owner}")
    if name == "native" and here not in _seats:
        check_ports(here.rank, here.world_size, here.port)
        _seats.add(here)
    kind = f"{name}, with a trusted network" if trusts else name  # on which all must agree
    words = {"backend": str(owner), "engine": kind, "version": __version__, "timeout": seconds}
    with ending.minded():
        membership = Membership(replace(here, trusts_network=trusts), at_first, words)
    _group = Group(owner, running, membership, name == "native")
    ending.mind(membership, _forget)
    try:
        work(_group, "the start of the engine", lambda: running.start(membership.job, max(seconds, at_first)))
        membership.enter(Entry("the first meeting"))
        membership.wait_at_most(seconds)
    except BaseException as error:
        break_off(error)
        raise


def shutdown() -> None:
    """Leave the group, together with all other processes. Does nothing without a group.

    Raises
    ------
    DistributedError
        Another process has failed, or does not shut down.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.shutdown()
    >>> distributed.is_initialized()
    False
    """
    group = _group
    if group is None:
        return
    if group.membership is not None and group.membership.told:
        break_off(DistributedError("the job has failed"))  # which the caller has been told
        return
    try:
        if group.membership is not None and group.engine is not None:
            with group.one_at_a_time("shutdown"):
                group.membership.enter(Entry("shutdown()"))
                work(group, "the end of the engine", group.engine.stop)
                group.membership.enter(Entry("shutdown"))  # after which no process is missed any more
    except BaseException as error:
        break_off(error)
        raise
    _leave()


def is_initialized() -> bool:
    """Whether this process is between `init` and `shutdown`.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.is_initialized()
    False
    """
    return _group is not None


def rank() -> int:
    """This process's number in the job, from 0; known before `init` too, and 0 without a launcher.

    Raises
    ------
    ArgumentError
        The launcher's variables contradict each other, or are incomplete; likewise for `local_rank` and `world_size`.
    DistributedError
        The launcher's variables contradict each other, or are incomplete; likewise for `local_rank` and `world_size`.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.rank()
    0
    """
    return _group.job.rank if _group is not None else seat().rank


def local_rank() -> int:
    """This process's number on its host, from 0: the number of its GPU, for example.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.local_rank()
    0
    """
    return _group.job.local_rank if _group is not None else seat().local_rank


def world_size() -> int:
    """How many processes the job has; 1 without a launcher.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.world_size()
    1
    """
    return _group.job.world_size if _group is not None else seat().world_size


def current() -> Group:
    """The group that this process is in; without a launcher, a group of this process alone."""
    if _group is not None:
        return _group
    if seat() is NO_LAUNCHER or seat().world_size == 1:
        return Group(backend(), None, None)
    raise DistributedError("this process has not joined a group; call xdevice.distributed.init() first")


def on_rank_0(name: str, act: Callable[[], None]) -> None:
    """Let rank 0 act while the others wait; without a group this process acts itself.

    If rank 0 raises, the job has failed, and every process raises.
    """
    group = _group
    if group is None or group.membership is None:
        act()
        return
    membership = group.membership
    with group.one_at_a_time(name):
        try:
            if membership.seat.rank == 0:
                act()
        except BaseException as error:
            membership.raised(error)  # the others wait for it
            raise
        membership.enter(Entry(name))


def work(group: Group, what: str, engine: Callable[[], T]) -> T:
    """Let the engine work, while other threads watch the other processes and the clock."""
    membership = group.membership
    if membership is None:
        return engine()
    membership.watch_over(what)
    try:
        result = engine()
    except Exception as error:
        raise membership.explained(error, what) from error
    except BaseException as error:
        membership.interrupted(error)
        raise
    membership.came_back()
    return result


def _engine(owner: Backend, name: str) -> Engine:
    if name == "mpi":
        from xdevice.distributed import mpi

        return mpi.Engine(owner)
    _ = owner.engine.start  # NotSupportedError before the processes meet
    return owner.engine


def break_off(error: BaseException) -> None:
    """Tell the other processes of the error, and leave the group without them."""
    ending.break_off(error)
    _leave()


def _forget() -> None:
    """In a forked child: leave the group, which the parent stays in."""
    global _group
    group, _group = _group, None
    if group is not None and group.membership is not None:
        group.membership.forget()


def _leave() -> None:
    global _group
    group, _group = _group, None
    if group is not None and group.membership is not None:
        ending.forget()
        group.membership.close()
