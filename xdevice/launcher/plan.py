"""What a launcher starts on its host, and which variables it sets for each process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdevice.distributed.process_info import block_size


@dataclass(frozen=True)
class Plan:
    """What is started on this host, which is one of the job's nodes."""

    command: Sequence[str]
    processes: int  # on each node
    nodes: int
    node: int
    port: int
    environment: Mapping[str, str]  # the same for all
    cores: Sequence[Sequence[int]] = ()  # of each process, where they are pinned
    logs: Path | None = None
    time_limit: float | None = None  # seconds

    @property
    def world_size(self) -> int:
        return self.nodes * self.processes

    @property
    def ranks(self) -> range:
        return range(self.node * self.processes, (self.node + 1) * self.processes)

    @property
    def ports(self) -> list[int]:
        """The ports of the job's block that are needed on this host."""
        if self.nodes == 1:
            return list(range(self.port, self.port + block_size(self.world_size)))
        first = self.port + 2
        own = [first + rank for rank in self.ranks] + [first + self.world_size + rank for rank in self.ranks]
        return own if self.node else [self.port, self.port + 1, *own, first + 2 * self.world_size]

    def variables(self, rank: int) -> dict[str, str]:
        """The variables that tell a process its rank: xdevice's own, and those that torchrun sets."""
        own = str(rank - self.ranks[0])
        return {
            "XDEVICE_RANK": str(rank),
            "XDEVICE_WORLD_SIZE": str(self.world_size),
            "XDEVICE_LOCAL_RANK": own,
            "XDEVICE_LOCAL_WORLD_SIZE": str(self.processes),
            "XDEVICE_MASTER_PORT": str(self.port),
            "RANK": str(rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": own,
            "LOCAL_WORLD_SIZE": str(self.processes),
            "MASTER_ADDR": self.environment["XDEVICE_MASTER_ADDR"],
            "MASTER_PORT": str(self.port + block_size(self.world_size) - 1),
        }
