"""The processes of a job as rank 0 knows them, and what there is to say about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdevice.distributed.lines import Line

Hello = dict[str, Any]
"""What a process says of itself when it comes."""


class Member:
    """One process of the job."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        self.lines: dict[str, Line] = {}
        self.asks: str | None = None  # to enter what, while it stands at the gate
        self.entered = 0
        self.last = ""
        self.where: str | None = None
        self.done = False

    def __str__(self) -> str:
        return f"rank {self.hello['rank']} (process {self.hello['pid']} on {self.hello['name']})"


def said(member: Member) -> str:
    return (member.asks or "").partition("|")[0]


def after(member: Member) -> str:
    # the first that it enters is the meeting after the engines' start
    return f"after {member.last}, its number {member.entered - 1}" if member.entered > 1 else "before any collective"


def ranks(numbers: list[int]) -> str:
    if len(numbers) > 8:
        return f"ranks {', '.join(map(str, numbers[:7]))} and {len(numbers) - 7} more"
    return (f"rank {numbers[0]}" if len(numbers) == 1 else "ranks " + ", ".join(map(str, numbers))) if numbers else ""


def disagreement(other: Member, zero: str) -> str:
    """What is different between what the process asks and what rank 0 asks."""
    (name, _, mine), (zeros, _, theirs) = (other.asks or "").partition("|"), zero.partition("|")
    if name != zeros:
        return f"{other} calls {name} where rank 0 calls {zeros}; every process makes the same calls in order"
    a, b = mine.split("\x1f"), theirs.split("\x1f")
    if len(a) != len(b):
        return f"{other} gives {name} {len(a)} tensors where rank 0 gives {len(b)}; give the same tree everywhere"
    x, y = next((x, y) for x, y in zip(a, b, strict=True) if x != y)
    return f"{other} gives {name} {x} where rank 0 gives {y}; give the same structure, shapes and dtypes everywhere"
