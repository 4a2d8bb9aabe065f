"""How a process joins those that let each other in: it opens its host's pipes, and lines to other hosts."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Any

from xdevice.distributed.gathering import Follower, Head
from xdevice.distributed.heads import accepted, connected, place_of
from xdevice.distributed.periods import PROVING
from xdevice.distributed.pipes import MOST, Pipes
from xdevice.distributed.ports import listening
from xdevice.distributed.proof import UnprovedError
from xdevice.distributed.token import found
from xdevice.errors import XDeviceError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from xdevice.contract import Job
    from xdevice.distributed.seat import Seat


class Making:
    """What one process makes: first what it offers to the others, then its own part with what they offer."""

    def __init__(self, seat: Seat, job: Job, line: int) -> None:
        self._seat, self._line = seat, line
        self._place, self._address = place_of(seat.rank, job), job.hosts[seat.rank]
        self._opened: list[Callable[[], None]] = []  # what closes it again

    def offer(self) -> dict[str, Any]:
        """What this process offers the others, if it is the head of its host; empty if it can have no part."""
        place = self._place
        if place.together > MOST or not hasattr(select, "poll"):
            return {}
        if place.head != self._seat.rank:
            return {"head": place.head}
        try:
            self._pipes = Pipes.made()
            self._opened.append(self._pipes.close)
            offer = self._pipes.offer()
            if place.children:
                found(self._seat)  # without a token nothing listens
                self._listener = listening(self._address, 0)
                self._opened.append(self._listener.close)
                offer["at"] = self._address, self._listener.getsockname()[1]
        except (OSError, XDeviceError):
            return {}
        return offer

    def wants(self) -> list[int]:
        """The ranks whose offers this process has to know."""
        place = self._place
        return [place.head, *([] if place.parent is None or place.head != self._seat.rank else [place.parent])]

    def way(self, brought: Any) -> Follower | Head | None:
        """This process's part, with what those ranks offer; ``None`` if it cannot have one."""
        try:
            return self._joined(brought)
        except (OSError, UnprovedError, XDeviceError, LookupError, TypeError, ValueError):
            return None

    def _joined(self, brought: list[dict[str, Any]]) -> Follower | Head:
        place, deadline = self._place, time.monotonic() + PROVING
        if place.head != self._seat.rank:
            pipes = Pipes.opened(brought[0])
            self._opened.append(pipes.close)
            return Follower(pipes, self._line)
        parent: socket.socket | None = None
        children: list[socket.socket] = []
        if place.parent is not None:
            host, port = brought[1]["at"]
            parent = connected((host, port), found(self._seat), deadline)
            self._opened.append(parent.close)
        if place.children:
            children = accepted(self._listener, found(self._seat), len(place.children), deadline)
            self._opened += [child.close for child in children]
        return Head(self._pipes, place.together - 1, parent, children, self._line)

    def close(self) -> None:
        """Close everything: the processes go another way."""
        for close in self._opened:
            close()
