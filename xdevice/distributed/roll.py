"""The processes of a job as rank 0 knows them, and the words for them in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdevice.distributed.entry import Entry
    from xdevice.distributed.lines import Line

Hello = dict[str, Any]
"""What a process tells of itself when it connects."""


_MUST_AGREE = {
    "world_size": "world size",
    "timeout": "timeout",
    "backend": "backend",
    "engine": "engine",
    "version": "xdevice version",
}
"""What all processes must agree on, and the words for it."""


class Member:
    """One process of the job."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.lines: dict[str, Line] = {}
        self.asks: Entry | None = None  # while it waits at the gate
        self.entered = 0
        self.last = "the start of the engine"  # then the collective that it entered last
        self.where: str | None = None
        self.done = False

    def __str__(self) -> str:
        return f"rank {self.hello['rank']} (process {self.hello['pid']} on {self.hello['name']})"


def after(member: Member) -> str:
    # the first that it enters is the meeting after the engines' start
    return f"after {member.last}, its number {member.entered - 1}" if member.entered > 1 else "before any collective"


def ranks(numbers: list[int]) -> str:
    if len(numbers) > 8:
        return f"ranks {', '.join(map(str, numbers[:7]))} and {len(numbers) - 7} more"
    return (f"rank {numbers[0]}" if len(numbers) == 1 else "ranks " + ", ".join(map(str, numbers))) if numbers else ""


def objection(hello: Hello, own: Hello, here: Member | None) -> str | None:
    """Why a process cannot join the job of rank 0; ``here`` is the one that has joined with the same rank."""
    rank, size = hello["rank"], own["world_size"]
    for key, word in _MUST_AGREE.items():
        if hello.get(key) != own[key]:
            return f"rank {rank} has {word} {hello.get(key)!r}, and rank 0 has {own[key]!r}; start all alike"
    if not 0 <= rank < size:
        return f"a process has rank {rank} in a job of {size} processes; ranks count from 0"
    if here is not None and here.hello["id"] != hello.get("id"):
        return (
            f"rank {rank} is there twice: process {here.hello['pid']} on {here.hello['name']} and process "
            f"{hello.get('pid')} on {hello.get('name')}; give each process a rank of its own"
        )
    return None
