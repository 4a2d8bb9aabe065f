"""A line of the program that copies, with what to write instead."""

from dataclasses import dataclass

from xdevice.contract import Kind
from xdevice.kit.units import size
from xdevice.tensors.transfers.callers import shown
from xdevice.tensors.transfers.watching import WORDS


@dataclass(frozen=True)
class Finding:
    """A line that makes copies of one kind, from one device to another.

    ``rule`` and ``advice`` are empty where there is nothing to mend, as where a model is moved once.
    """

    file: str
    """Empty where no line of the program is known."""
    line: int
    source: str
    """The line's text."""
    framework: str
    copies: int
    nbytes: int
    from_: str
    """A device, or ``host``."""
    to: str
    kind: Kind
    rule: str
    advice: str
    per_step: float | None
    """Copies in a step of the optimizer; ``None`` where that is not known."""
    often: str
    """How often, in words: ``1 a step``, or ``1 each turn of the loop in line 190``; empty where it is not known."""
    estimate: float
    """Seconds on the stated bus."""

    @property
    def where(self) -> str:
        """``main.py:196``."""
        return f"{shown(self.file)}:{self.line}" if self.file else "(no line of the program)"

    @property
    def what(self) -> str:
        """``12 copies, 48 B, gpu:0 → host: reads a number, so Python waits for the GPU``."""
        often = f" ({self.often})" if self.often else ""
        return f"{number(self.copies)}{often}, {size(self.nbytes)}, {self.from_} → {self.to}: {WORDS[self.kind]}"


def number(copies: int) -> str:
    """``1 copy``, ``12 copies``."""
    return f"{copies} {'copy' if copies == 1 else 'copies'}"


def time(seconds: float) -> str:
    """A short time for people: ``0.12 ms``."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.2g} ms"
