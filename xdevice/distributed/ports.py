"""A job's block of ports: where there is room for one, and which of them somebody else has."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from xdevice.distributed.job import listening
from xdevice.errors import DistributedError

if TYPE_CHECKING:
    from collections.abc import Iterable

LOWEST = 10_000
"""Below are the ports of well-known services."""

_EPHEMERAL = (32_768, 60_999)  # Linux's own choice; other systems' begins higher
_ATTEMPTS = 200


def block_size(world_size: int) -> int:
    """How many consecutive ports a job of so many processes has: see `Job`."""
    return 2 + 2 * world_size


def free_block(count: int) -> int:
    """The first of so many consecutive ports, all free on this host.

    They lie below those that the system gives to connections at random, and begin anywhere, so that two jobs
    that start at once seldom choose the same.
    """
    lowest, highest = _room(count)
    for _ in range(_ATTEMPTS):
        first = random.randint(lowest, highest)
        if first_taken(range(first, first + count)) is None:
            return first
    raise DistributedError(
        f"no {count} free ports in a row from {lowest} to {highest + count - 1}; name the first with --master-port"
    )


def first_taken(ports: Iterable[int]) -> int | None:
    """The first of these ports that cannot be had on this host."""
    for port in ports:
        try:
            listening("", port).close()
        except OSError:
            return port
    return None


def _room(count: int) -> tuple[int, int]:
    """The least and the greatest first port; anywhere, if those given at random leave no room."""
    low, high = _ephemeral()
    if low - count > LOWEST:
        return LOWEST, low - count
    if high + count < 65_535:
        return high + 1, 65_535 - count
    return LOWEST, 65_536 - count


def _ephemeral() -> tuple[int, int]:
    """The ports that this system gives to connections at random."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            low, high = map(int, file.read().split())
            return low, high
    except (OSError, ValueError):
        return _EPHEMERAL
