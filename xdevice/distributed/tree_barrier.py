"""The tree barrier: how the processes of a job find out that all enter the same collective, without rank 0's thread.

Each process asks the leader of its host; a leader that has heard all of its host, and all leaders below it, asks the
leader above. The root, rank 0, answers, and the answer goes down the same way. A request is the number of the
collective and a digest of what is called; those of a subtree become one. Where two differ, the root answers that all
are to ask the coordinator, which says which rank is wrong; it also finds out who is late or has gone: see `Wait`.

Within a host they use pipes: the leader makes three, and the others open them by way of ``/proc``, which admits only
processes of the same user: there is no file. Each process writes one record for each collective into the first, and
reads one byte from one of the other two: odd and even collectives have one each, or a fast process would take a slow
one's byte.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

RECORD = struct.Struct(
    "=I16s"
)  # what a process asks: the collective's number, and a digest of what it calls
MISMATCH = bytes(16)  # in place of a digest: the processes below do not ask for the same
ENTER, ASK_RANK_0 = b"+", b"?"  # the root's answers
MAX_PROCESSES = (
    2048  # of a host: their records and bytes fit into the 64 KiB of a pipe, so no write blocks
)


class Pipes:
    def __init__(self, descriptors: list[int], owned: list[int]) -> None:
        self.requests, *self._answers = descriptors
        self._owned, self.close = owned, partial(_close, owned)

    @classmethod
    def made(cls, processes: int) -> Pipes:
        """New pipes, in the leader of so many processes; `OSError` for too many, or if no descriptors are left."""
        if processes > MAX_PROCESSES:
            raise OSError("too many processes for one pipe")
        owned: list[int] = []
        with ExitStack() as undo:
            undo.callback(_close, owned)
            for _ in range(3):
                owned += os.pipe()
            undo.pop_all()
        readers, writers = owned[::2], owned[1::2]
        return cls([readers[0], *writers[1:]], owned)

    def offer(self) -> dict[str, Any]:
        """What the other processes of the host need to open the pipes."""
        readers = self._owned[::2]
        return {
            "pid": os.getpid(),
            "pipes": readers,
            "inodes": [os.fstat(reader).st_ino for reader in readers],
        }

    @classmethod
    def opened(cls, offer: dict[str, Any]) -> Pipes:
        """The pipes of the leader that has made this offer; `OSError` on another host, or in another container."""
        owned: list[int] = []
        with ExitStack() as undo:
            undo.callback(_close, owned)
            for number, inode in zip(offer["pipes"], offer["inodes"], strict=True):
                # read-write: opening does not wait for the other end, and a leader that ends leaves no end of file
                owned.append(
                    os.open(f"/proc/{offer['pid']:d}/fd/{number:d}", os.O_RDWR | os.O_NONBLOCK)
                )
                if (
                    os.fstat(owned[-1]).st_ino != inode
                ):  # where a process has the same number in another container
                    raise OSError("another process's file")
            undo.pop_all()
        return cls(owned, owned)

    def answers(self, number: int) -> int:
        return self._answers[number % 2]


def _close(descriptors: list[int]) -> None:
    while descriptors:
        with suppress(OSError):
            os.close(descriptors.pop())


class InterruptedByRank0Error(Exception):
    """Rank 0 has sent a message."""


class Wait:
    """How long a process waits: ``at_first``, then it calls ``tell``; at the end, or at a message, it raises.

    The root calls ``count`` when all have asked, before any other process can go on.
    """

    def __init__(
        self,
        channel: int,
        at_first: float,
        at_most: float,
        tell: Callable[[], None],
        count: Callable[[], None],
    ) -> None:
        self._channel, self._tell, self.count, self.told = channel, tell, count, False
        began = time.monotonic()
        self._first, self._last = began + at_first, began + at_most

    def ready(self, descriptors: select.poll) -> list[int]:
        """The descriptors that can be read; `InterruptedByRank0Error` at a message of rank 0's, else `TimeoutError`."""
        while True:
            left = (self._last if self.told else self._first) - time.monotonic()
            found = [descriptor for descriptor, _ in descriptors.poll(max(0.0, 1000 * left))]
            if self._channel in found:
                raise InterruptedByRank0Error
            if found:
                return found
            if self.told:
                raise TimeoutError
            self.told = True
            self._tell()


class Follower:
    """A process that is not the leader of its host."""

    def __init__(self, pipes: Pipes, channel: int) -> None:
        self._pipes, self.number, self.close = pipes, 0, pipes.close
        self._polls = [_poll(channel, pipes.answers(number)) for number in range(2)]

    def ask(self, digest: bytes, _: Wait) -> None:
        self.number += 1
        os.write(self._pipes.requests, RECORD.pack(self.number, digest))

    def answer(self, wait: Wait) -> bool:
        """Whether all may enter: the root's answer, once it arrives."""
        while True:
            wait.ready(self._polls[self.number % 2])
            try:
                return os.read(self._pipes.answers(self.number), 1) == ENTER
            except BlockingIOError:
                continue


class Leader:
    """The first process of its host: it collects requests from its host and from the leaders below, and answers."""

    # ``parents`` is the connection to the leader above; empty at the root, which decides by itself
    def __init__(
        self,
        pipes: Pipes,
        others: int,
        parents: list[socket.socket],
        children: list[socket.socket],
        channel: int,
    ) -> None:
        self._pipes, self._others, self._parents, self._children = pipes, others, parents, children
        self.number, self._decided = 0, b""
        for one in (*children, *parents):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._due = {
            child.fileno(): RECORD.size for child in children
        }  # bytes of each in every collective
        if others:
            self._due[pipes.requests] = others * RECORD.size
        self._below = _poll(channel, *self._due)
        self._above = _poll(channel, *(parent.fileno() for parent in parents))

    def ask(self, digest: bytes, wait: Wait) -> None:
        """Ask the leader above for what all below this one ask for, once they have, this process included."""
        self.number += 1
        got, missing = dict.fromkeys(self._due, b""), set(self._due)
        while missing:
            for one in wait.ready(self._below):
                got[one] += self._read(one, max(1, self._due[one] - len(got[one])), self._below)
                if len(got[one]) >= self._due[one]:
                    missing.discard(one)
        own = RECORD.pack(self.number, digest)
        alike = all(
            records == own * (self._due[one] // RECORD.size) for one, records in got.items()
        )
        self._decided = ENTER if alike and digest != MISMATCH else ASK_RANK_0
        for parent in self._parents:
            with suppress(OSError):  # it has gone, and the coordinator will say so
                parent.send(own if alike else RECORD.pack(self.number, MISMATCH))

    def answer(self, wait: Wait) -> bool:
        """Whether all may enter: the root's answer, passed on to all below."""
        answer = b"" if self._parents else self._decided
        while not answer:
            for one in wait.ready(self._above):
                answer = self._read(one, 1, self._above)
        if not self._parents and answer == ENTER:
            wait.count()
        for child in self._children:
            with suppress(OSError):
                child.send(answer)
        if self._others:
            os.write(self._pipes.answers(self.number), answer * self._others)
        return answer == ENTER

    def close(self) -> None:
        self._pipes.close()
        for one in (*self._children, *self._parents):
            one.close()

    @staticmethod
    def _read(descriptor: int, count: int, descriptors: select.poll) -> bytes:
        """What has arrived; a descriptor that is closed is polled no longer, as the coordinator will report it."""
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
