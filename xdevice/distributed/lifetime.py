"""Joining the processes of a job, and leaving them."""

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from xdevice._version import __version__
from xdevice.contract import Engine
from xdevice.device import whole_number
from xdevice.distributed.group import Group, abort, enter, here, is_initialized, joining, leave
from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import (
    LOCALHOST,
    ProcessInfo,
    block_size,
    check_ipv4,
    check_rank,
    has_room,
    process_info_in,
)
from xdevice.distributed.rendezvous.authentication import checked
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.distributed.rendezvous.ports import check_ports
from xdevice.errors import ArgumentError, ArgumentTypeError, DistributedError, did_you_mean
from xdevice.framework.choosing import backend
from xdevice.kit.loopback import is_loopback

TRUST = "XDEVICE_TRUST_NETWORK"  # the variable that lets engines listen where any process can connect to them
ENGINES = ("native", "mpi")
TIMEOUT = 120.0  # seconds to wait for the others by default

_joined: set[ProcessInfo] = (
    set()
)  # with which this process has joined: engines may keep the ports for the next group


@dataclass(frozen=True)
class InitOptions:
    timeout: float | None = None
    _: KW_ONLY
    start: float | None = None
    engine: str | None = None
    rank: int | None = None
    world_size: int | None = None
    address: str | None = None
    local_rank: int | None = None
    token: str | None = field(default=None, repr=False)
    trust_network: bool | None = None

    def engine_name(self) -> str:
        name = self.engine or os.environ.get("XDEVICE_ENGINE") or "native"
        if name not in ENGINES:
            there = did_you_mean(name, ENGINES, "use 'native', the framework's own, or 'mpi'")
            raise ArgumentError(f"{name!r} is not an engine; {there}")
        return name

    def seconds(self, given: Any = None) -> float:
        """How long to wait: as given, else the timeout."""
        given = self.timeout if given is None else given
        given = os.environ.get("XDEVICE_TIMEOUT") or TIMEOUT if given is None else given
        try:
            seconds = float(given) if not isinstance(given, bool) else 0.0
        except (TypeError, ValueError):
            raise ArgumentTypeError(f"timeout={given!r} is not a number of seconds") from None
        if not 0 < seconds < 1e7:
            raise ArgumentError(f"timeout={given!r} is not a number of seconds above 0")
        return seconds

    def trusts_network(self) -> bool:
        if self.trust_network is not None:
            if not isinstance(self.trust_network, bool):
                raise ArgumentTypeError(
                    f"trust_network={self.trust_network!r} is not a boolean; give True or False"
                )
            return self.trust_network
        text = os.environ.get(TRUST, "")
        if text not in ("", "0", "1"):
            hint = "set it to 1 if only your processes can reach the hosts"
            raise ArgumentError(f"{TRUST}={text!r} is not 0 or 1; {hint}")
        return text == "1"

    def process_info(self, env: Mapping[str, str] = os.environ) -> ProcessInfo:
        """Which process this is: as the options say, else the variables of a launcher."""
        names = ("rank", "world_size", "address", "local_rank", "token")
        given = [name for name in names if getattr(self, name) is not None]
        if not given:
            return process_info_in(env)
        missing = " and ".join(name for name in names[:3] if name not in given)
        if missing:
            raise ArgumentError(
                f"init() was given {', '.join(given)} without {missing}; give all three, or none"
            )
        size = _whole("world_size", self.world_size, 1, None)
        rank = _whole("rank", self.rank, 0, size)
        host, port = _host_and_port(self.address, size)
        if (
            self.local_rank is None and size > 1 and not is_loopback(host)
        ):  # the rank would be another host's GPU
            raise ArgumentError("init() was given no local_rank; give one, from 0 on each host")
        local = rank if self.local_rank is None else _whole("local_rank", self.local_rank, 0, size)
        check_rank(rank, size, env)
        return ProcessInfo(rank, size, local, host, port, "init()", _secret(self.token))


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
    name, seconds, start = options.engine_name(), options.seconds(), options.seconds(options.start)
    info = replace(info, trusts_network=options.trusts_network())
    owner = backend()
    if info.world_size == 1:
        here.group = Group()
        return
    check_ipv4(info.host, os.environ.get("XDEVICE_HOST", ""))
    engine: Engine
    if name == "mpi":
        from xdevice.distributed import mpi

        engine = mpi.Engine(owner, info.world_size)
    else:
        engine = owner.engine
        _ = engine.start  # NotSupportedError before the processes meet
    check_reach(info, "MPI" if name == "mpi" else f"the engine of {owner}")
    if name == "native" and info not in _joined:
        check_ports(info.rank, info.world_size, info.port)
        _joined.add(info)
    kind = (
        f"{name}, with a trusted network" if info.trusts_network else name
    )  # on which all must agree
    agreed = {"backend": str(owner), "engine": kind, "version": __version__, "timeout": seconds}
    with joining(info):
        membership = Membership(info, start, agreed)
    enter(Group(engine, membership, owner if name == "native" else None))
    try:
        membership.work(
            "the start of the engine", lambda: engine.start(membership.job, max(seconds, start))
        )
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


def check_reach(info: ProcessInfo, what: str) -> None:
    """Raise if an engine would listen beyond loopback and the user has not allowed that."""
    for host in (info.host, os.environ.get("XDEVICE_HOST") or info.host):
        if info.world_size > 1 and not info.trusts_network and not is_loopback(host):
            hint = (
                f"start with xdevice launch --trust-network, {TRUST}=1, or init(trust_network=True)"
            )
            why = f"{what} lets any process connect that reaches {host}"
            raise DistributedError(f"{why}; on a network that you trust, {hint}")


def _whole(name: str, value: Any, least: int, end: int | None) -> int:
    room = f"from {least} to {end - 1}" if end is not None else f"of {least} or more"
    return whole_number(
        value, f"{name}={value!r} is not an integer {room}", least, end or float("inf")
    )


def _host_and_port(address: Any, size: int) -> tuple[str, int]:
    if not isinstance(address, str):
        raise ArgumentTypeError(
            f"address={address!r} is not a string; give rank 0's, as in '10.0.0.1:29400'"
        )
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit()):
        raise ArgumentError(
            f"address={address!r} is not a host and a port; give rank 0's, as in '10.0.0.1:29400'"
        )
    if not has_room(int(port), size):
        needed = f"{block_size(size)} ports"
        raise ArgumentError(
            f"address={address!r} leaves no room for the job's {needed}; give a lower port"
        )
    return (LOCALHOST if host == "localhost" else host), int(port)


def _secret(token: Any) -> str:
    if token is None:
        return ""
    if not isinstance(token, str):
        raise ArgumentTypeError(
            f"token is of type {type(token).__name__}; give all processes the same random string"
        )
    return checked(token, "token")
