"""Jobs: several processes that compute together by a framework's own engine."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Engine", "Job"]


@dataclass(frozen=True)
class Job:
    """One process of a job, once all of its processes have met.

    A block of ports belongs to the job, the same on every host: ``port`` is where the processes meet, ``port + 1``
    is for the engine's own master, ``port + 2 + rank`` for each process, and as many again for what else an
    engine starts beside one.
    """

    rank: int
    world_size: int
    local_rank: int
    hosts: tuple[str, ...]  # of each rank, as the others reach it
    local_ranks: tuple[int, ...]  # of each rank
    port: int
    address: str | None = None  # this process's own, as the other hosts reach it, where it is known
    interface: str | None = None  # the network interface that has it, likewise
    secret: str = ""  # random, the same in all processes, and known to no other
    trusts_network: bool = (
        False  # whether the engine may listen where any process can connect to it
    )

    @property
    def master(self) -> str:
        """Where the engine's master is: ``host:port``."""
        return f"{self.hosts[0]}:{self.port + 1}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Each rank's own ``host:port``."""
        return tuple(f"{host}:{self.port + 2 + rank}" for rank, host in enumerate(self.hosts))

    def helper_port(self, rank: int) -> int:
        """A port on that rank's host for what its engine starts beside it."""
        return self.port + 2 + self.world_size + rank


class Engine(Protocol):
    """The framework's own way to compute in several processes.

    Vectors are made by `Collectives.pack`, of one dtype and length, one element at least, in every process, and may
    be overwritten. A call comes back when its result is there, of the vector's dtype and on its device.
    """

    def start(self, job: Job, timeout: float) -> None:
        """Join the other processes, all of which are there: they have met already. Seconds."""

    def all_reduce(self, vector: Any, op: str) -> Any:
        """The ``sum``, ``mean``, ``max`` or ``min`` of every process's vector, a new one; NaN where one has NaN."""

    def broadcast(self, vector: Any, root: int) -> Any:
        """The vector of process ``root``, bit for bit, a new one."""

    def all_gather(self, vector: Any) -> list[Any]:
        """Every process's vector, bit for bit, in the order of ranks."""

    def stop(self) -> None:
        """Leave. Every other process does so at the same time."""
