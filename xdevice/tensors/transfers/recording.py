"""What a program copied: each line that copies, how often, and how often in a step or in a turn of its loop."""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from xdevice.contract import Copy, Kind
from xdevice.device import Device
from xdevice.tensors.transfers.callers import Caller
from xdevice.tensors.transfers.syntax import Place
from xdevice.tensors.transfers.watching import Event, Listener

Key = TypeVar("Key")
Loop = tuple[str, int, int]
"""A loop: its file, first and last line."""

_Counts = defaultdict[Key, int]  # quicker than a Counter
_MOST = 64  # addresses that are kept for each line


class Site:
    """A line that makes copies of one kind, from one device to another."""

    def __init__(self, event: Event) -> None:
        copy = event.copy
        self.place, self.owner, self.allowed = event.place, event.owner, event.allowed
        self.kind: Kind = copy.kind
        self.operation, self.source, self.target = copy.operation, copy.source, copy.target
        self.copies = self.nbytes = self.pinned = self.non_blocking = 0
        self.addresses = _Counts[int](int)
        self.steps = _Counts[int](int)  # copies in each step
        # copies in each turn of each loop around the line
        self.turns = defaultdict[Loop, _Counts[int]](lambda: _Counts[int](int))

    def add(self, copy: Copy, step: int, turns: dict[Loop, int]) -> None:
        self.copies += 1
        self.nbytes += copy.nbytes
        self.pinned += copy.pinned
        self.non_blocking += copy.non_blocking
        self.steps[step] += 1
        for loop, turn in turns.items():
            self.turns[loop][turn] += 1
        if copy.address and (copy.address in self.addresses or len(self.addresses) < _MOST):
            self.addresses[copy.address] += 1


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
            site.add(copy, self.steps, self._turned(event.callers))

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
                is_new = inner is None or not isinstance(inner.f_trace, _Mark)  # another call; one in C always is
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
