"""Joining the processes of a job, and leaving them."""

import os
from dataclasses import replace

from xdevice._version import __version__
from xdevice.contract import Engine
from xdevice.distributed.group import Group, abort, enter, is_initialized, joining, leave, state
from xdevice.distributed.init_options import InitOptions
from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import ProcessInfo, check_ipv4
from xdevice.distributed.rendezvous.messages import LAST_COLLECTIVE, Fingerprint
from xdevice.distributed.rendezvous.ports import check_ports
from xdevice.errors import DistributedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.kit.loopback import HOW_TO_TRUST, is_loopback

# Processes that this one has been: an engine may keep the ports of a job for
# its next group.
_joined: set[ProcessInfo] = set()


def init(  # noqa: PLR0913  (five of them say which process this is)
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
    """Join the other processes of a job, which a launcher has started.

    The launcher is ``xdevice launch`` or another one.

    Returns when all processes have joined and the engine runs. Without a
    launcher it starts nothing. Call it before the framework makes its first
    tensor: some engines can only be started then.

    Parameters
    ----------
    timeout
        Seconds to wait for the others, here and in every collective;
        ``XDEVICE_TIMEOUT``, else 120.
    start
        Seconds to wait for the others here; ``timeout`` if not given.
    engine
        ``"native"``, the chosen framework's own, or ``"mpi"``, which works on
        the CPU under all; ``XDEVICE_ENGINE``, else ``"native"``.
    rank, world_size, address
        Which process this is, if no launcher tells it, for example in a Dask
        worker or a Ray actor. ``rank`` is its number from 0, ``world_size``
        the number of processes, and ``address`` where they meet, as in
        ``"10.0.0.1:29400"``: rank 0's host, and the first of ``3 + 2 *
        world_size`` ports. Give all three or none.
    local_rank
        This process's number on its host, from 0. On one host it is the rank,
        if not given.
    token
        The job's secret, the same for all processes; ``XDEVICE_TOKEN``, else
        on one host a file that only this user can read.
    trust_network
        Whether the engine may listen where any process can connect to it. A
        job of several hosts needs it. On one host, engines that use shared
        memory otherwise listen if it is True; ``XDEVICE_TRUST_NETWORK``, else
        False.

    Raises
    ------
    DistributedTimeoutError
        Not all processes came in time; the missing ranks are named.
    DistributedError
        Two processes have the same rank, world sizes differ, a port is taken,
        the engine does not start, the job spans hosts without
        ``trust_network``, or this process is in a group already.
    NotSupportedError
        The framework has no engine.
    ArgumentError
        The engine does not exist, ``rank``, ``world_size`` or ``address`` is
        missing, or contradicts the launcher's variables, or these contradict
        each other.

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
    _init(
        InitOptions(
            timeout,
            start=start,
            engine=engine,
            rank=rank,
            world_size=world_size,
            address=address,
            local_rank=local_rank,
            token=token,
            trust_network=trust_network,
        )
    )


class process_group(InitOptions):  # noqa: N801  (reads as what it opens: `with process_group():`)
    """A ``with`` block between `init` and `shutdown`.

    Parameters and errors are those of the two functions.

    If the block raises, the other processes raise `DistributedError` with this
    one's rank.

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
    info = options.process_info()
    state.info = info
    engine_name = options.engine_name()
    timeout = options.seconds()
    start_timeout = options.seconds(options.start)
    info = replace(info, trusts_network=options.trusts_network())
    owner = backend()
    if info.world_size == 1:
        state.group = Group()
        return
    check_ipv4(info.host, os.environ.get("XDEVICE_HOST", ""))
    engine = _engine(engine_name, owner, info)
    engine_description = engine_name
    if info.trusts_network:
        engine_description += ", with a trusted network"
    # All processes must agree on these.
    agreed = {
        "backend": str(owner),
        "engine": engine_description,
        "version": __version__,
        "timeout": timeout,
    }
    with joining(info):
        membership = Membership(info, start_timeout, agreed)
    enter(Group(engine, membership, owner if engine_name == "native" else None))
    try:
        patience = max(timeout, start_timeout)
        membership.work("the start of the engine", lambda: engine.start(membership.job, patience))
        membership.enter(Fingerprint("the first barrier"))
        membership.set_timeout(timeout)
    except BaseException as error:
        abort(error)
        raise


def _engine(name: str, owner: Backend, info: ProcessInfo) -> Engine:
    """The requested engine, before the processes meet.

    Errors if it cannot be started.
    """
    if name == "mpi":
        from xdevice.distributed import mpi

        check_reach(info, "MPI")
        return mpi.Engine(owner, info.world_size)
    engine = owner.engine
    _ = engine.start  # NotSupportedError if the framework has none
    check_reach(info, f"the engine of {owner}")
    if info not in _joined:
        check_ports(info.rank, info.world_size, info.port)
        _joined.add(info)
    return engine


def shutdown() -> None:
    """Leave the group, together with all other processes.

    Does nothing without a group.

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
    group = state.group
    membership = state.membership
    if group is None or group.engine is None or membership is None:
        leave()
        return
    if membership.failure_was_raised:  # the caller knows of it
        abort(DistributedError("the job has failed"))
        return
    try:
        with group.one_at_a_time("shutdown"):
            membership.enter(Fingerprint("shutdown()"))
            membership.work("the end of the engine", group.engine.stop)
            # No process expects another collective after this one.
            membership.enter(Fingerprint(LAST_COLLECTIVE))
    except BaseException as error:
        abort(error)
        raise
    leave()


def check_reach(info: ProcessInfo, engine: str) -> None:
    """Raise if an engine would listen beyond loopback without permission."""
    if info.world_size == 1 or info.trusts_network:
        return
    for host in (info.host, os.environ.get("XDEVICE_HOST") or info.host):
        if not is_loopback(host):
            raise DistributedError(
                f"{engine} lets any process connect that reaches {host}; "
                f"on a network that you trust, {HOW_TO_TRUST}"
            )
