"""The arguments of `init`, and environment variables for missing ones."""

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from xdevice.contract import Job
from xdevice.distributed.launcher_variables import LOCALHOST, check_rank, job_in, job_name
from xdevice.errors import ArgumentError, ArgumentTypeError
from xdevice.integers import whole_number
from xdevice.machine import is_loopback

# The variable that lets engines listen where any process can connect to them.
TRUST = "XDEVICE_TRUST_NETWORK"
TIMEOUT = 120.0  # seconds to wait for the others by default

_ADDRESS_HINT = "give rank 0's, as in '10.0.0.1:29400'"


@dataclass(frozen=True)
class InitOptions:
    """The user's arguments of `init`; the methods check them."""

    timeout: float | None = None
    _: KW_ONLY
    start: float | None = None
    rank: int | None = None
    world_size: int | None = None
    address: str | None = None
    local_rank: int | None = None
    trust_network: bool | None = None

    def seconds(self, timeout: float | str | None = None) -> float:
        """How long to wait: this timeout, else the one of the options."""
        if timeout is None:
            timeout = self.timeout
        if timeout is None:
            timeout = os.environ.get("XDEVICE_TIMEOUT") or TIMEOUT
        not_a_number = f"timeout={timeout!r} is not a number of seconds"
        if isinstance(timeout, bool):
            raise ArgumentError(f"{not_a_number} above 0")
        try:
            seconds = float(timeout)
        except (TypeError, ValueError):
            raise ArgumentTypeError(not_a_number) from None
        if not 0 < seconds < 1e7:
            raise ArgumentError(f"{not_a_number} above 0")
        return seconds

    def trusts_network(self) -> bool:
        if isinstance(self.trust_network, bool):
            return self.trust_network
        if self.trust_network is not None:
            raise ArgumentTypeError(
                f"trust_network={self.trust_network!r} is not a boolean; give True or False"
            )
        text = os.environ.get(TRUST, "")
        if text not in ("", "0", "1"):
            hint = "set it to 1 if only your processes can reach the hosts"
            raise ArgumentError(f"{TRUST}={text!r} is not 0 or 1; {hint}")
        return text == "1"

    def job(self, env: Mapping[str, str] = os.environ) -> Job:
        """Which process this is, from the options or the launcher's variables."""
        required = {"rank": self.rank, "world_size": self.world_size, "address": self.address}
        options = {**required, "local_rank": self.local_rank}
        arguments = [name for name, value in options.items() if value is not None]
        missing = [name for name, value in required.items() if value is None]
        if not arguments:
            return job_in(env)
        if missing:
            raise ArgumentError(
                f"init() was given {', '.join(arguments)} without {' and '.join(missing)}; "
                "give all three, or none"
            )
        size = _integer("world_size", self.world_size, least=1)
        rank = _integer("rank", self.rank, end=size)
        host, port = _host_and_port(self.address)
        is_on_one_host = size == 1 or is_loopback(host)
        if self.local_rank is not None:
            local_rank = _integer("local_rank", self.local_rank, end=size)
        elif is_on_one_host:
            local_rank = rank
        else:  # the rank may be the number of another host's GPU
            raise ArgumentError("init() was given no local_rank; give one, from 0 on each host")
        check_rank(rank, size, env)
        local_world_size = size if is_on_one_host else min(local_rank + 1, size - 1)
        name = job_name(host, port)
        return Job(rank, size, local_rank, local_world_size, host, port, name, launcher="init()")


def _integer(name: str, value: object, least: int = 0, end: int | None = None) -> int:
    if end is None:
        return whole_number(
            value, f"{name}={value!r} is not an integer of {least} or more", least, float("inf")
        )
    not_in_range = f"{name}={value!r} is not an integer from {least} to {end - 1}"
    return whole_number(value, not_in_range, least, end)


def _host_and_port(address: object) -> tuple[str, int]:
    if not isinstance(address, str):
        raise ArgumentTypeError(f"address={address!r} is not a string; {_ADDRESS_HINT}")
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ArgumentError(f"address={address!r} is not a host and a port; {_ADDRESS_HINT}")
    if ":" in host:
        hint = "give an IPv4 address, or a name that has one"
        raise ArgumentError(f"{host!r} is an IPv6 address, by which engines cannot meet; {hint}")
    return LOCALHOST if host == "localhost" else host, int(port)
