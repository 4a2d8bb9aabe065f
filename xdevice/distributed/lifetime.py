"""Joining the processes of a job, and leaving them."""

import os
from dataclasses import replace

from xdevice._version import __version__
from xdevice.contract import HOW_TO_TRUST, Job
from xdevice.distributed.group import Group, abort, enter, is_initialized, joining, leave, state
from xdevice.distributed.init_options import InitOptions
from xdevice.distributed.launched import LaunchedMembership
from xdevice.distributed.launcher_variables import OUR_LAUNCHER, SOCKET
from xdevice.distributed.membership import Membership
from xdevice.distributed.messages import Fingerprint
from xdevice.distributed.unlaunched import UnlaunchedMembership
from xdevice.errors import DistributedError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend


def init(  # noqa: PLR0913  (four of them say which process this is)
    timeout: float | None = None,
    *,
    start: float | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    address: str | None = None,
    local_rank: int | None = None,
    trust_network: bool | None = None,
) -> None:
    """Join the other processes of a job, which a launcher has started.

    Under ``xdevice launch``, which starts processes on one host, its launcher
    finds out which process has failed, and the error names its rank. Under
    torchrun, mpirun, srun and others, also on several hosts, the processes
    meet as the framework has them meet; there a process that waits for too
    long ends without the name of the one that is late.

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
    rank, world_size, address
        Which process this is, if no launcher tells it, for example in a Dask
        worker or a Ray actor. ``rank`` is its number from 0, ``world_size``
        the number of processes, and ``address`` where the engine's master is,
        as in ``"10.0.0.1:29400"``: rank 0's host, and a free port there. Give
        all three or none.
    local_rank
        This process's number on its host, from 0. On one host it is the rank,
        if not given.
    trust_network
        Whether the engine may listen where any process can connect to it. A
        job of several hosts needs it. On one host, engines that use shared
        memory otherwise listen if it is True; ``XDEVICE_TRUST_NETWORK``, else
        False.

    Raises
    ------
    DistributedTimeoutError
        Not all processes came in time; under ``xdevice launch`` the missing
        ranks are named.
    DistributedError
        The processes do not agree, the engine does not start, the launcher
        does not tell where rank 0 is, the job spans hosts without
        ``trust_network``, or this process is in a group already.
    NotSupportedError
        The framework has no engine, or needs variables that are not set.
    ArgumentError
        ``rank``, ``world_size`` or ``address`` is missing, or contradicts the
        launcher's variables, or these contradict each other.

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
            rank=rank,
            world_size=world_size,
            address=address,
            local_rank=local_rank,
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
    job = replace(options.job(), trusts_network=options.trusts_network())
    state.job = job
    timeout = options.seconds()
    start_timeout = options.seconds(options.start)
    owner = backend()
    if job.world_size == 1:
        state.group = Group()
        return
    engine = owner.engine
    _ = engine.start  # NotSupportedError if the framework has none
    check_reach(job, f"the engine of {owner}")
    with joining(job):
        membership = _membership(job, owner, start_timeout, timeout)
    enter(Group(engine, membership, owner))
    try:
        patience = max(timeout, start_timeout)
        membership.work("the start of the engine", lambda: engine.start(membership.job, patience))
        membership.enter(Fingerprint("the first barrier"))
        membership.timeout = timeout
    except BaseException as error:
        abort(error)
        raise


def _membership(job: Job, owner: Backend, start_timeout: float, timeout: float) -> Membership:
    path = os.environ.get(SOCKET)
    if job.launcher != OUR_LAUNCHER or path is None:
        return UnlaunchedMembership(job, start_timeout, owner)
    agreed = {
        "backend": str(owner),
        "trust_network": job.trusts_network,
        "timeout": timeout,
        "xdevice version": __version__,
    }
    return LaunchedMembership(job, start_timeout, agreed, path)


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
            membership.shut_down(group.engine.stop)
    except BaseException as error:
        abort(error)
        raise
    leave()


def check_reach(job: Job, engine: str) -> None:
    """Raise if an engine would listen beyond loopback without permission."""
    if not (job.is_on_one_host or job.trusts_network):
        raise DistributedError(
            f"{engine} lets any process connect that reaches this host; "
            f"on a network that you trust, {HOW_TO_TRUST}"
        )
