"""What a program copied: each line that copies, how often in a step or a turn of its loop, and what to write instead.

The advice, in advice.txt, is that of the first rule that applies to the line.
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

from xdevice.contract import Kind
from xdevice.device import Device
from xdevice.hardware.bus import Bus
from xdevice.kit.advice import read
from xdevice.tensors.transfers import syntax
from xdevice.tensors.transfers.callers import Caller
from xdevice.tensors.transfers.syntax import Place
from xdevice.tensors.transfers.watching import Event, Listener, named

Said = TypeVar("Said")
Key = TypeVar("Key")
Loop = tuple[str, int, int]  # its file, first and last line
_Counts = defaultdict[Key, int]  # quicker than a Counter
_MOST = 64  # marks that are kept for each line
_NUMBER = 8  # bytes of the largest number
_OFTEN = 3  # copies at one line that are taken for repeated although no step or loop is known
_NUMPYS = {"numpy", "random"}
_RARE = 0.2  # copies in a step, at most, of what is done now and then


class Site:
    """A line that makes copies of one kind, from one device to another."""

    def __init__(self, event: Event) -> None:
        copy = event.copy
        self.place, self.owner, self.allowed = event.place, event.owner, event.allowed
        self.kind: Kind = copy.kind
        self.operation, self.source, self.target = copy.operation, copy.source, copy.target
        self.copies = self.nbytes = self.pinned = self.non_blocking = self.ahead = 0
        self.replicating = 0
        self.marks = _Counts[int](int)
        self.steps = _Counts[int](int)  # copies in each step
        # copies in each turn of each loop around the line
        self.turns = defaultdict[Loop, _Counts[int]](lambda: _Counts[int](int))

    def add(self, event: Event, step: int, turns: dict[Loop, int]) -> None:
        copy = event.copy
        self.copies += 1
        self.ahead += event.is_ahead
        self.replicating += event.replicates
        self.nbytes += copy.nbytes
        self.pinned += copy.pinned
        self.non_blocking += copy.non_blocking
        self.steps[step] += 1
        for loop, turn in turns.items():
            self.turns[loop][turn] += 1
        if copy.mark and (copy.mark in self.marks or len(self.marks) < _MOST):
            self.marks[copy.mark] += 1


class Recorder(Listener):
    """Every copy, by line; turns of loops by the order of events.

    Steps are those of the first optimizer that makes one; of the first function that `value_and_grad` or
    `data_parallel` differentiates, while there is no optimizer.
    """

    def __init__(self) -> None:
        self.sites: dict[tuple[Place | None, Kind, Device, Device], Site] = {}
        self.steps = 0
        self.turns = _Counts[Loop](int)  # of each loop in which something was copied
        self._stepping: int | None = None  # the optimizer, or the function's code
        self._by_hand = False
        self._lock = threading.Lock()

    def see(self, event: Event) -> None:
        copy = event.copy
        key = event.place, copy.kind, copy.source, copy.target
        with self._lock:
            site = self.sites.get(key)
            if site is None:
                site = self.sites[key] = Site(event)
            site.add(event, self.steps, self._turned(event.callers))

    def stepped(self, optimizer: object) -> None:
        """Count a step, where it is that of the first optimizer seen."""
        with self._lock:
            if self._by_hand:  # the steps before were parts of its first
                self.steps, self._by_hand, self._stepping = 0, False, None
                for site in self.sites.values():
                    site.steps = _Counts[int](int, {0: site.copies})
            self._count(id(optimizer))

    def stepped_by_hand(self, fn: Callable[..., Any]) -> None:
        """Count a step, where no optimizer has made one and it is that of the first function seen."""
        with self._lock:
            self._by_hand = self._by_hand or self._stepping is None
            if self._by_hand:
                self._count(id(getattr(fn, "__code__", fn)))  # a lambda may be made for each step

    def _count(self, stepping: int) -> None:
        if self._stepping is None:
            self._stepping = stepping
        self.steps += self._stepping == stepping

    def _turned(self, callers: Sequence[Caller]) -> dict[Loop, int]:
        """The turn of each loop around the callers' lines. Empty while a debugger traces, which has the marks' place.

        A frame that is at an earlier instruction than at its last copy has gone round a loop, the innermost that
        encloses both; so has one that is at the same instruction, within another call.
        """
        if sys.gettrace() is not None:
            return {}
        now: dict[Loop, int] = {}
        for frame, spot, inner in callers:
            around = spot.loops
            if not around:
                continue  # it cannot go back
            mark = frame.f_trace
            if not isinstance(mark, _Mark):
                begun = around
            elif frame.f_lasti == mark.instruction:
                is_new = inner is None or not isinstance(
                    inner.f_trace, _Mark
                )  # another call; one in C always is
                begun = around[:is_new]
            else:
                shared = [loop for loop in around if loop[1] <= mark.line <= loop[2]]
                has_gone_round = frame.f_lasti < mark.instruction
                begun = (*(loop for loop in around if loop not in shared), *shared[:has_gone_round])
            for loop in begun:
                self.turns[loop] += 1
            for loop in around:
                now[loop] = self.turns[loop]
        for frame, spot, inner in callers:
            if spot.loops:
                frame.f_trace = _Mark(frame.f_lasti, spot.place.line)
                if inner is not None and not isinstance(inner.f_trace, _Mark):
                    inner.f_trace = _Mark(-1, 0)
        return now


class _Mark:
    """Left on a frame, as its trace function: where it was when it last made a copy. It goes with the frame."""

    def __init__(self, instruction: int, line: int) -> None:
        self.instruction, self.line = instruction, line

    def __call__(self, *event: object) -> None:
        """A debugger that begins later calls it, once."""


class Facts:
    """A line and its program, as rules see them."""

    def __init__(self, site: Site, program: Recorder, bus: Bus) -> None:
        self.site, self.kind, self.copies = site, site.kind, site.copies
        self.source, self.to = named(site.source), named(site.target)
        self.per_step = _per_step(site, program)
        self.per_turn = _per_turn(site, program)
        self.repeats = self.per_step is not None or self.per_turn is not None
        self.together = int(
            self.per_step or (self.per_turn[1] if self.per_turn else 0)
        )  # copies in one step, or turn
        self.period = "step" if self.per_step is not None else "turn"
        # all before the first of several steps, as a model is
        self.is_preparation = program.steps > 1 and self.per_step is None and set(site.steps) == {0}
        self.is_sent = self.kind == "copy" and self.source == "host"  # by the program
        self.birthplace = "the CPU" if self.source == "host" else self.source
        # the target, for the words of a framework
        self.to_kind, self.to_index = site.target.kind, site.target.index
        self.is_across = self.kind == "copy" and "host" not in (self.source, self.to)
        self.is_fetched = self.kind == "copy" and self.to == "host"
        self.is_number = site.nbytes <= self.copies * _NUMBER
        self.is_small = (
            site.nbytes / self.copies / bus.bandwidth < bus.latency
        )  # it takes longer to begin than to make
        # what makes the tensor that the line moves, and what it moves although the loop does not change it
        self.factory, self.unchanged = self.says(syntax.factory), self.says(syntax.unchanged) or ""
        # five steps or a loop come before it, or an `if`, which may let only some turns pass
        self.is_rare = self.says(syntax.follows_loop) or self.says(syntax.is_conditional)
        is_beside_loop = self.is_rare or self.says(syntax.precedes_loop)
        if self.per_step is not None:
            self.is_rare = self.per_step <= _RARE or (self.per_step < 1 and is_beside_loop)
        # again and again, as far as is known
        self.is_often = (self.repeats or self.copies >= _OFTEN) and not self.is_rare
        # in each step or turn, but for what the program prepares
        is_each_time = self.repeats and not (
            is_beside_loop if self.per_step is None else self.is_rare
        )
        self.is_sent_often = (
            self.is_sent
            and is_each_time
            and not (self.is_preparation or site.ahead == site.copies or self.says(syntax.builds))
        )
        # single numbers, which the framework sends and the line does not ask it to move
        is_moved = self.says(syntax.moves) and site.operation not in syntax.FACTORIES
        by_itself = self.kind in ("operand", "gradient") or (self.is_sent and not is_moved)
        self.is_own_number = self.source == "host" and self.is_number and by_itself
        self.is_read = (
            self.kind == "number" or (self.is_fetched and self.is_number)
        ) and self.is_often
        # every copy but the first sends values that were sent before
        sent, different = sum(site.marks.values()), len(site.marks)
        is_again = sent == self.copies > different and self.copies >= 2 * different
        self.is_same = is_again and bool(
            self.unchanged or (different == 1 and self.copies >= _OFTEN)
        )
        self.it = self.unchanged or "it"

    @property
    def is_made_here(self) -> bool:
        """Whether a factory makes what the line moves: in the line, or in one before it of the same turn."""
        return self.factory is not None and (self.factory.is_in_line or self.repeats)

    @property
    def is_numpys(self) -> bool:
        """Whether NumPy, or a generator of its numbers, has made what is sent."""
        made = self.factory
        return made is not None and (
            made.module in _NUMPYS or (not made.module and "." in made.name)
        )

    @property
    def often(self) -> str:
        """How often, in words; empty where it is not known."""
        per_step = self.per_step
        if per_step is not None:
            return f"{per_step:g} a step" if per_step >= 1 else f"1 every {1 / per_step:.0f} steps"
        return (
            f"{self.per_turn[1]:g} each turn of the loop in line {self.per_turn[0]}"
            if self.per_turn
            else ""
        )

    def says(self, question: Callable[[Place], Said]) -> Said | None:
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
    """The first line of the innermost loop that copies in most of its turns, and the copies in a turn.

    A comprehension in the line itself is one only where there is no other.
    """
    if site.place is None or syntax.is_conditional(site.place):
        return None  # turns in which nothing is copied are not counted
    first, last = syntax.statement(site.place)
    found: list[tuple[int, float, bool]] = []
    for loop, turns in list(site.turns.items()):
        if len(turns) >= 2 and len(turns) * 2 >= program.turns[loop]:
            found.append((loop[1], median(turns.values()), first <= loop[1] and loop[2] <= last))
    return min(found, key=lambda each: each[2], default=(0, 0.0, False))[:2] if found else None


RULES: dict[str, Callable[[Facts], object]] = {
    "loop-of-a-library": lambda at: (
        at.says(syntax.trains) and at.copies >= _OFTEN and (at.per_step or 1) > _RARE
    ),
    "numbers-one-by-one": lambda at: at.is_read and at.together >= 3,
    "sum-on-the-host": lambda at: at.is_read and at.says(syntax.adds_up),
    "decision-on-the-host": lambda at: at.is_read and at.says(syntax.decides),
    "number-per-step": lambda at: at.is_read,
    "shown-per-step": lambda at: at.kind == "print" and at.is_often,
    "size-not-given": lambda at: at.kind == "size" and at.is_often and at.says(syntax.is_counted),
    "size-from-values": lambda at: at.kind == "size" and at.is_often,
    "index-from-the-host": lambda at: at.kind == "index" and at.is_often,
    "number-from-python": lambda at: at.is_own_number and at.repeats,
    "operand-elsewhere": lambda at: at.kind == "operand" and not at.is_own_number,
    "replicated-each-step": lambda at: at.repeats and at.site.replicating == at.copies,
    "gradient-crosses": lambda at: at.kind == "gradient" and at.repeats and not at.is_own_number,
    "made-by-numpy": lambda at: at.is_sent and at.repeats and at.factory and at.is_numpys,
    "made-on-the-host": lambda at: (
        (at.is_sent or at.is_across) and at.is_made_here and not at.is_numpys
    ),
    "same-values-again": lambda at: at.is_sent and at.is_same and not at.is_rare,
    "moved-in-the-loop": lambda at: (
        at.kind == "copy" and at.repeats and not at.site.marks and at.unchanged
    ),
    "built-of-numbers": lambda at: at.is_sent_often and at.says(syntax.is_literal),
    "between-gpus": lambda at: (
        at.is_across and at.repeats and not (at.is_preparation or at.is_rare)
    ),
    "many-small": lambda at: (
        at.kind == "copy"
        and at.repeats
        and not at.is_preparation
        and at.together >= 4
        and at.is_small
    ),
    "blocks-although-pinned": lambda at: (
        at.is_sent_often and at.site.pinned == at.copies and not at.site.non_blocking
    ),
    "waits-although-unpinned": lambda at: (
        at.is_sent_often and at.site.non_blocking and not at.site.pinned
    ),
    "unpinned-batches": lambda at: (
        at.is_sent_often and not (at.site.pinned or at.site.non_blocking)
    ),
    "fetched-per-step": lambda at: at.is_fetched and at.repeats and not at.is_rare,
}
"""The sorts of copies that can be avoided, and when a line makes one: a special case comes before the general one."""

ADVICE = read(__file__)
"""What to write instead, for each rule; it may name facts: ``{at.together}``."""


def advice(at: Facts, words: Mapping[str, str]) -> tuple[str, str]:
    """The name of the first rule that applies, and what to write instead; empty where there is nothing to mend.

    The words are the framework's own, by rule. A rule without any, here or there, is not for this framework.
    """
    spoken = {**ADVICE, **words}
    if at.factory is not None and at.factory.module == "xdevice":
        spoken["made-on-the-host"] = ADVICE["made-on-the-host"]
    known = at.site.place is not None
    name = next(
        (name for name, applies in RULES.items() if known and name in spoken and applies(at)), ""
    )
    return name, spoken[name].format(at=at) if name else ""
