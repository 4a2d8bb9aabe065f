"""What `init` is given: seconds to wait, the engine, and this process's rank where no launcher tells it."""

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from xdevice.device import whole_number
from xdevice.distributed.process_info import (
    LOCALHOST,
    ProcessInfo,
    block_size,
    has_room,
    launcher_variables,
    process_info_in,
)
from xdevice.distributed.rendezvous.authentication import checked
from xdevice.errors import ArgumentError, ArgumentTypeError, DistributedError
from xdevice.kit.loopback import is_loopback

TRUST = "XDEVICE_TRUST_NETWORK"  # the variable that lets engines listen where any process can connect to them
TIMEOUT = 120.0  # seconds to wait for the others by default


@dataclass(frozen=True)
class InitOptions:
    """The parameters of `init`, as they were given."""

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
        if name not in ("native", "mpi"):
            raise ArgumentError(f"{name!r} is not an engine; use 'native', the framework's own, or 'mpi'")
        return name

    def seconds(self) -> float:
        return _seconds_of(os.environ.get("XDEVICE_TIMEOUT") or TIMEOUT if self.timeout is None else self.timeout)

    def start_seconds(self) -> float:
        return self.seconds() if self.start is None else _seconds_of(self.start)

    def trusts_network(self) -> bool:
        if self.trust_network is not None:
            if not isinstance(self.trust_network, bool):
                raise ArgumentTypeError(f"trust_network={self.trust_network!r} is not a boolean; give True or False")
            return self.trust_network
        text = os.environ.get(TRUST, "")
        if text not in ("", "0", "1"):
            raise ArgumentError(
                f"{TRUST}={text!r} is not 0 or 1; set it to 1 if only your processes can reach the hosts"
            )
        return text == "1"

    def process_info(self, env: Mapping[str, str] = os.environ) -> ProcessInfo:
        """Which process this is: as the options say, else the variables of a launcher."""
        names = ("rank", "world_size", "address", "local_rank", "token")
        given = [name for name in names if getattr(self, name) is not None]
        if not given:
            return process_info_in(env)
        missing = " and ".join(name for name in names[:3] if name not in given)
        if missing:
            raise ArgumentError(f"init() was given {', '.join(given)} without {missing}; give all three, or none")
        size = _whole("world_size", self.world_size, 1, None)
        rank = _whole("rank", self.rank, 0, size)
        host, port = _host_and_port(self.address, size)
        if self.local_rank is None and size > 1 and not is_loopback(host):  # the rank would be another host's GPU
            raise ArgumentError("init() was given no local_rank; give one, from 0 on each host")
        local = rank if self.local_rank is None else _whole("local_rank", self.local_rank, 0, size)
        _check_against(env, rank, size)
        return ProcessInfo(rank, size, local, host, port, "init()", _secret(self.token))


def check_reach(info: ProcessInfo, what: str) -> None:
    """Raise if an engine would listen beyond loopback and the user has not allowed that."""
    for host in (info.host, os.environ.get("XDEVICE_HOST") or info.host):
        if info.world_size > 1 and not info.trusts_network and not is_loopback(host):
            raise DistributedError(
                f"{what} lets any process connect that reaches {host}; on a network that you trust, start with "
                f"xdevice launch --trust-network, {TRUST}=1, or init(trust_network=True)"
            )


def _seconds_of(given: Any) -> float:
    try:
        seconds = float(given) if not isinstance(given, bool) else 0.0
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"timeout={given!r} is not a number of seconds") from None
    if not 0 < seconds < 1e7:
        raise ArgumentError(f"timeout={given!r} is not a number of seconds above 0")
    return seconds


def _whole(name: str, value: Any, least: int, end: int | None) -> int:
    room = f"from {least} to {end - 1}" if end is not None else f"of {least} or more"
    return whole_number(value, f"{name}={value!r} is not an integer {room}", least, end or float("inf"))


def _host_and_port(address: Any, size: int) -> tuple[str, int]:
    if not isinstance(address, str):
        raise ArgumentTypeError(f"address={address!r} is not a string; give rank 0's, as in '10.0.0.1:29400'")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit()):
        raise ArgumentError(f"address={address!r} is not a host and a port; give rank 0's, as in '10.0.0.1:29400'")
    if not has_room(int(port), size):
        needed = f"{block_size(size)} ports"
        raise ArgumentError(f"address={address!r} leaves no room for the job's {needed}; give a lower port")
    return (LOCALHOST if host == "localhost" else host), int(port)


def _secret(token: Any) -> str:
    if token is None:
        return ""
    if not isinstance(token, str):
        raise ArgumentTypeError(f"token is of type {type(token).__name__}; give all processes the same random string")
    return checked(token, "token")


def _check_against(env: Mapping[str, str], rank: int, size: int) -> None:
    """Raise if a launcher has started this process as another rank: one of the two is wrong."""
    variables = launcher_variables(env)
    try:
        there = process_info_in(env)
    except (ArgumentError, DistributedError):
        return  # the variables do not say which process this is
    if variables and (there.rank, there.world_size) != (rank, size):
        raise ArgumentError(
            f"init() was given rank {rank} of {size}, and {there.launcher} says rank {there.rank} of "
            f"{there.world_size}; leave out rank and world_size, or unset {' and '.join(variables.split())}"
        )
