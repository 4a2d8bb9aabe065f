"""The pipes of one host, over which its processes ask the first of them, its *leader*, to enter a collective.

The leader makes three pipes; the others open them by way of ``/proc``, which admits only processes of the same user:
there is no file. Each process writes one record for each collective into the first, and reads one byte from one of
the other two: odd and even collectives have one each, or a fast process would take a slow one's byte.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import Any

RECORD = struct.Struct("=I16s")
"""What a process asks: the collective's number, and a digest of what it calls."""

MAX_PROCESSES = 2048
"""Processes of a host: their records and bytes fit into the 64 KiB of a pipe, so no write blocks."""


class Pipes:
    """One process's descriptors of its host's pipes."""

    def __init__(self, descriptors: list[int], owned: list[int]) -> None:
        self.requests, *self._answers = descriptors
        self._owned = owned

    @classmethod
    def made(cls) -> Pipes:
        """New pipes, in the leader; `OSError` if no descriptors are left."""
        owned: list[int] = []
        try:
            for _ in range(3):
                owned += os.pipe()
        except OSError:
            _close(owned)
            raise
        readers, writers = owned[::2], owned[1::2]
        return cls([readers[0], *writers[1:]], owned)

    def offer(self) -> dict[str, Any]:
        """What the other processes of the host need to open the pipes."""
        readers = self._owned[::2]
        return {"pid": os.getpid(), "pipes": readers, "inodes": [os.fstat(reader).st_ino for reader in readers]}

    @classmethod
    def opened(cls, offer: dict[str, Any]) -> Pipes:
        """The pipes of the leader that has made this offer; `OSError` on another host, or in another container."""
        owned: list[int] = []
        try:
            for number, inode in zip(offer["pipes"], offer["inodes"], strict=True):
                # read-write: opening does not wait for the other end, and a leader that ends leaves no end of file
                owned.append(os.open(f"/proc/{offer['pid']:d}/fd/{number:d}", os.O_RDWR | os.O_NONBLOCK))
                if os.fstat(owned[-1]).st_ino != inode:  # where a process has the same number in another container
                    raise OSError("another process's file")
        except OSError:
            _close(owned)
            raise
        return cls(owned, owned)

    def answers(self, number: int) -> int:
        """The descriptor of the pipe with the answers to the collective of this number."""
        return self._answers[number % 2]

    def close(self) -> None:
        _close(self._owned)


def _close(descriptors: list[int]) -> None:
    while descriptors:
        with suppress(OSError):
            os.close(descriptors.pop())
