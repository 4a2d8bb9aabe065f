"""Jobs: processes that compute together by a framework's own engine."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from dataclasses import dataclass
from typing import Protocol

from xdevice.contract.native import Vector

__all__ = ["Engine", "Job"]


@dataclass(frozen=True)
class Job:
    """One process of a job, once all of its processes have met.

    A block of ports belongs to the job, the same on every host. The processes
    meet at ``port``. ``port + 1`` is for the engine's own master,
    ``port + 2 + rank`` for each process. As many more follow for helpers that
    an engine starts beside each process.
    """

    rank: int
    world_size: int
    local_rank: int
    hosts: tuple[str, ...]  # of each rank, as the other processes reach it
    local_ranks: tuple[int, ...]  # of each rank
    port: int
    address: str | None = None  # this process's, as the other hosts reach it; None if unknown
    interface: str | None = None  # the network interface with that address; None if unknown
    secret: str = ""  # random, the same in all processes, and known to no other
    trusts_network: bool = False  # whether the engine may listen where any process can connect

    @property
    def master(self) -> str:
        """Where the engine's master is: ``host:port``."""
        return f"{self.hosts[0]}:{self.port + 1}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """The ``host:port`` of each rank."""
        return tuple(f"{host}:{self.port + 2 + rank}" for rank, host in enumerate(self.hosts))

    def helper_port(self, rank: int) -> int:
        """A port on that rank's host for a helper that its engine starts."""
        return self.port + 2 + self.world_size + rank


class Engine(Protocol):
    """The framework's own way to compute in several processes.

    `Collectives.pack` makes the vectors. They have the same dtype and length
    in every process, and at least one element. They may be overwritten. A call
    returns when its result is complete; the result has the vector's dtype and
    device.
    """

    def start(self, job: Job, timeout: float) -> None:
        """Join the other processes, which have all met already.

        ``timeout`` is in seconds.
        """

    def all_reduce(self, vector: Vector, op: str) -> Vector:
        """The ``sum``, ``mean``, ``max`` or ``min`` as a new vector.

        It is NaN where one of them is.
        """

    def broadcast(self, vector: Vector, root: int) -> Vector:
        """A new vector with the bits of the vector of process ``root``."""

    def all_gather(self, vector: Vector) -> list[Vector]:
        """Every process's vector, bit for bit, in the order of ranks."""

    def stop(self) -> None:
        """Leave the job. Every other process leaves at the same time."""
