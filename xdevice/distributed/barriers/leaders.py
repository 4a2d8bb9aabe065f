"""The tree of host leaders: the first process of each host, its *leader*, is connected to the leader above it."""

import selectors
import socket
import time
from dataclasses import dataclass

from xdevice.contract import Job
from xdevice.distributed.rendezvous.acceptor import Acceptor, Connection

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
