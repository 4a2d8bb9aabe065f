"""Joining the processes of a job, and leaving them."""

from dataclasses import replace

from xdevice._version import __version__
from xdevice.contract import Engine
from xdevice.distributed.group import Group, abort, enter, here, is_initialized, joining, leave
from xdevice.distributed.membership import Membership
from xdevice.distributed.options import InitOptions, check_reach
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.distributed.rendezvous.ports import check_ports
from xdevice.errors import DistributedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend

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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            shutdown()
        else:
            abort(error)


def _init(options: InitOptions) -> None:
    if is_initialized():
        raise DistributedError("init() was called twice; shutdown() leaves the first group")
    info = here.info = options.process_info()
    name, seconds, start = options.engine_name(), options.seconds(), options.start_seconds()
    info = replace(info, trusts_network=options.trusts_network())
    owner = backend()
    if info.world_size == 1:
        here.group = Group()
        return
    engine = _engine(owner, name, info.world_size)
    check_reach(info, "MPI" if name == "mpi" else f"the engine of {owner}")
    if name == "native" and info not in _joined:
        check_ports(info.rank, info.world_size, info.port)
        _joined.add(info)
    kind = f"{name}, with a trusted network" if info.trusts_network else name  # on which all must agree
    agreed = {"backend": str(owner), "engine": kind, "version": __version__, "timeout": seconds}
    with joining(info):
        membership = Membership(info, start, agreed)
    enter(Group(engine, membership, owner if name == "native" else None))
    try:
        membership.work("the start of the engine", lambda: engine.start(membership.job, max(seconds, start)))
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
    group, membership = here.group, here.membership
    if membership is not None and membership.told:
        abort(DistributedError("the job has failed"))  # which the caller has been told
        return
    try:
        if group is not None and membership is not None and group.engine is not None:
            with group.one_at_a_time("shutdown"):
                membership.enter(Fingerprint("shutdown()"))
                membership.work("the end of the engine", group.engine.stop)
                membership.enter(Fingerprint("shutdown"))  # after which no process expects another
    except BaseException as error:
        abort(error)
        raise
    leave()


def _engine(owner: Backend, name: str, world_size: int) -> Engine:
    if name == "mpi":
        from xdevice.distributed import mpi

        return mpi.Engine(owner, world_size)
    _ = owner.engine.start  # NotSupportedError before the processes meet
    return owner.engine
