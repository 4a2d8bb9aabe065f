"""The barrier before each collective, so that an engine never runs with a process missing.

Where they can, the processes use a tree barrier, of which the coordinator hears nothing as long as all goes well. Those
that have waited for longer than usual tell it; then it starts its clock, and says which rank is late. It lets the
processes in itself where there are no pipes, where they call different things, and at the end of the job.
"""

import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from hashlib import blake2b
from selectors import DefaultSelector
from typing import Any, NamedTuple

from xdevice.contract import Job
from xdevice.distributed.failures import ANSWER, BARRIER_MARGIN, HANDSHAKE
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.authentication import (
    Acceptor,
    Connection,
    HandshakeError,
    connected,
    find_token,
)
from xdevice.distributed.rendezvous.messages import Channel, Fingerprint, Request
from xdevice.distributed.rendezvous.ports import listening
from xdevice.distributed.tree_barrier import (
    MISMATCH,
    Follower,
    InterruptedByRank0Error,
    Leader,
    Pipes,
    Wait,
)
from xdevice.errors import XDeviceError

FANOUT = (
    8  # leaders below one, which reads from them one after the other; fewer make the tree deeper
)
PATIENCE = (
    ANSWER / 3
)  # seconds after which a process tells the coordinator that it waits: before it asks the others
LAST = "shutdown"  # the collective after which channels may close, which the coordinator must know

Answer = dict[str, Any] | None


class Position(NamedTuple):
    """A process's position in the tree: ranks of leaders, and how many processes its host has."""

    leader: int  # the first process of its host
    on_host: int
    parent: int | None  # the leader above that leader; none at the root, rank 0
    children: tuple[int, ...]


def position_of(rank: int, job: Job) -> Position:
    host = job.hosts[rank]
    order = [job.hosts.index(each) for each in dict.fromkeys(job.hosts)]  # the leaders
    index = order.index(job.hosts.index(host))
    parent = order[(index - 1) // FANOUT] if index else None
    children = order[FANOUT * index + 1 : FANOUT * index + FANOUT + 1]
    return Position(order[index], job.hosts.count(host), parent, tuple(children))


class BarrierSetup:
    """One process's part: first what it offers to the others, then its node of the tree from what they offer."""

    def __init__(self, info: ProcessInfo, job: Job, channel: int) -> None:
        self._info, self._channel = info, channel
        self._position, self._address = (
            position_of(info.rank, job),
            job.address or job.hosts[info.rank],
        )
        self._is_leader = self._position.leader == info.rank
        self._opened = ExitStack()
        self.close = (
            self._opened.close
        )  # of what the node would have used: rank 0 lets the processes in instead

    def offer(self) -> dict[str, Any]:
        """What other processes need of this one; empty if it can have no tree barrier."""
        if not hasattr(select, "poll"):
            return {}
        if not self._is_leader:
            return {"leader": self._position.leader}
        try:
            self._pipes = self._opened.enter_context(closing(Pipes.made(self._position.on_host)))
            offer = self._pipes.offer()
            if self._position.children:
                find_token(self._info)  # without a token nothing listens
                self._listener = self._opened.enter_context(listening(self._address, 0))
                offer["at"] = self._address, self._listener.getsockname()[1]
        except (OSError, XDeviceError):
            return {}
        return offer

    def needs(self) -> tuple[int, ...]:
        """The ranks whose offers this process has to know."""
        leader, _, parent, _ = self._position
        return (leader,) if parent is None or not self._is_leader else (leader, parent)

    def node(self, offers: Any) -> Follower | Leader | None:
        """This process's node, from the offers of those ranks; ``None`` if it cannot have one."""
        try:
            return self._joined(offers, time.monotonic() + HANDSHAKE)
        except (OSError, HandshakeError, XDeviceError, LookupError, TypeError, ValueError):
            return None

    def _joined(self, offers: list[dict[str, Any]], deadline: float) -> Follower | Leader:
        if not self._is_leader:
            return Follower(
                self._opened.enter_context(closing(Pipes.opened(offers[0]))), self._channel
            )
        at = [tuple(offer["at"]) for offer in offers[1:]]
        parents = [
            self._opened.enter_context(connected(each, find_token(self._info), deadline))
            for each in at
        ]
        children = self._accepted(deadline) if self._position.children else []
        return Leader(self._pipes, self._position.on_host - 1, parents, children, self._channel)

    def _accepted(self, deadline: float) -> list[socket.socket]:
        """Authenticated connections of the leaders below this one; `OSError` if not all have connected in time."""
        found: list[socket.socket] = []
        count, token = len(self._position.children), find_token(self._info)
        with (
            DefaultSelector() as selector,
            closing(Acceptor(self._listener, token, count, selector)) as acceptor,
        ):
            while len(found) < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("a leader has not connected")
                for key, _ in selector.select(left):
                    if not isinstance(key.fileobj, Connection):
                        acceptor.accept()
                    elif (child := acceptor.authenticated(key.fileobj)) is not None:
                        found.append(self._opened.enter_context(child))
                acceptor.drop_expired()
        return found


class Barrier:
    def __init__(
        self, channel: Channel, info: ProcessInfo, job: Job, entered: Callable[[str], None]
    ) -> None:
        self.channel, self._info, self._job, self._entered = channel, info, job, entered
        self._node: Follower | Leader | None = None  # None where the coordinator lets all in
        self._is_set_up = False

    def enter(self, fingerprint: Fingerprint, timeout: float) -> Answer:
        """The answer when all processes are here with the same fingerprint, or the failure of the job.

        ``None`` once rank 0 has closed the channel, and `TimeoutError` if it is silent for longer than it may be.
        """
        if not self._is_set_up:
            answer = self._set_up(timeout)
            self._is_set_up = True
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
        def tell() -> None:
            self.channel.send(**Request(fingerprint, waited=first, number=node.number).message())

        first, entered = min(PATIENCE, timeout / 4), partial(self._entered, fingerprint.name)
        wait = Wait(self.channel.fileno(), first, timeout + BARRIER_MARGIN, tell, entered)
        try:
            node.ask(_digest(fingerprint), wait)
            may_enter = node.answer(wait)
        except InterruptedByRank0Error:
            return self.channel.receive(timeout)
        if not may_enter:
            return self._by_rank_0(Request(fingerprint), timeout)
        if wait.told:
            self.channel.send(passed=node.number)
        return {"entered": fingerprint.name}

    def _by_rank_0(self, request: Request, timeout: float) -> Answer:
        self.channel.send(**request.message())
        return self.channel.receive(timeout + BARRIER_MARGIN)

    def _set_up(self, timeout: float) -> Answer:
        """Set up the tree barrier if every process can; otherwise no process does."""
        setup = BarrierSetup(self._info, self._job, self.channel.fileno())
        offer = Request(
            Fingerprint("the offers of the barrier"),
            payload=setup.offer(),
            payloads_of=setup.needs(),
        )
        answer = self._by_rank_0(offer, timeout)
        if answer and "entered" in answer:
            node = setup.node(answer.get("payloads")) if answer.get("all_ready") else None
            ready = Request(Fingerprint("the setup of the barrier"), payload=node is not None)
            answer = self._by_rank_0(ready, timeout)
            if answer and answer.get("all_ready"):
                self._node = node
                return answer
        setup.close()
        return answer


def _digest(fingerprint: Fingerprint) -> bytes:
    """What the tree compares; of the last collective nothing, so that all ask the coordinator."""
    if fingerprint.name == LAST:
        return MISMATCH
    text = "\0".join(
        (fingerprint.name, str(fingerprint.count), fingerprint.digest, *fingerprint.tensors)
    )
    return blake2b(text.encode(), digest_size=16).digest()
