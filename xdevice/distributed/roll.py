"""The processes of a job as rank 0 knows them, and the words for them in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdevice.distributed.asking import Ask
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


_TYPES = {"line": str, "rank": int, "local_rank": int, "pid": int, "id": str, "host": str, "name": str}
"""What else a hello has."""


def is_hello(message: Hello) -> bool:
    """Whether the message is one that a process introduces itself with."""
    typed = all(type(message.get(key)) is kind for key, kind in _TYPES.items())
    return typed and message["line"] in ("gate", "alarm")


class Member:
    """One process of the job."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.lines: dict[str, Line] = {}
        self.asks: Ask | None = None  # while it waits at the gate
        self.since = 0.0  # when it began to wait, as of `time.monotonic`
        self.where: str | None = None
        self.done = False

    def __str__(self) -> str:
        return f"rank {self.hello['rank']} (process {self.hello['pid']} on {self.hello['name']})"


def after(last: str, entered: int) -> str:
    # the first that is entered is the meeting after the engines' start
    return f"after {last}, its number {entered - 1}" if entered > 1 else "before any collective"


def verdict(members: list[Member], timeout: float, last: str, entered: int) -> tuple[str, int]:
    """What the processes have waited for, and the rank to blame, once the others have been asked where they are."""
    members = sorted(members, key=lambda member: member.hello["rank"])
    waiting = [(m.hello["rank"], m.asks.name) for m in members if m.asks is not None]
    late = [m for m in members if m.asks is None and not m.done] or members
    silent = [m for m in late if m.where is None]
    culprit = (silent or late)[0]
    if waiting:
        before = f"{ranks([rank for rank, _ in waiting])} waited {timeout:g} s in {waiting[0][1]}"
    else:
        before = f"the processes waited {timeout:g} s inside {last}"
    if silent:
        why = f"{culprit} does not answer: it is stopped, or its host is, {after(last, entered)}"
    else:
        why = f"{culprit} did not come: it is {culprit.where}, {after(last, entered)}"
    return f"{before}; {why}", culprit.hello["rank"]


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
