"""How the processes of a job find out that all of them ask for the same collective, without a word to rank 0.

Each asks the head of its host; a head that has heard all of its host, and all heads below it, asks the head above.
The root, which is rank 0, answers, and the answer goes down the same way. A request is the number of the collective
and a digest of what is called, and all of a host or a subtree become one. Where two differ, the root answers that all
are to ask the coordinator, which compares descriptions and says who is wrong.

Nothing here says who is late or has gone. A process that waits for longer than is usual tells the coordinator, and
the coordinator's news end the waiting: `Patience` is both.
"""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from xdevice.distributed.pipes import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdevice.distributed.pipes import Pipes

IN, ASK_RANK_0 = b"+", b"?"
"""The root's answers."""

DIFFERENT = bytes(16)
"""In place of a digest: the processes below do not ask for the same."""


class NewsError(Exception):
    """Rank 0 has something to say."""


class Patience:
    """How long a process waits: ``at_first``, then it calls ``tell``; at the end, or when rank 0 speaks, it raises."""

    def __init__(self, line: int, at_first: float, at_most: float, tell: Callable[[], None]) -> None:
        self._line, self._tell = line, tell
        began = time.monotonic()
        self._ends = [began + at_most, began + at_first]

    def wait(self, descriptors: select.poll) -> list[int]:
        """The descriptors that are ready, of which rank 0's line is one.

        Raises
        ------
        NewsError
            Rank 0 has something to say.
        TimeoutError
            The time is over.
        """
        while True:
            left = self._ends[-1] - time.monotonic()
            ready = [descriptor for descriptor, _ in descriptors.poll(max(0.0, 1000 * left))]
            if self._line in ready:
                raise NewsError
            if ready:
                return ready
            if len(self._ends) == 1:
                raise TimeoutError
            self._ends.pop()
            self._tell()


class Follower:
    """A process that is not the head of its host."""

    def __init__(self, pipes: Pipes, line: int) -> None:
        self._pipes, self.number = pipes, 0
        self._polls = [_poll(line, pipes.answers(number)) for number in range(2)]

    def ask(self, digest: bytes) -> None:
        self.number += 1
        os.write(self._pipes.asks, RECORD.pack(self.number, digest))

    def answer(self, patience: Patience) -> bytes:
        """The root's answer, once it comes."""
        while True:
            patience.wait(self._polls[self.number % 2])
            try:
                return os.read(self._pipes.answers(self.number), 1)
            except BlockingIOError:
                continue

    def enter(self, digest: bytes, patience: Patience) -> bytes:
        """Ask, and return the root's answer."""
        self.ask(digest)
        return self.answer(patience)

    def close(self) -> None:
        self._pipes.close()


class Head:
    """The first process of its host: it hears its host and the heads below, and lets them in when it is let in."""

    def __init__(
        self, pipes: Pipes, others: int, parent: socket.socket | None, children: list[socket.socket], line: int
    ) -> None:
        self._pipes, self._others, self._parent, self._children = pipes, others, parent, children
        self.number, self._decided = 0, b""
        for one in [*children, *([parent] if parent is not None else [])]:
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._due = {child.fileno(): RECORD.size for child in children}  # bytes of each in every collective
        if others:
            self._due[pipes.asks] = others * RECORD.size
        self._below = _poll(line, *self._due)
        self._above = _poll(line, *([parent.fileno()] if parent is not None else []))

    def gather(self, digest: bytes, patience: Patience) -> bytes:
        """Return when all below this head have asked: for what they ask, this head included."""
        self.number += 1
        got, missing = dict.fromkeys(self._due, b""), set(self._due)
        while missing:
            for one in patience.wait(self._below):
                part = self._read(one, max(1, self._due[one] - len(got[one])), self._below)
                got[one] += part
                if len(got[one]) >= self._due[one]:
                    missing.discard(one)
        own = RECORD.pack(self.number, digest)
        alike = all(said == own * (self._due[one] // RECORD.size) for one, said in got.items())
        return digest if alike else DIFFERENT

    def ask(self, found: bytes) -> None:
        """Ask the head above for what was gathered; the root decides by itself."""
        self._decided = ASK_RANK_0 if found == DIFFERENT else IN
        if self._parent is not None:
            with suppress(OSError):  # it has gone, of which there will be news
                self._parent.send(RECORD.pack(self.number, found))

    def answer(self, patience: Patience) -> bytes:
        """The root's answer, once it comes."""
        said = self._decided if self._parent is None else b""
        while not said:
            for one in patience.wait(self._above):
                said = self._read(one, 1, self._above)
        return said

    def let_in(self, answer: bytes) -> None:
        """Pass the root's answer on to all below this head."""
        for child in self._children:
            with suppress(OSError):
                child.send(answer)
        if self._others:
            os.write(self._pipes.answers(self.number), answer * self._others)

    def enter(self, digest: bytes, patience: Patience) -> bytes:
        """Gather, ask, pass the root's answer on, and return it."""
        self.ask(self.gather(digest, patience))
        answer = self.answer(patience)
        self.let_in(answer)
        return answer

    def close(self) -> None:
        self._pipes.close()
        for one in (*self._children, *([self._parent] if self._parent is not None else [])):
            one.close()

    @staticmethod
    def _read(descriptor: int, count: int, descriptors: select.poll) -> bytes:
        """What has come; one that has been closed is waited for no longer, since there will be news of it."""
        try:
            part = os.read(descriptor, count)
        except BlockingIOError:
            return b""
        except OSError:
            part = b""
        if not part:
            descriptors.unregister(descriptor)
        return part


def _poll(*descriptors: int) -> select.poll:
    found = select.poll()
    for descriptor in descriptors:
        found.register(descriptor, select.POLLIN)
    return found
