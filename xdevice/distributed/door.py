"""Rank 0's door: the port at which it listens, and the connections that have not proved yet that they are of the job.

A connection that proves nothing costs a bounded number of bytes, descriptors and seconds, and is told nothing.
"""

from __future__ import annotations

import errno
import os
import selectors
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from xdevice.distributed.periods import PROVING
from xdevice.distributed.proof import GREETING, MAGIC, PROOF, greeting, proves

if TYPE_CHECKING:
    import socket

STRANGERS = 64
"""Connections, beyond those of the job itself, that may wait to prove themselves; the oldest has to go for more."""

_AT_ONCE = 64  # connections accepted before the processes of the job have their turn


class Guest:
    """A connection that has not proved that it is of the job."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self.greeting, self.got = connection, greeting(), b""
        self.until = time.monotonic() + PROVING
        connection.setblocking(False)
        connection.send(self.greeting)  # its buffer is empty, so that this does not block

    def fileno(self) -> int:
        return self.socket.fileno()


class Door:
    """Accepts connections, and hands over those that have proved that they know the token."""

    def __init__(self, listener: socket.socket, token: bytes, own: int, selector: selectors.BaseSelector) -> None:
        self._listener, self._token, self._selector = listener, token, selector
        self._most = own + STRANGERS  # ``own`` connections of the job may come at once, and none of them has to go
        self._guests: dict[Guest, None] = {}  # the oldest first
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self)

    def next_end(self) -> float | None:
        """When the time of the oldest guest is over, as of `time.monotonic`."""
        return next((guest.until for guest in self._guests), None)

    def accept(self) -> None:
        """Accept the connections that wait at the port."""
        for _ in range(_AT_ONCE):
            try:
                connection = self._listener.accept()[0]
            except OSError as error:  # mostly, none is left
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._turn_away()
                return
            try:
                guest = Guest(connection)
            except OSError:  # it has gone
                connection.close()
                continue
            if len(self._guests) >= self._most:
                self._drop(next(iter(self._guests)))
            self._guests[guest] = None
            self._selector.register(guest, selectors.EVENT_READ)

    def hear(self, guest: Guest) -> socket.socket | None:
        """The connection, once the guest has proved itself; it blocks from then on."""
        if guest not in self._guests:
            return None  # dropped since it was found ready
        try:
            # one byte more than is due, which no process sends: it makes the proof wrong
            received = guest.socket.recv(GREETING + PROOF + 1 - len(guest.got))
        except BlockingIOError:
            return None
        except OSError:
            received = b""
        guest.got += received
        answer = None
        if received and guest.got.startswith(MAGIC[: len(guest.got)]):
            if len(guest.got) < GREETING + PROOF:
                return None
            answer = proves(self._token, guest.got, guest.greeting)
        if answer is None:
            self._drop(guest)
            return None
        self._forget(guest)
        guest.socket.setblocking(True)
        with suppress(OSError):  # it has gone, which reading will show
            guest.socket.sendall(answer)
        return guest.socket

    def drop_the_late(self) -> None:
        """Close the connections whose time is over."""
        now = time.monotonic()
        for guest in [guest for guest in self._guests if now >= guest.until]:
            self._drop(guest)

    def close(self) -> None:
        """Stop listening, and close the connections that have proved nothing."""
        if self._listener.fileno() == -1:
            return
        for guest in list(self._guests):
            self._drop(guest)
        self._selector.unregister(self._listener)
        self.forget()

    def forget(self) -> None:
        """Close this process's descriptors, and send nothing: also in a forked child."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        self._listener.close()
        for guest in self._guests:
            guest.socket.close()

    def _turn_away(self) -> None:
        """Accept one connection and close it: descriptors have run out, and it would be reported again and again."""
        if self._spare is None:
            time.sleep(0.05)  # another thread has taken the last descriptor
        else:
            os.close(self._spare)
        with suppress(OSError):
            self._listener.accept()[0].close()
        self._spare = None
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _forget(self, guest: Guest) -> None:
        del self._guests[guest]
        self._selector.unregister(guest)

    def _drop(self, guest: Guest) -> None:
        self._forget(guest)
        guest.socket.close()
