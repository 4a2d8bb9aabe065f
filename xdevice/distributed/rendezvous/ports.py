"""A job's block of ports: a free block, and the taken ports of one."""

import errno
import random
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from xdevice.distributed.process_info import FIRST_PORT
from xdevice.errors import DistributedError

LOWEST = 10_000  # lower ports are those of well-known services
HIGHEST = 65_535
_EPHEMERAL = "32768 60999"  # Linux's default; other systems' begin higher
_ATTEMPTS = 200
_CELL = 16  # ports; a block begins at a multiple of it
_reserved: list[ExitStack] = []  # until this process ends


def free_block(count: int) -> int:
    """The first of so many consecutive ports that are free on this host.

    No other process that asks is given them until this process ends. They lie
    below the ports that are derived from a job's name, if there is room, and
    outside those that the system gives to connections.
    """
    lowest, highest = _first_ports(count)
    starts = range(-(-lowest // _CELL) * _CELL, highest + 1, _CELL)
    for _ in range(_ATTEMPTS if starts else 0):
        first = random.choice(starts)
        block = range(first, first + count)
        if first_taken(block) is None and _reserve(block[::_CELL]):
            return first
    ports = f"from {lowest} to {highest + count - 1}"
    raise DistributedError(
        f"no {count} free ports in a row {ports}; name the first with --master-port"
    )


def _reserve(cells: Iterable[int]) -> bool:
    """Bind these ports of UDP, which no job uses.

    So jobs that start at the same time get other blocks.
    """
    with ExitStack() as bound:
        for port in cells:
            reservation = bound.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            try:
                reservation.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
        _reserved.append(bound.pop_all())
    return True


def first_taken(ports: Iterable[int]) -> int | None:
    for port in ports:
        try:
            listening("", port).close()
        except OSError:
            return port
    return None


def _first_ports(count: int) -> tuple[int, int]:
    """The lowest and the highest first port of a block."""
    try:  # the ports that this system gives to connections
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    except OSError:
        text = _EPHEMERAL
    low, high = map(int, text.split())
    for end in (min(low, FIRST_PORT), low):
        if end - count > LOWEST:
            return LOWEST, end - count
    if high + count < HIGHEST:
        return high + 1, HIGHEST - count
    return LOWEST, HIGHEST + 1 - count  # the system leaves no room


def check_ports(rank: int, world_size: int, port: int) -> None:
    """Raise `DistributedError` if a port of this rank is taken on this host.

    Its engine may need the port.
    """
    ports = [port + 2 + rank, port + 2 + world_size + rank]
    if rank == 0:
        ports.insert(0, port + 1)
    for number in ports:
        try:
            listening("", number).close()
        except OSError as error:
            raise port_taken(rank, number, error) from error


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at the address.

    Recently closed connections do not prevent it.
    """
    family = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0][0]
    with ExitStack() as undo:
        listener = undo.enter_context(socket.socket(family))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
        undo.pop_all()
    return listener


def port_taken(rank: int, port: int, error: OSError) -> DistributedError:
    reason = f"which is not available on {socket.gethostname()} ({error.strerror or error})"
    hint = "choose another first port, with xdevice launch --master-port or XDEVICE_MASTER_PORT"
    return DistributedError(f"rank {rank} needs port {port}, {reason}; {hint}")
