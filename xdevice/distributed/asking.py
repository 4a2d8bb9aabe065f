"""What a process says to the coordinator on its gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xdevice.distributed.entry import UNREADABLE, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Ask:
    """A process waits to be let into a collective."""

    entry: Entry
    waited: float = 0.0
    """Seconds for which it has waited."""
    number: int = 0
    """Of the collective, where the processes let each other in, and this is only to say that one waits; else 0."""
    brings: Any = None
    """Something for other processes, while the way in is made; anything that is true if all is well with it."""
    wants: tuple[int, ...] = ()
    """The ranks whose ``brings`` it is to be told."""

    @property
    def name(self) -> str:
        return self.entry.name

    @classmethod
    def read(cls, message: dict[str, Any]) -> Ask:
        """The question in a message; one that equals no other process's if the message holds anything else."""
        entry = Entry.read(message)
        waited, number, wants = message.get("waited", 0.0), message.get("number", 0), message.get("wants", [])
        if not isinstance(waited, (int, float)) or type(number) is not int or not isinstance(wants, list):
            return cls(UNREADABLE)
        if not all(type(rank) is int for rank in wants):
            return cls(UNREADABLE)
        return cls(entry, waited, number, message.get("brings"), tuple(wants))


def asking(entry: Entry, *, waited: float = 0.0, number: int = 0) -> dict[str, Any]:
    """The message of a process that waits."""
    return {**entry.message(), "waited": waited, "number": number}


def bringing(entry: Entry, brings: Any, wants: Sequence[int] = ()) -> dict[str, Any]:
    """The message of a process that tells others something, and wants to be told what those ranks bring."""
    return {**entry.message(), "brings": brings, "wants": wants}
