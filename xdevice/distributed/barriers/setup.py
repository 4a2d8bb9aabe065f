"""Barrier setup: a process opens the pipes of its host, and connections between the leaders of hosts.

The leaders, each the first process of its host, form a tree: each is connected to the leader above it.
"""

import select
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xdevice.contract import Job
from xdevice.distributed.barriers.pipes import MAX_PROCESSES, Pipes
from xdevice.distributed.barriers.tree import Follower, Leader
from xdevice.distributed.failures.timeouts import HANDSHAKE
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.acceptor import Acceptor, Connection
from xdevice.distributed.rendezvous.handshake import HandshakeError, connected
from xdevice.distributed.rendezvous.ports import listening
from xdevice.distributed.rendezvous.token import found
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
                found(self._info)  # without a token nothing listens
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
            parent = connected((host, port), found(self._info), deadline)
            self._opened.append(parent.close)
        if position.children:
            children = accept_children(self._listener, found(self._info), len(position.children), deadline)
            self._opened += [child.close for child in children]
        return Leader(self._pipes, position.on_host - 1, parent, children, self._channel)

    def close(self) -> None:
        """Close everything: rank 0 lets the processes in instead."""
        for close in self._opened:
            close()
