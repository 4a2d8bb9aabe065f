"""The tree barrier: an agreement to enter a collective, without a coordinator.

Each process asks the leader of its host. A leader waits for all processes of
its host and for all leaders below it, and then asks the leader above. The
root, rank 0, answers, and the answer goes down the same way. A request is the
number of the collective and a digest of the call; a leader sends one for its
subtree. If two requests differ, the root answers that all are to ask the
coordinator, which says which rank is wrong. The coordinator also finds out who
is late or has gone: see `Wait`.

Within a host the processes use pipes. The leader makes three, and the others
open them through ``/proc``, which admits only processes of the same user: no
file is made. Each process writes one record for each collective into the first
pipe, and reads one byte from one of the other two. Odd and even collectives
have one pipe each; otherwise a fast process would take a slow one's byte.
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

# A request: the collective's number, and a digest of the call.
RECORD = struct.Struct("=I16s")
MISMATCH = bytes(16)  # in place of a digest: the processes below do not make the same call

# The root's answers
ENTER = b"+"
ASK_RANK_0 = b"?"

# Of a host: the records and bytes of so many fit into the 64 KiB of a pipe, so
# no write blocks.
MAX_PROCESSES = 2048


class Pipes:
    """The pipes of a host: one for requests, two for answers.

    Each process has one end of each.
    """

    def __init__(self, requests: int, answers: list[int], descriptors: list[int]) -> None:
        self.requests = requests
        self._answers = answers  # for even and for odd numbers
        self._descriptors = descriptors  # all descriptors to close
        self.close = partial(_close, descriptors)

    @classmethod
    def create(cls, processes: int) -> Pipes:
        """New pipes, for the leader of a host with so many processes.

        `OSError`: there are too many processes, or no descriptors are left.
        """
        if processes > MAX_PROCESSES:
            raise OSError("too many processes for one pipe")
        descriptors: list[int] = []
        with ExitStack() as undo:
            undo.callback(_close, descriptors)
            for _ in range(3):
                descriptors += os.pipe()
            undo.pop_all()
        readers = descriptors[::2]
        writers = descriptors[1::2]
        return cls(readers[0], writers[1:], descriptors)

    def offer(self) -> dict[str, Any]:
        """What the other processes of the host need to open these pipes."""
        readers = self._descriptors[::2]
        inodes = [os.fstat(reader).st_ino for reader in readers]
        return {"pid": os.getpid(), "pipes": readers, "inodes": inodes}

    @classmethod
    def open(cls, offer: dict[str, Any]) -> Pipes:
        """The pipes that a leader offers.

        `OSError` on another host, or in another container.
        """
        descriptors: list[int] = []
        with ExitStack() as undo:
            undo.callback(_close, descriptors)
            for number, inode in zip(offer["pipes"], offer["inodes"], strict=True):
                path = f"/proc/{offer['pid']:d}/fd/{number:d}"
                # Read-write: opening does not wait for the other end, and when
                # the leader ends there is no end of file.
                descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
                descriptors.append(descriptor)
                if os.fstat(descriptor).st_ino != inode:
                    # In another container another process has the leader's
                    # number.
                    raise OSError("another process's file")
            undo.pop_all()
        return cls(descriptors[0], descriptors[1:], descriptors)

    def answers(self, number: int) -> int:
        """The pipe for the answer to the collective of this number."""
        return self._answers[number % 2]


def _close(descriptors: list[int]) -> None:
    while descriptors:
        with suppress(OSError):
            os.close(descriptors.pop())


class InterruptedByRank0Error(Exception):
    """Rank 0 has sent a message."""


class Wait:
    """One wait for the tree, with rank 0's ``channel`` beside it.

    After ``patience`` seconds it calls ``tell_rank_0`` and goes on; after
    ``timeout`` seconds it raises. The root calls ``all_have_asked`` before any
    other process can go on.
    """

    def __init__(
        self,
        channel: int,
        patience: float,
        timeout: float,
        tell_rank_0: Callable[[], None],
        all_have_asked: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._tell_rank_0 = tell_rank_0
        self.all_have_asked = all_have_asked
        self.has_told_rank_0 = False
        began = time.monotonic()
        self._tell_at = began + patience
        self._deadline = began + timeout

    def ready(self, poll: select.poll) -> list[int]:
        """The descriptors that can be read.

        `InterruptedByRank0Error`: rank 0 has sent a message. `TimeoutError`:
        the wait is over.
        """
        while True:
            end = self._deadline if self.has_told_rank_0 else self._tell_at
            milliseconds = max(0.0, 1000 * (end - time.monotonic()))
            descriptors = [descriptor for descriptor, _ in poll.poll(milliseconds)]
            if self._channel in descriptors:
                raise InterruptedByRank0Error
            if descriptors:
                return descriptors
            if self.has_told_rank_0:
                raise TimeoutError
            self.has_told_rank_0 = True
            self._tell_rank_0()


class Follower:
    """A process that is not the leader of its host."""

    def __init__(self, pipes: Pipes, channel: int) -> None:
        self._pipes = pipes
        self.number = 0  # of the last collective
        self.close = pipes.close
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
    """The first process of its host.

    It collects the requests of its host and of the leaders below, and passes
    the answer on to them. ``parents`` is the connection to the leader above;
    it is empty at the root, which decides itself.
    """

    def __init__(
        self,
        pipes: Pipes,
        followers: int,
        parents: list[socket.socket],
        children: list[socket.socket],
        channel: int,
    ) -> None:
        self._pipes = pipes
        self._followers = followers
        self._parents = parents
        self._children = children
        self.number = 0  # of the last collective
        self._decision = b""
        for connection in (*children, *parents):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The bytes that each descriptor delivers in every collective.
        self._expected = {child.fileno(): RECORD.size for child in children}
        if followers:
            self._expected[pipes.requests] = followers * RECORD.size
        self._below = _poll(channel, *self._expected)
        self._above = _poll(channel, *(parent.fileno() for parent in parents))

    def ask(self, digest: bytes, wait: Wait) -> None:
        """Ask the leader above, once this process and those below have asked."""
        self.number += 1
        requests = self._requests_from_below(wait)
        own_record = RECORD.pack(self.number, digest)
        agree = all(
            records == own_record * (self._expected[descriptor] // RECORD.size)
            for descriptor, records in requests.items()
        )
        self._decision = ENTER if agree and digest != MISMATCH else ASK_RANK_0
        for parent in self._parents:
            with suppress(OSError):  # it has gone, and the coordinator will say so
                parent.send(own_record if agree else RECORD.pack(self.number, MISMATCH))

    def answer(self, wait: Wait) -> bool:
        """Whether all may enter: the root's answer, passed on to all below."""
        answer = b"" if self._parents else self._decision
        while not answer:
            for descriptor in wait.ready(self._above):
                answer = _read(descriptor, 1, self._above)
        if not self._parents and answer == ENTER:
            wait.all_have_asked()
        for child in self._children:
            with suppress(OSError):
                child.send(answer)
        if self._followers:
            os.write(self._pipes.answers(self.number), answer * self._followers)
        return answer == ENTER

    def close(self) -> None:
        self._pipes.close()
        for connection in (*self._children, *self._parents):
            connection.close()

    def _requests_from_below(self, wait: Wait) -> dict[int, bytes]:
        """The records of every descriptor, once all have arrived."""
        requests = dict.fromkeys(self._expected, b"")
        missing = set(self._expected)
        while missing:
            for descriptor in wait.ready(self._below):
                count = self._expected[descriptor] - len(requests[descriptor])
                # at least one byte, which finds out that the other end has
                # closed
                requests[descriptor] += _read(descriptor, max(1, count), self._below)
                if len(requests[descriptor]) >= self._expected[descriptor]:
                    missing.discard(descriptor)
        return requests


def _read(descriptor: int, count: int, poll: select.poll) -> bytes:
    """The data that has arrived.

    A closed descriptor is not polled again: the coordinator will report it.
    """
    try:
        data = os.read(descriptor, count)
    except BlockingIOError:
        return b""
    except OSError:
        data = b""
    if not data:
        poll.unregister(descriptor)
    return data


def _poll(*descriptors: int) -> select.poll:
    """A poll object that waits until one of the descriptors can be read."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll
