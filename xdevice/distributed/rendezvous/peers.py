"""The processes of a job as rank 0 knows them."""

from typing import Any

from xdevice.distributed.channel import Channel
from xdevice.distributed.rendezvous.messages import JoinMessage, Request

_MUST_AGREE = {
    "world_size": "world size",
    "timeout": "timeout",
    "backend": "backend",
    "engine": "engine",
    "version": "xdevice version",
}
"""What all processes must agree on, and the words for it."""


class Peer:
    """One process of the job."""

    def __init__(self, joined: JoinMessage) -> None:
        self.joined = joined
        self.rank: int = joined["rank"]
        self.channels: dict[str, Channel] = {}  # barrier and control
        self.request: Request | None = None  # while it waits to enter a collective
        self.since = 0.0  # when it began to wait, a time of `time.monotonic`
        self.where: str | None = None  # what it answers to the question where it is
        self.engine: tuple[float, float] | None = None  # seconds it has been in the engine, and may still be
        self.done = False  # whether it has left the job

    def answer(self, message: dict[str, Any]) -> None:
        """Take in where the process says that it is."""
        self.where = str(message["where"])
        match message.get("engine"):
            case [float(so_far), float(left)] if abs(so_far) < 1e9 and abs(left) < 1e9:
                self.engine = so_far, left
            case _:
                self.engine = None

    @property
    def is_late(self) -> bool:
        """Whether it has neither come to the collective nor left the job."""
        return self.request is None and not self.done

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.joined['pid']} on {self.joined['name']})"


def refusal(joining: JoinMessage, own: JoinMessage, here: Peer | None) -> str | None:
    """Why a process cannot join the job of rank 0; ``here`` is the one that has joined with the same rank."""
    rank, size = joining["rank"], own["world_size"]
    for key, word in _MUST_AGREE.items():
        if joining.get(key) != own[key]:
            return f"rank {rank} has {word} {joining.get(key)!r}, and rank 0 has {own[key]!r}; start all alike"
    if not 0 <= rank < size:
        return f"a process has rank {rank} in a job of {size} processes; ranks count from 0"
    if here is not None and here.joined["id"] != joining.get("id"):
        return (
            f"rank {rank} is there twice: process {here.joined['pid']} on {here.joined['name']} and process "
            f"{joining.get('pid')} on {joining.get('name')}; give each process a rank of its own"
        )
    return None
