"""The setup of the tree barrier: a process's position, pipes and connections."""

import select
import socket
import time
from contextlib import ExitStack, closing
from selectors import DefaultSelector
from typing import Any, NamedTuple, TypeAlias

from xdevice.contract import Job
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.authentication import (
    Acceptor,
    Connection,
    HandshakeError,
    connect,
    find_token,
)
from xdevice.distributed.rendezvous.ports import listening
from xdevice.distributed.tree_barrier import Follower, Leader, Pipes
from xdevice.errors import XDeviceError
from xdevice.distributed.deadlines import HANDSHAKE

# Leaders below one leader, which reads from them one after the other. Fewer
# make the tree deeper.
FANOUT = 8

Offer: TypeAlias = dict[str, Any]
"""What other processes need to reach this one, as JSON."""


class Position(NamedTuple):
    """A process's position in the tree of leaders.

    The leaders are the first processes of the hosts.
    """

    leader: int  # the leader of the process's host; all fields but one are ranks
    processes_on_host: int
    parent: int | None  # the leader above that leader; None at the root, rank 0
    children: tuple[int, ...]  # the leaders below that leader


def position_of(rank: int, job: Job) -> Position:
    host = job.hosts[rank]
    leaders = [job.hosts.index(name) for name in dict.fromkeys(job.hosts)]
    leader = job.hosts.index(host)
    index = leaders.index(leader)
    parent = leaders[(index - 1) // FANOUT] if index else None
    first_child = FANOUT * index + 1
    children = tuple(leaders[first_child : first_child + FANOUT])
    return Position(leader, job.hosts.count(host), parent, children)


class BarrierSetup:
    """One process's part of the setup.

    First each process makes an offer to the others, then it makes its node
    from what they offer.
    """

    def __init__(self, info: ProcessInfo, job: Job, channel: int) -> None:
        self._info = info
        self._channel = channel
        self._position = position_of(info.rank, job)
        self._address = job.address or job.hosts[info.rank]
        self._is_leader = self._position.leader == info.rank
        # What the node uses. It is closed if there will be no node.
        self._resources = ExitStack()
        self.close = self._resources.close

    def offer(self) -> Offer:
        """What other processes need of this one.

        It is empty if this process can have no tree barrier.
        """
        if not hasattr(select, "poll"):
            return {}
        if not self._is_leader:
            return {"leader": self._position.leader}
        try:
            pipes = Pipes.create(self._position.processes_on_host)
            self._pipes = self._resources.enter_context(closing(pipes))
            offer = pipes.offer()
            if self._position.children:
                find_token(self._info)  # without a token nothing listens
                self._listener = self._resources.enter_context(listening(self._address, 0))
                offer["at"] = self._address, self._listener.getsockname()[1]
        except (OSError, XDeviceError):
            return {}
        return offer

    def needs(self) -> tuple[int, ...]:
        """The ranks whose offers this process needs.

        They are its leader, and the leader above.
        """
        if self._is_leader and self._position.parent is not None:
            return (self._position.leader, self._position.parent)
        return (self._position.leader,)

    def node(self, offers: Any) -> Follower | Leader | None:
        """This process's node, from the offers that it needs.

        ``None`` if it cannot have one.
        """
        try:
            if not self._is_leader:
                pipes = self._resources.enter_context(closing(Pipes.open(offers[0])))
                return Follower(pipes, self._channel)
            return self._leader(offers[1:], time.monotonic() + HANDSHAKE)
        except (OSError, HandshakeError, XDeviceError, LookupError, TypeError, ValueError):
            return None

    def _leader(self, parent_offers: list[Offer], deadline: float) -> Leader:
        parents = []
        for offer in parent_offers:
            host, port = offer["at"]
            parent = connect((host, port), find_token(self._info), deadline)
            parents.append(self._resources.enter_context(parent))
        children: list[socket.socket] = []
        if self._position.children:
            children = self._accept_children(deadline)
        followers = self._position.processes_on_host - 1
        return Leader(self._pipes, followers, parents, children, self._channel)

    def _accept_children(self, deadline: float) -> list[socket.socket]:
        """Authenticated connections of the leaders below this one.

        `TimeoutError`: not all have connected by the deadline.
        """
        children: list[socket.socket] = []
        count = len(self._position.children)
        token = find_token(self._info)
        with (
            DefaultSelector() as selector,
            closing(Acceptor(self._listener, token, count, selector)) as acceptor,
        ):
            while len(children) < count:
                seconds = deadline - time.monotonic()
                if seconds <= 0:
                    raise TimeoutError("a leader has not connected")
                for key, _ in selector.select(seconds):
                    if not isinstance(key.fileobj, Connection):
                        acceptor.accept()
                        continue
                    child = acceptor.authenticated(key.fileobj)
                    if child is not None:
                        children.append(self._resources.enter_context(child))
                acceptor.drop_expired()
        return children
