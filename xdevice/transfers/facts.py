"""What the rules of advice ask about a line that copies."""

from collections.abc import Callable
from functools import cached_property
from statistics import median
from typing import NamedTuple

from xdevice.hardware.bus import Bus
from xdevice.transfers import syntax
from xdevice.transfers.recorder import Recorder, Site
from xdevice.transfers.syntax import Factory, Place
from xdevice.transfers.watching import device_label

REPEATED = 3  # copies that count as repeated where no step and no loop is known
RARE = 0.2  # copies in a step, at most, of what a program does now and then
_NUMBER_NBYTES = 8  # of the largest number
_NUMPY_MODULES = {"numpy", "random"}


class PerTurn(NamedTuple):
    """How many copies a line makes in each turn of a loop."""

    line: int  # the first one of the loop
    copies: float


class Facts:
    """A line that copies, and its program, as rules see them."""

    def __init__(self, site: Site, program: Recorder, bus: Bus) -> None:
        self.site = site
        self.copies = site.copies
        self.kind = site.kind
        self.source = device_label(site.source)
        self.to = device_label(site.target)
        self._program = program
        self._bus = bus

    # How often

    @cached_property
    def per_step(self) -> float | None:
        """Copies in a step of the optimizer.

        Below 1 where only some steps copy; None where it is not known.
        """
        steps = self._program.steps
        counts = list(self.site.steps.values())
        if steps < 2 or len(counts) < 2:
            return None
        if len(counts) * 2 > steps:
            return float(median(counts))
        if max(counts) == 1:
            return self.site.copies / steps
        return None

    @cached_property
    def per_turn(self) -> PerTurn | None:
        """Copies in a turn of the innermost loop that copies in most of its turns.

        A comprehension in the line itself counts only where there is no other
        loop.
        """
        place = self.site.place
        if place is None or syntax.is_conditional(place):
            return None  # turns without a copy are not counted
        first, last = syntax.statement(place)
        within_line: PerTurn | None = None
        for loop, turns in list(self.site.turns.items()):
            if len(turns) < 2 or len(turns) * 2 < self._program.turns[loop]:
                continue
            per_turn = PerTurn(loop.first, median(turns.values()))
            if not (first <= loop.first and loop.last <= last):
                return per_turn
            within_line = within_line or per_turn
        return within_line

    @property
    def often(self) -> str:
        """How often, in words; empty where it is not known."""
        if self.per_step is not None:
            if self.per_step >= 1:
                return f"{self.per_step:g} a step"
            return f"1 every {1 / self.per_step:.0f} steps"
        if self.per_turn is not None:
            return f"{self.per_turn.copies:g} each turn of the loop in line {self.per_turn.line}"
        return ""

    @property
    def period(self) -> str:
        if self.per_step is None:
            return "turn"
        return "step"

    @property
    def together(self) -> int:
        """Copies in one step, or turn."""
        if self.per_step:
            return int(self.per_step)
        return int(self.per_turn.copies) if self.per_turn else 0

    @property
    def repeats(self) -> bool:
        """Whether the line copies in several steps or turns."""
        return self.per_step is not None or self.per_turn is not None

    @cached_property
    def is_rare(self) -> bool:
        """Whether only some steps or turns copy."""
        if self.per_step is not None:
            return self.per_step <= RARE or (self.per_step < 1 and self._is_beside_loop)
        return self._may_be_skipped

    @property
    def is_often(self) -> bool:
        """Whether the line copies again and again, as far as is known."""
        return (self.repeats or self.copies >= REPEATED) and not self.is_rare

    @property
    def is_preparation(self) -> bool:
        """Whether the program copied before the first of several steps only, as it does a model."""
        is_before_steps = self.per_step is None and set(self.site.steps) == {0}
        return self._program.steps > 1 and is_before_steps

    @property
    def _is_each_time(self) -> bool:
        """Whether most steps or turns copy."""
        if self.per_step is not None:
            return not self.is_rare
        return self.per_turn is not None and not self._is_beside_loop

    @cached_property
    def _may_be_skipped(self) -> bool:
        """Whether a loop comes before the line, or an ``if`` decides on it."""
        return self.line_is(syntax.follows_loop) or self.line_is(syntax.is_conditional)

    @property
    def _is_beside_loop(self) -> bool:
        return self._may_be_skipped or self.line_is(syntax.precedes_loop)

    # Where from and where to

    @property
    def birthplace(self) -> str:
        if self.source == "host":
            return "the CPU"
        return self.source

    @property
    def to_kind(self) -> str:
        """The target's kind, for the words of a framework."""
        return self.site.target.kind

    @property
    def to_index(self) -> int:
        return self.site.target.index

    @property
    def is_sent(self) -> bool:
        """Whether the program sends something from the host."""
        return self.kind == "copy" and self.source == "host"

    @property
    def is_fetched(self) -> bool:
        """Whether the program brings something to the host."""
        return self.kind == "copy" and self.to == "host"

    @property
    def is_across(self) -> bool:
        """Whether the program copies between two GPUs."""
        return self.kind == "copy" and "host" not in (self.source, self.to)

    @property
    def is_sent_often(self) -> bool:
        """Whether each step or turn sends something that the program has not prepared."""
        if not self.is_sent or not self._is_each_time or self.is_preparation:
            return False
        is_prefetched = self.site.ahead == self.site.copies
        return not is_prefetched and not self.line_is(syntax.builds)

    # What

    @property
    def is_number(self) -> bool:
        return self.site.nbytes <= self.copies * _NUMBER_NBYTES

    @property
    def is_small(self) -> bool:
        """Whether the copy takes longer to begin than to make."""
        return self.site.nbytes / self.copies / self._bus.bandwidth < self._bus.latency

    @property
    def is_read(self) -> bool:
        """Whether Python reads a number again and again."""
        is_number = self.kind == "number" or (self.is_fetched and self.is_number)
        return is_number and self.is_often

    @property
    def is_own_number(self) -> bool:
        """Whether the framework sends a single number that the line does not ask it to move."""
        if self.source != "host" or not self.is_number:
            return False
        if self.kind in ("operand", "gradient"):
            return True
        is_moved = self.line_is(syntax.moves) and self.site.operation not in syntax.FACTORIES
        return self.is_sent and not is_moved

    @property
    def is_same(self) -> bool:
        """Whether copies send values again that were sent before."""
        marked_copies = sum(self.site.marks.values())
        values = len(self.site.marks)
        is_again = marked_copies == self.copies > values and self.copies >= 2 * values
        is_one_value = values == 1 and self.copies >= REPEATED
        return is_again and (bool(self.unchanged) or is_one_value)

    @cached_property
    def unchanged(self) -> str:
        """What the line moves although the loop does not change it; empty if there is none."""
        place = self.site.place
        if place is None:
            return ""
        return syntax.unchanged(place)

    @property
    def moved_value(self) -> str:
        return self.unchanged or "it"

    @cached_property
    def factory(self) -> Factory | None:
        """What makes the tensor that the line moves."""
        place = self.site.place
        if place is None:
            return None
        return syntax.factory(place)

    @property
    def is_made_here(self) -> bool:
        """Whether a factory makes it in the line, or in one before it of the same turn."""
        return self.factory is not None and (self.factory.is_in_line or self.repeats)

    @property
    def is_numpys(self) -> bool:
        """Whether NumPy, or a generator of its numbers, has made what is sent."""
        factory = self.factory
        if factory is None:
            return False
        if factory.module:
            return factory.module in _NUMPY_MODULES
        return "." in factory.name

    def line_is(self, question: Callable[[Place], bool]) -> bool:
        """Whether the line is known, and the answer for it is yes."""
        return self.site.place is not None and question(self.site.place)
