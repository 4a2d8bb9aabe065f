"""The lines between hosts: the first process of each host, its *head*, has one to the head of another, as in a tree."""

from __future__ import annotations

import selectors
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdevice.distributed.door import Door, Guest
from xdevice.distributed.proof import prove

if TYPE_CHECKING:
    from xdevice.contract import Job

FAN = 8
"""How many heads are below one, which hears them one after the other; fewer make the tree deeper."""


@dataclass(frozen=True)
class Place:
    """A process's place in the tree: ranks of heads, and how many processes its host has."""

    head: int
    together: int
    parent: int | None  # of its head
    children: tuple[int, ...]


def place_of(rank: int, job: Job) -> Place:
    """The place of that rank. Rank 0 is the root."""
    heads: dict[str, int] = {}
    for number, host in enumerate(job.hosts):
        heads.setdefault(host, number)
    order = list(heads.values())
    host = job.hosts[rank]
    index = order.index(heads[host])
    children = order[FAN * index + 1 : FAN * index + FAN + 1]
    return Place(heads[host], job.hosts.count(host), order[(index - 1) // FAN] if index else None, tuple(children))


def connected(address: tuple[str, int], token: bytes, deadline: float) -> socket.socket:
    """The line to the parent's head, on which both ends have proved that they are of the job.

    Raises
    ------
    OSError
        It cannot be reached in time, or does not accept the token.
    UnprovedError
        What listens there is another program.
    """
    line = socket.create_connection(address, max(0.01, deadline - time.monotonic()))
    try:
        prove(line, token, deadline)
    except BaseException:
        line.close()
        raise
    return line


def accepted(listener: socket.socket, token: bytes, count: int, deadline: float) -> list[socket.socket]:
    """The lines of so many heads below this one, each proved.

    Raises
    ------
    OSError
        Not all have come in time.
    """
    found: list[socket.socket] = []
    with selectors.DefaultSelector() as selector:
        door = Door(listener, token, count, selector)
        try:
            while len(found) < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("a head has not come")
                for key, _ in selector.select(left):
                    if not isinstance(key.fileobj, Guest):
                        door.accept()
                    elif (line := door.hear(key.fileobj)) is not None:
                        found.append(line)
                door.drop_the_late()
        except BaseException:
            for line in found:
                line.close()
            raise
        finally:
            door.close()
    return found
