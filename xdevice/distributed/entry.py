"""What a process asks of rank 0 before a collective: to enter it, with these tensors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 30_000
"""Characters of descriptions that all processes compare; longer ones are compared by their digest."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A collective's name, and a description of each tensor that the process gives."""

    name: str
    count: int = 0
    tensors: tuple[str, ...] = ()
    digest: str = ""  # of the descriptions, in their place where they are long

    @classmethod
    def of(cls, name: str, tensors: Sequence[str]) -> Entry:
        """The entry for a collective that is given these tensors."""
        text = json.dumps(tensors)
        if len(text) <= LONGEST:
            return cls(name, len(tensors), tuple(tensors))
        return cls(name, len(tensors), digest=blake2b(text.encode(), digest_size=16).hexdigest())

    @classmethod
    def read(cls, message: dict[str, Any]) -> Entry:
        """The entry of a message; one that equals no other process's if the message holds anything else."""
        found: Any = message.get("enter")
        if not isinstance(found, dict):
            return UNREADABLE
        name, count, tensors, digest = (found.get(key) for key in ("name", "count", "tensors", "digest"))
        texts = [name, digest, *tensors] if isinstance(tensors, list) else [None]
        if type(count) is not int or not all(isinstance(text, str) for text in texts):
            return UNREADABLE
        return cls(str(name), count, tuple(map(str, texts[2:])), str(digest))

    def message(self) -> dict[str, Any]:
        """What is sent to rank 0."""
        return {"enter": asdict(self)}

    def difference(self, zero: Entry) -> str:
        """How this entry differs from that of rank 0, as the end of a sentence about the process."""
        if self.name != zero.name:
            return f"calls {self.name} where rank 0 calls {zero.name}; every process makes the same calls in order"
        gives = f"gives {self.name}"
        if self.count != zero.count:
            return f"{gives} {self.count} tensors where rank 0 gives {zero.count}; give the same tree everywhere"
        alike = "give the same structure, shapes and dtypes everywhere"
        for mine, its in zip(self.tensors, zero.tensors, strict=False):
            if mine != its:
                return f"{gives} {mine} where rank 0 gives {its}; {alike}"
        return f"{gives} {self.count} tensors of other shapes, dtypes or paths than rank 0; {alike}"


UNREADABLE = Entry("something that is not a collective")
