"""A process's way into a collective: all processes meet before each, so that an engine never runs with one missing.

The processes let each other in where they can: over pipes within a host, and over lines between the first processes of
hosts, see `gathering`. The coordinator hears nothing of it as long as all goes well. Those that have waited for longer
than usual tell it; then it starts its clock, and says who is late. It is asked in every collective where there are no
pipes; otherwise where processes call different things, and at the end of the job.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from xdevice.distributed.asking import asking, bringing
from xdevice.distributed.entry import Entry
from xdevice.distributed.gathering import DIFFERENT, IN, NewsError, Patience
from xdevice.distributed.making import Making
from xdevice.distributed.periods import ANSWER, AT_GATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdevice.contract import Job
    from xdevice.distributed.gathering import Follower, Head
    from xdevice.distributed.lines import Line
    from xdevice.distributed.seat import Seat

PATIENCE = ANSWER / 3
"""After which a process tells the coordinator that it waits: before the coordinator has to know who does not."""

LAST = "shutdown"
"""The collective after which lines may close, which the coordinator must know."""

Answer = dict[str, Any] | None


class Gate:
    """Where one process waits until all may enter a collective."""

    def __init__(self, line: Line, seat: Seat, job: Job, note: Callable[[str], None] | None) -> None:
        self.line = line
        self._seat, self._job, self._note = seat, job, note  # ``note`` is told what has been entered
        self._way: Follower | Head | None = None  # None where the coordinator lets all in
        self._made = False

    def enter(self, entry: Entry, timeout: float) -> Answer:
        """The answer when all processes are here with the same entry, or the failure of the job.

        ``None`` once rank 0 has closed the line, and `TimeoutError` if it is silent for longer than it may be.
        """
        if not self._made:
            answer = self._make(timeout)
            if not answer or "entered" not in answer:
                return answer
        if self._way is None:
            return self._by_rank_0(asking(entry), timeout)
        return self._together(self._way, entry, timeout)

    def close(self) -> None:
        """Close this process's descriptors, and send nothing: also in a forked child."""
        if self._way is not None:
            self._way.close()
        self.line.close()

    def _together(self, way: Follower | Head, entry: Entry, timeout: float) -> Answer:
        told = False

        def tell() -> None:
            nonlocal told
            told = True
            self.line.say(**asking(entry, waited=first, number=way.number))

        first = min(PATIENCE, timeout / 4)
        patience = Patience(self.line.fileno(), first, timeout + AT_GATE, tell)
        try:
            answer = way.enter(_digest(entry), patience)
        except NewsError:
            return self.line.next(timeout)
        if answer != IN:
            return self._by_rank_0(asking(entry), timeout)
        if told:
            self.line.say(passed=way.number)
        if self._note is not None:
            self._note(entry.name)
        return {"entered": entry.name}

    def _by_rank_0(self, message: dict[str, Any], timeout: float) -> Answer:
        self.line.say(**message)
        return self.line.next(timeout + AT_GATE)

    def _make(self, timeout: float) -> Answer:
        """Find out whether the processes can let each other in; all of them can, or none is to try."""
        making = Making(self._seat, self._job, self.line.fileno())
        message = bringing(Entry("the search for its pipes"), making.offer(), making.wants())
        answer = self._by_rank_0(message, timeout)
        if answer and "entered" in answer:
            way = making.way(answer.get("brought")) if answer.get("all_bring") else None
            answer = self._by_rank_0(bringing(Entry("the opening of its pipes"), way is not None), timeout)
            if answer and answer.get("all_bring"):
                self._way, self._made = way, True
                return answer
        making.close()
        self._made = True
        return answer


def _digest(entry: Entry) -> bytes:
    """What processes compare; of the last collective nothing, so that they ask the coordinator."""
    if entry.name == LAST:
        return DIFFERENT
    text = "\0".join((entry.name, str(entry.count), entry.digest, *entry.tensors))
    return blake2b(text.encode(), digest_size=16).digest()
