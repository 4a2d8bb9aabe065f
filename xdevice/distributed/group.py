"""The group that this process belongs to: joined once, left once."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from xdevice._version import __version__
from xdevice.contract import Job
from xdevice.distributed.failures import at_exit
from xdevice.distributed.launchers import process_info_in
from xdevice.distributed.membership import Membership
from xdevice.distributed.options import InitOptions, check_reach
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.distributed.rendezvous.ports import check_ports
from xdevice.errors import DistributedError
from xdevice.framework.choosing import backend

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import TypeVar

    from xdevice.contract import Engine
    from xdevice.framework.adapters import Backend

    T = TypeVar("T")


class Group:
    """What exists between `init` and `shutdown`. A job of one process has no membership and no engine."""

    def __init__(
        self, engine: Engine | None = None, membership: Membership | None = None, owner: Backend | None = None
    ) -> None:
        self.engine, self.membership = engine, membership
        self.owner = owner  # whose tensors the engine takes; None for those of any framework
        self.job = membership.job if membership is not None else Job(0, 1, 0, ("127.0.0.1",), (0,), 0)
        self._thread, self._lock = threading.get_ident(), threading.RLock()

    def one_at_a_time(self, name: str) -> AbstractContextManager[object]:
        """One collective at a time, from one thread: two threads' would come in another order in each process."""
        if self.membership is None:
            return nullcontext()
        if threading.get_ident() != self._thread:
            raise DistributedError(f"{name} comes from another thread than init(); call collectives from that one")
        return self._lock


_ALONE = Group()
_group: Group | None = None
_info: ProcessInfo | None = None  # which process this is, once it is known
_joined: set[ProcessInfo] = set()  # with which this process has joined: engines may keep the ports for the next group


def init(  # noqa: PLR0913  (five of them are one thing, which process this is)
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
        Which process this is, where no launcher tells it, as in a Dask worker or a Ray actor: its number from 0, how
        many processes there are, and where they meet, as in ``"10.0.0.1:29400"``: rank 0's host, and the first of
        ``3 + 2 * world_size`` ports. Give all three or none.
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
        The engine does not exist, ``rank``, ``world_size`` or ``address`` is missing, or contradicts the launcher's
        variables, or these contradict each other.

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
    _init(InitOptions(**locals()))


class process_group(InitOptions):  # noqa: N801  (reads as what it opens: `with process_group():`)
    """A ``with`` block between `init` and `shutdown`; parameters and errors are theirs.

    If the block raises, the other processes raise `DistributedError` with this one's rank.

    Examples
    --------
    >>> import xdevice
    >>> from xdevice import distributed
    >>> with xdevice.using("numpy"), distributed.process_group():
    ...     distributed.world_size()
    1
    """

    def __enter__(self) -> None:
        _init(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            shutdown()
        else:
            abort(error)


def _init(options: InitOptions) -> None:
    global _group, _info
    if _group is not None:
        raise DistributedError("init() was called twice; shutdown() leaves the first group")
    _info = info = options.process_info()
    name, seconds, start = options.engine_name(), options.seconds(), options.start_seconds()
    info = replace(info, trusts_network=options.trusts_network())
    owner = backend()
    if info.world_size == 1:
        _group = Group()
        return
    engine = _engine(owner, name, info.world_size)
    check_reach(info, "MPI" if name == "mpi" else f"the engine of {owner}")
    if name == "native" and info not in _joined:
        check_ports(info.rank, info.world_size, info.port)
        _joined.add(info)
    kind = f"{name}, with a trusted network" if info.trusts_network else name  # on which all must agree
    agreed = {"backend": str(owner), "engine": kind, "version": __version__, "timeout": seconds}
    with at_exit.joining(info):
        membership = Membership(info, start, agreed)
    _group = Group(engine, membership, owner if name == "native" else None)
    at_exit.guard(membership)
    try:
        work(_group, "the start of the engine", lambda: engine.start(membership.job, max(seconds, start)))
        membership.enter(Fingerprint("the first barrier"))
        membership.wait_at_most(seconds)
    except BaseException as error:
        abort(error)
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
        abort(DistributedError("the job has failed"))  # which the caller has been told
        return
    try:
        if group.membership is not None and group.engine is not None:
            with group.one_at_a_time("shutdown"):
                group.membership.enter(Fingerprint("shutdown()"))
                work(group, "the end of the engine", group.engine.stop)
                group.membership.enter(Fingerprint("shutdown"))  # after which no process expects another
    except BaseException as error:
        abort(error)
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
    return _group.job.rank if _group is not None else _this_process().rank


def local_rank() -> int:
    """This process's number on its host, from 0: the number of its GPU, for example.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.local_rank()
    0
    """
    return _group.job.local_rank if _group is not None else _this_process().local_rank


def world_size() -> int:
    """How many processes the job has; 1 without a launcher.

    Examples
    --------
    >>> from xdevice import distributed
    >>> distributed.world_size()
    1
    """
    return _group.job.world_size if _group is not None else _this_process().world_size


def current() -> Group:
    """The group that this process is in; without a launcher, a group of this process alone."""
    if _group is not None:
        return _group
    if _this_process().world_size == 1:
        return _ALONE
    raise DistributedError("this process has not joined a group; call xdevice.distributed.init() first")


def _this_process() -> ProcessInfo:
    """Which process this is: as in the last `init`, else as the environment said when it was first asked for."""
    global _info
    if _info is None:
        _info = process_info_in(os.environ)
    return _info


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
            if membership.info.rank == 0:
                act()
        except BaseException as error:
            membership.raised(error)  # the others wait for it
            raise
        membership.enter(Fingerprint(name))


def work(group: Group, what: str, engine: Callable[[], T], extra: float = 0.0) -> T:
    """Let the engine work, while other threads watch the other processes and the clock; see `Work` for ``extra``."""
    membership = group.membership
    if membership is None:
        return engine()
    membership.engine_begins(what, extra)
    try:
        result = engine()
    except Exception as error:
        raise membership.explained(error, what) from error
    except BaseException as error:
        membership.interrupted(error)
        raise
    membership.engine_returned()
    return result


def _engine(owner: Backend, name: str, world_size: int) -> Engine:
    if name == "mpi":
        from xdevice.distributed import mpi

        return mpi.Engine(owner, world_size)
    _ = owner.engine.start  # NotSupportedError before the processes meet
    return owner.engine


def abort(error: BaseException) -> None:
    """Tell the other processes of the error, and leave the group without them."""
    at_exit.abort(error)
    _leave()


def _reset_in_child() -> None:
    """In a forked child: leave the group, which the parent stays in."""
    global _group, _info
    group, _group, _info = _group, None, None
    at_exit.reset_in_child()
    if group is not None and group.membership is not None:
        group.membership.close_descriptors()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


def _leave() -> None:
    global _group
    group, _group = _group, None
    if group is not None and group.membership is not None:
        at_exit.release()
        group.membership.close()
