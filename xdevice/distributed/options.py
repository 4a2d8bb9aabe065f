"""What `init` is given: which engine, and how many seconds to wait."""

from __future__ import annotations

import os
from typing import Any

from xdevice.errors import ArgumentError, ArgumentTypeError, DistributedError
from xdevice.kit.loopback import is_loopback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xdevice.distributed.seat import Seat

TRUST = "XDEVICE_TRUST_NETWORK"
"""The environment variable that lets engines listen where any process can connect to them."""

TIMEOUT = 120.0
"""Seconds to wait for the others by default."""

ENGINES = ("native", "mpi")


def engine_name(engine: str | None) -> str:
    """The engine that is asked for; ``XDEVICE_ENGINE``, else the framework's own."""
    name = engine or os.environ.get("XDEVICE_ENGINE") or "native"
    if name not in ENGINES:
        raise ArgumentError(f"{name!r} is not an engine; use 'native', the framework's own, or 'mpi'")
    return name


def seconds_of(timeout: float | None) -> float:
    """The timeout in seconds; ``XDEVICE_TIMEOUT``, else `TIMEOUT`."""
    given: Any = os.environ.get("XDEVICE_TIMEOUT") or TIMEOUT if timeout is None else timeout
    try:
        seconds = float(given) if not isinstance(given, bool) else 0.0
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"timeout={given!r} is not a number of seconds") from None
    if not 0 < seconds < 1e7:
        raise ArgumentError(f"timeout={given!r} is not a number of seconds above 0")
    return seconds


def trusts_network(given: bool | None) -> bool:
    """Whether the engine may listen where any process can connect to it; ``XDEVICE_TRUST_NETWORK``, else not."""
    if given is not None:
        if not isinstance(given, bool):
            raise ArgumentTypeError(f"trust_network={given!r} is not a boolean; give True or False")
        return given
    text = os.environ.get(TRUST, "")
    if text not in ("", "0", "1"):
        raise ArgumentError(f"{TRUST}={text!r} is not 0 or 1; set it to 1 if only your processes can reach the hosts")
    return text == "1"


def check_reach(seat: Seat, trusts: bool, what: str) -> None:
    """Raise if an engine would listen beyond loopback and the user has not allowed that."""
    for host in (seat.host, os.environ.get("XDEVICE_HOST") or seat.host):
        if seat.world_size > 1 and not trusts and not is_loopback(host):
            raise DistributedError(
                f"{what} lets any process connect that reaches {host}; on a network that you trust, start with "
                f"xdevice launch --trust-network, {TRUST}=1, or init(trust_network=True)"
            )
