"""The copies of a program by line, and in which step and which turn of a loop each was made."""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from xdevice.contract import Kind
from xdevice.device import Device
from xdevice.transfers.callers import Loop
from xdevice.transfers.syntax import Place
from xdevice.transfers.watching import CopyEvent, Listener

Key = TypeVar("Key")
Counts: TypeAlias = defaultdict[Key, int]  # faster than a Counter
_MAX_MARKS = 64  # for each line


class Site:
    """A line that makes copies of one kind, from one device to another."""

    def __init__(self, event: CopyEvent) -> None:
        copy = event.copy
        self.place = event.place
        self.library = event.library
        self.owner = event.owner
        self.allowed = event.allowed
        self.kind: Kind = copy.kind
        self.operation = copy.operation
        self.source = copy.source
        self.target = copy.target
        self.nbytes = 0
        # numbers of copies
        self.copies = 0
        self.pinned = 0
        self.non_blocking = 0
        self.ahead = 0
        self.replicating = 0
        self.marks = Counts[int](int)
        self.steps = Counts[int](int)  # by step
        self.turns = defaultdict[Loop, Counts[int]](lambda: Counts[int](int))  # by loop and turn

    def add(self, event: CopyEvent, step: int) -> None:
        copy = event.copy
        self.nbytes += copy.nbytes
        self.copies += 1
        self.pinned += copy.pinned
        self.non_blocking += copy.non_blocking
        self.ahead += event.is_ahead
        self.replicating += event.replicates
        self.steps[step] += 1
        for loop, turn in event.turns.items():
            self.turns[loop][turn] += 1
        if copy.mark and (copy.mark in self.marks or len(self.marks) < _MAX_MARKS):
            self.marks[copy.mark] += 1


class Recorder(Listener):
    """Every copy, by line.

    Steps are those of the first optimizer that makes one. While there is no
    optimizer, they are those of the first function that `value_and_grad` or
    `data_parallel` differentiates.
    """

    def __init__(self) -> None:
        self.sites: dict[tuple[Place | None, Place | None, Kind, Device, Device], Site] = {}
        self.steps = 0
        self.turns = Counts[Loop](int)  # turns in which something was copied, by loop
        self._last_turns: dict[Loop, int] = {}
        self._stepping_id: int | None = None  # the id of the optimizer, or of the function's code
        self._is_by_hand = False
        self._lock = threading.RLock()  # a finalizer that runs within a copy may copy

    def see(self, event: CopyEvent) -> None:
        copy = event.copy
        key = event.place, event.library, copy.kind, copy.source, copy.target
        with self._lock:
            site = self.sites.get(key)
            if site is None:
                site = self.sites[key] = Site(event)
            site.add(event, self.steps)
            for loop, turn in event.turns.items():
                if self._last_turns.get(loop) != turn:
                    self._last_turns[loop] = turn
                    self.turns[loop] += 1

    def stepped(self, optimizer: object) -> None:
        """Count a step, if the first optimizer seen made it."""
        with self._lock:
            if self._is_by_hand:
                self._forget_steps_by_hand()
            self._count(id(optimizer))

    def stepped_by_hand(self, fn: Callable[..., Any]) -> None:
        """Count a step, if there is no optimizer and this is the first function seen."""
        with self._lock:
            if self._stepping_id is None:
                self._is_by_hand = True
            if self._is_by_hand:
                # the code, because a program may make a lambda for each step
                self._count(id(getattr(fn, "__code__", fn)))

    def _forget_steps_by_hand(self) -> None:
        """Take the steps so far for parts of the optimizer's first step."""
        self._is_by_hand = False
        self._stepping_id = None
        self.steps = 0
        for site in self.sites.values():
            site.steps = Counts[int](int, {0: site.copies})

    def _count(self, stepping_id: int) -> None:
        if self._stepping_id is None:
            self._stepping_id = stepping_id
        if self._stepping_id == stepping_id:
            self.steps += 1
