"""The barrier before each collective, so that an engine never runs with a process missing.

Where they can, the processes use a tree barrier, of which the coordinator hears nothing as long as all goes well. Those
that have waited for longer than usual tell it; then it starts its clock, and says which rank is late. It lets the
processes in itself where there are no pipes, where they call different things, and at the end of the job.
"""

import select
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from xdevice.contract import Job
from xdevice.distributed.failures import ANSWER, BARRIER_MARGIN, HANDSHAKE
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.authentication import Acceptor, Connection, HandshakeError, connected, find_token
from xdevice.distributed.rendezvous.messages import Channel, Fingerprint, Request
from xdevice.distributed.rendezvous.ports import listening
from xdevice.distributed.tree_barrier import (
    ENTER,
    MAX_PROCESSES,
    MISMATCH,
    Follower,
    InterruptedByRank0Error,
    Leader,
    Pipes,
    Wait,
)
from xdevice.errors import XDeviceError

FANOUT = 8
"""How many leaders are below one, which reads from them one after the other; fewer make the tree deeper."""


@dataclass(frozen=True)
class Position:
    """A process's position in the tree: ranks of leaders, and how many processes its host has."""

    leader: int
    on_host: int
    parent: int | None  # of its leader
    children: tuple[int, ...]


def position_of(rank: int, job: Job) -> Position:
    """The position of that rank. Rank 0 is the root."""
    leaders: dict[str, int] = {}
    for number, host in enumerate(job.hosts):
        leaders.setdefault(host, number)
    order = list(leaders.values())
    host = job.hosts[rank]
    index = order.index(leaders[host])
    children = order[FANOUT * index + 1 : FANOUT * index + FANOUT + 1]
    parent = order[(index - 1) // FANOUT] if index else None
    return Position(leaders[host], job.hosts.count(host), parent, tuple(children))


def accept_children(listener: socket.socket, token: bytes, count: int, deadline: float) -> list[socket.socket]:
    """Authenticated connections of so many leaders below this one; `OSError` if not all have connected in time."""
    found: list[socket.socket] = []
    with selectors.DefaultSelector() as selector:
        acceptor = Acceptor(listener, token, count, selector)
        try:
            while len(found) < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("a leader has not connected")
                for key, _ in selector.select(left):
                    if not isinstance(key.fileobj, Connection):
                        acceptor.accept()
                    elif (connected := acceptor.authenticated(key.fileobj)) is not None:
                        found.append(connected)
                acceptor.drop_expired()
        except BaseException:
            for connected in found:
                connected.close()
            raise
        finally:
            acceptor.close()
    return found


class BarrierSetup:
    """One process's part: first what it offers to the others, then its node of the tree from what they offer."""

    def __init__(self, info: ProcessInfo, job: Job, channel: int) -> None:
        self._info, self._channel = info, channel
        self._position, self._address = position_of(info.rank, job), job.hosts[info.rank]
        self._opened: list[Callable[[], None]] = []  # what closes it again

    def offer(self) -> dict[str, Any]:
        """What other processes need of this one; empty if it can have no tree barrier."""
        position = self._position
        if position.on_host > MAX_PROCESSES or not hasattr(select, "poll"):
            return {}
        if position.leader != self._info.rank:
            return {"leader": position.leader}
        try:
            self._pipes = Pipes.made()
            self._opened.append(self._pipes.close)
            offer = self._pipes.offer()
            if position.children:
                find_token(self._info)  # without a token nothing listens
                self._listener = listening(self._address, 0)
                self._opened.append(self._listener.close)
                offer["at"] = self._address, self._listener.getsockname()[1]
        except (OSError, XDeviceError):
            return {}
        return offer

    def needs(self) -> tuple[int, ...]:
        """The ranks whose offers this process has to know."""
        leader, parent = self._position.leader, self._position.parent
        return (leader,) if parent is None or leader != self._info.rank else (leader, parent)

    def node(self, offers: Any) -> Follower | Leader | None:
        """This process's node, from the offers of those ranks; ``None`` if it cannot have one."""
        try:
            return self._joined(offers)
        except (OSError, HandshakeError, XDeviceError, LookupError, TypeError, ValueError):
            return None

    def _joined(self, offers: list[dict[str, Any]]) -> Follower | Leader:
        position, deadline = self._position, time.monotonic() + HANDSHAKE
        if position.leader != self._info.rank:
            pipes = Pipes.opened(offers[0])
            self._opened.append(pipes.close)
            return Follower(pipes, self._channel)
        parent: socket.socket | None = None
        children: list[socket.socket] = []
        if position.parent is not None:
            host, port = offers[1]["at"]
            parent = connected((host, port), find_token(self._info), deadline)
            self._opened.append(parent.close)
        if position.children:
            children = accept_children(self._listener, find_token(self._info), len(position.children), deadline)
            self._opened += [child.close for child in children]
        return Leader(self._pipes, position.on_host - 1, parent, children, self._channel)

    def close(self) -> None:
        """Close everything: rank 0 lets the processes in instead."""
        for close in self._opened:
            close()


PATIENCE = ANSWER / 3
"""Seconds after which a process tells the coordinator that it waits: before it asks the others where they are."""

LAST = "shutdown"
"""The collective after which channels may close, which the coordinator must know."""

Answer = dict[str, Any] | None


class Barrier:
    """Where one process waits until all may enter a collective."""

    def __init__(self, channel: Channel, info: ProcessInfo, job: Job, entered: Callable[[str], None] | None) -> None:
        self.channel, self._info, self._job, self._have_entered = channel, info, job, entered
        self._node: Follower | Leader | None = None  # None where the coordinator lets all in
        self._is_set_up = False

    def enter(self, fingerprint: Fingerprint, timeout: float) -> Answer:
        """The answer when all processes are here with the same fingerprint, or the failure of the job.

        ``None`` once rank 0 has closed the channel, and `TimeoutError` if it is silent for longer than it may be.
        """
        if not self._is_set_up:
            answer = self._set_up(timeout)
            if not answer or "entered" not in answer:
                return answer
        if self._node is None:
            return self._by_rank_0(Request(fingerprint), timeout)
        return self._by_tree(self._node, fingerprint, timeout)

    def close(self) -> None:
        """Close this process's descriptors, and send nothing: also in a forked child."""
        if self._node is not None:
            self._node.close()
        self.channel.close()

    def _by_tree(self, node: Follower | Leader, fingerprint: Fingerprint, timeout: float) -> Answer:
        told = False

        def tell() -> None:
            nonlocal told
            told = True
            self.channel.send(**Request(fingerprint, waited=first, number=node.number).message())

        def count() -> None:
            if self._have_entered is not None:  # at rank 0
                self._have_entered(fingerprint.name)

        first = min(PATIENCE, timeout / 4)
        wait = Wait(self.channel.fileno(), first, timeout + BARRIER_MARGIN, tell, count)
        try:
            answer = node.enter(_digest(fingerprint), wait)
        except InterruptedByRank0Error:
            return self.channel.receive(timeout)
        if answer != ENTER:
            return self._by_rank_0(Request(fingerprint), timeout)
        if told:
            self.channel.send(passed=node.number)
        return {"entered": fingerprint.name}

    def _by_rank_0(self, request: Request, timeout: float) -> Answer:
        self.channel.send(**request.message())
        return self.channel.receive(timeout + BARRIER_MARGIN)

    def _set_up(self, timeout: float) -> Answer:
        """Set up the tree barrier if every process can; otherwise no process does."""
        setup = BarrierSetup(self._info, self._job, self.channel.fileno())
        offer = Request(Fingerprint("the offers of the barrier"), payload=setup.offer(), payloads_of=setup.needs())
        answer = self._by_rank_0(offer, timeout)
        if answer and "entered" in answer:
            node = setup.node(answer.get("payloads")) if answer.get("all_ready") else None
            ready = Request(Fingerprint("the setup of the barrier"), payload=node is not None)
            answer = self._by_rank_0(ready, timeout)
            if answer and answer.get("all_ready"):
                self._node, self._is_set_up = node, True
                return answer
        setup.close()
        self._is_set_up = True
        return answer


def _digest(fingerprint: Fingerprint) -> bytes:
    """What the tree compares; of the last collective nothing, so that all ask the coordinator."""
    if fingerprint.name == LAST:
        return MISMATCH
    text = "\0".join((fingerprint.name, str(fingerprint.count), fingerprint.digest, *fingerprint.tensors))
    return blake2b(text.encode(), digest_size=16).digest()
