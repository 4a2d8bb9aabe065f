"""Jobs: processes that compute together by a framework's own engine."""

from dataclasses import dataclass
from typing import Protocol

from xdevice.contract.native import Vector
from xdevice.errors import DistributedError

__all__ = ["HOW_TO_TRUST", "Engine", "Job"]

HOW_TO_TRUST = "set XDEVICE_TRUST_NETWORK=1, or call init(trust_network=True)"
"""How an engine may listen beyond loopback, as the end of an error."""


@dataclass(frozen=True)
class Job:
    """One process of a job."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int  # the processes on this process's host
    host: str = ""  # of rank 0; empty if the launcher does not tell it
    port: int = 0  # on that host, for the engine's own master
    name: str = ""  # the same in all processes; no other job of this user on the host has it
    trusts_network: bool = False  # whether the engine may listen where any process can connect
    launcher: str = ""  # what has started the processes, for errors

    @property
    def is_on_one_host(self) -> bool:
        return self.local_world_size == self.world_size

    @property
    def master(self) -> str:
        """Where the engine's master is: ``host:port``.

        `DistributedError`: the launcher does not tell it.
        """
        if not (self.host and self.port):
            raise DistributedError(
                f"{self.launcher} does not tell where rank 0 can be met; "
                "set MASTER_ADDR and MASTER_PORT for all processes"
            )
        return f"{self.host}:{self.port}"


class Engine(Protocol):
    """The framework's own way to compute in several processes.

    `Collectives.pack` makes the vectors. They have the same dtype and length
    in every process, and at least one element. They may be overwritten. A call
    returns when its result is complete; the result has the vector's dtype and
    device.
    """

    def start(self, job: Job, timeout: float) -> None:
        """Join the other processes.

        Under ``xdevice launch`` all have met already; otherwise they meet here,
        as the framework has them meet. ``timeout`` is in seconds.
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
