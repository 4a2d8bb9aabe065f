"""Barrier setup: a process opens the pipes of its host, and connections between the leaders of hosts."""

import select
import socket
import time
from collections.abc import Callable
from typing import Any

from xdevice.contract import Job
from xdevice.distributed.barriers.leaders import accept_children, position_of
from xdevice.distributed.barriers.pipes import MAX_PROCESSES, Pipes
from xdevice.distributed.barriers.tree import Follower, Leader
from xdevice.distributed.failures.timeouts import HANDSHAKE
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.handshake import HandshakeError, connected
from xdevice.distributed.rendezvous.ports import listening
from xdevice.distributed.rendezvous.token import found
from xdevice.errors import XDeviceError


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
