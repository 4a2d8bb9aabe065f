"""Which process of which job this is: what is known before it has met the others."""

import zlib
from dataclasses import dataclass, field

FIRST_PORT, PORTS = 20_000, 10_000
"""The range of ports that are derived from a job's name: below those that systems give to connections at random."""

OUR_LAUNCHER = "xdevice launch"
"""It waits for the failed process by itself; other launchers do not."""

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True)
class ProcessInfo:
    """A process's rank in a job, and the address at which the job's processes meet."""

    rank: int
    world_size: int
    local_rank: int
    host: str  # rank 0's
    port: int  # the first of the job's block
    launcher: str
    token: str = field(default="", repr=False, compare=False)  # where `init` was given one
    trusts_network: bool = field(default=False, compare=False)  # as `contract.Job`


NO_LAUNCHER = ProcessInfo(0, 1, 0, LOCALHOST, 0, "no launcher")
"""A process that was started by itself."""


def block_size(world_size: int) -> int:
    """How many consecutive ports a job has: those of `contract.Job`, and ``MASTER_PORT``."""
    return 3 + 2 * world_size


def block(port: int, world_size: int) -> str:
    """The job's block of ports as text: ``ports 29400 to 29406``."""
    return f"ports {port} to {port + block_size(world_size) - 1}"


def has_room(port: int, world_size: int) -> bool:
    """Whether a job's block of ports can begin there."""
    return 0 < port <= 65_536 - block_size(world_size)


def derived_port(job: str) -> int:
    """A first port that is the same for all processes of a job, and seldom another job's; 0 without a job's name."""
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS if job.strip(".") else 0
