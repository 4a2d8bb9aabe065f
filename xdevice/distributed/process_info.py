"""Which process of which job this is, and the job's block of ports."""

import zlib
from dataclasses import dataclass, field

from xdevice.errors import ArgumentError

# Ports that are derived from a job's name. The system gives higher ones to
# connections at random.
FIRST_PORT = 20_000
PORTS = 10_000

LOCALHOST = "127.0.0.1"
# Our launcher waits for the failed process by itself; other launchers do not.
OUR_LAUNCHER = "xdevice launch"


@dataclass(frozen=True)
class ProcessInfo:
    """A process's rank in a job, and the address at which the processes meet."""

    rank: int
    world_size: int
    local_rank: int
    host: str  # rank 0's
    port: int  # the first of the job's block
    launcher: str
    token: str = field(default="", repr=False, compare=False)  # if it was an argument of `init`
    trusts_network: bool = field(default=False, compare=False)  # as in `contract.Job`


NO_LAUNCHER = ProcessInfo(0, 1, 0, LOCALHOST, 0, "no launcher")


def block_size(world_size: int) -> int:
    """The number of consecutive ports of a job.

    They are those of `contract.Job`, and ``MASTER_PORT``.
    """
    return 3 + 2 * world_size


def block(port: int, world_size: int) -> str:
    """The job's block of ports as text: ``ports 29400 to 29406``."""
    return f"ports {port} to {port + block_size(world_size) - 1}"


def has_room(port: int, world_size: int) -> bool:
    return 0 < port <= 65_536 - block_size(world_size)


def derived_port(job: str) -> int:
    """A first port that all processes of the job derive, and few other jobs.

    It is 0 without a name.
    """
    if not job.strip("."):
        return 0
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS


def check_ipv4(*hosts: str) -> None:
    """Raise `ArgumentError` for an IPv6 address.

    Engines are given HOST:PORT, and the ports are checked for IPv4.
    """
    for host in hosts:
        if ":" in host:
            hint = "give IPv4 addresses, or names that have one"
            raise ArgumentError(
                f"{host!r} is an IPv6 address, by which the engines cannot meet; {hint}"
            )
