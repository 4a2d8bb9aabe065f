"""What to write instead of a line that copies: the advice, in advice.txt, of the first rule that applies to it."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from xdevice.hardware.bus import Bus
from xdevice.tensors.transfers import syntax
from xdevice.tensors.transfers.recording import Recorder, Site
from xdevice.tensors.transfers.syntax import Place
from xdevice.tensors.transfers.watching import named

Said = TypeVar("Said")

_NUMBER = 8  # bytes of the largest number
_OFTEN = 3  # copies at one line that are taken for repeated although no step or loop is known
_RARE = 0.2  # copies in a step, at most, of what is done now and then


class Facts:
    """A line and its program, as rules see them."""

    def __init__(self, site: Site, program: Recorder, bus: Bus) -> None:
        self.site, self.kind, self.copies = site, site.kind, site.copies
        self.source, self.to = named(site.source), named(site.target)
        self.per_step = _per_step(site, program)
        self.per_turn = _per_turn(site, program)
        self.repeats = self.per_step is not None or self.per_turn is not None
        # copies in one step, or in one turn
        self.together = int(self.per_step or (self.per_turn[1] if self.per_turn else 0))
        self.period = "step" if self.per_step is not None else "turn"
        # all before the first of several steps, as a model is
        self.is_preparation = program.steps > 1 and self.per_step is None and set(site.steps) == {0}
        self.is_sent = self.kind == "copy" and self.source == "host"  # by the program
        self.is_fetched = self.kind == "copy" and self.to == "host"
        self.is_number = site.nbytes <= self.copies * _NUMBER
        # a copy takes longer to begin than to make
        self.is_small = site.nbytes / self.copies / bus.bandwidth < bus.latency

    @property
    def often(self) -> str:
        """How often, in words; empty where it is not known."""
        if self.per_step is not None:
            per_step = self.per_step
            return f"{per_step:g} a step" if per_step >= 1 else f"1 every {1 / per_step:.0f} steps"
        if self.per_turn is not None:
            return f"{self.per_turn[1]:g} each turn of the loop in line {self.per_turn[0]}"
        return ""

    @property
    def is_rare(self) -> bool:
        """Whether five steps or a loop come before it, or an ``if``, which may let only some turns pass."""
        if self.per_step is not None:
            return self.per_step <= _RARE
        return bool(self.says(syntax.follows_loop) or self.says(syntax.is_conditional))

    @property
    def is_often(self) -> bool:
        """Whether it is done again and again, as far as is known."""
        return (self.repeats or self.copies >= _OFTEN) and not self.is_rare

    @property
    def is_sent_often(self) -> bool:
        """Whether the program sends something in each step or turn, but for what it prepares."""
        return self.is_sent and self.repeats and not self.is_preparation and not self.says(syntax.builds)

    @property
    def is_own_number(self) -> bool:
        """Whether the framework sends single numbers that the line does not ask it to move."""
        by_itself = self.kind in ("operand", "gradient") or (self.is_sent and not self.says(syntax.moves))
        return self.source == "host" and self.is_number and by_itself

    @property
    def is_read(self) -> bool:
        """Whether numbers are read, again and again."""
        return (self.kind == "number" or (self.is_fetched and self.is_number)) and self.is_often

    @property
    def is_same_memory(self) -> bool:
        """Whether every copy but the first sends memory that was sent before."""
        addresses = self.site.addresses
        return sum(addresses.values()) == self.copies > len(addresses) and self.copies >= 2 * len(addresses)

    @property
    def factory(self) -> str:
        """What makes the tensor that the line moves."""
        return self.says(syntax.factory) or ""

    @property
    def unchanged(self) -> str:
        """What the line moves although the loop does not change it."""
        return self.says(syntax.unchanged) or ""

    def says(self, question: Callable[[Place], Said]) -> Said | None:
        """What the line's syntax answers."""
        return question(self.site.place) if self.site.place is not None else None


def _per_step(site: Site, program: Recorder) -> float | None:
    """Copies in a step of the optimizer; below 1 where not every step copies. None where it is not known."""
    counts, steps = list(site.steps.values()), program.steps
    if steps < 2 or len(counts) < 2:
        return None
    if len(counts) * 2 > steps:
        return float(median(counts))
    return site.copies / steps if max(counts) == 1 else None


def _per_turn(site: Site, program: Recorder) -> tuple[int, float] | None:
    """The first line of the innermost loop that copies in most of its turns, and the copies in a turn."""
    if site.place is None or syntax.is_conditional(site.place):
        return None  # turns in which nothing is copied are not counted
    for loop, turns in list(site.turns.items()):
        if len(turns) >= 2 and len(turns) * 2 >= program.turns[loop]:
            return loop[1], median(turns.values())
    return None


RULES: dict[str, Callable[[Facts], object]] = {
    "loop-of-a-library": lambda at: at.says(syntax.trains) and at.copies >= _OFTEN and (at.per_step or 1) > _RARE,
    "numbers-one-by-one": lambda at: at.is_read and at.together >= 3,
    "sum-on-the-host": lambda at: at.is_read and at.says(syntax.adds_up),
    "decision-on-the-host": lambda at: at.is_read and at.says(syntax.decides),
    "number-per-step": lambda at: at.is_read,
    "shown-per-step": lambda at: at.kind == "print" and at.is_often,
    "size-from-values": lambda at: at.kind == "size" and at.is_often,
    "index-from-the-host": lambda at: at.kind == "index" and at.is_often,
    "number-from-python": lambda at: at.is_own_number and at.repeats,
    "operand-elsewhere": lambda at: at.kind == "operand" and not at.is_own_number,
    "gradient-crosses": lambda at: at.kind == "gradient" and at.repeats and not at.is_own_number,
    "made-on-the-host": lambda at: at.is_sent and at.factory,
    "same-memory-again": lambda at: at.is_sent and at.is_same_memory and at.unchanged,
    "moved-in-the-loop": lambda at: at.kind == "copy" and at.repeats and not at.site.addresses and at.unchanged,
    "many-small": lambda at: (
        at.kind == "copy" and at.repeats and not at.is_preparation and at.together >= 4 and at.is_small
    ),
    "blocks-although-pinned": lambda at: at.is_sent_often and at.site.pinned == at.copies and not at.site.non_blocking,
    "unpinned-batches": lambda at: at.is_sent_often and not at.site.pinned,
    "fetched-per-step": lambda at: at.is_fetched and at.repeats and not at.is_rare,
}
"""The sorts of copies that can be avoided, and when a line makes one: a special case comes before the general one."""

ADVICE = dict(
    line.split(": ", 1) for line in Path(__file__).with_name("advice.txt").read_text(encoding="utf-8").splitlines()
)
"""What to write instead, for each rule; it may name facts: ``{at.together}``."""


def advice(at: Facts) -> tuple[str, str]:
    """The name of the first rule that applies, and what to write instead; empty where there is nothing to mend."""
    name = next((name for name, applies in RULES.items() if at.site.place is not None and applies(at)), "")
    return name, ADVICE[name].format(at=at) if name else ""
