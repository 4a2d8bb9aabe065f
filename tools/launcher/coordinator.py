"""The coordinator: a thread of the launcher through which a job's processes meet.

Every process has two channels to it, through a Unix socket. On the *barrier
channel* it asks to enter a collective, and describes it. Once all have asked
for the same collective, all may enter. Without this, engines would hang if a
process is missing, and compute wrong numbers if shapes differ. The *control
channel* carries failures, and the coordinator's question where a process is.

The socket is in a folder that only this user can enter, so there is nobody to
keep out.
"""

import selectors
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from xdevice.distributed.deadlines import ANSWER
from xdevice.distributed.messages import LAST_COLLECTIVE, Channel, Fingerprint, Message
from xdevice.errors import DistributedError
from xdevice.tools.launcher.peers import (
    Peer,
    after,
    diagnose,
    diagnose_rendezvous,
    disagreement,
    may_still_come,
)

_FIRST_BARRIER = 1  # the barrier after the start of the engines is the first collective


class Coordinator(threading.Thread):
    """Serves the processes of a job, from one group to the next."""

    def __init__(self, world_size: int) -> None:
        super().__init__(name="xdevice.tools.launcher.coordinator", daemon=True)
        self._world_size = world_size
        self._selector = selectors.DefaultSelector()
        self.folder = mkdtemp(prefix="xdevice-")  # of mode 0700
        self.path = str(Path(self.folder, "socket"))
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(self.path)
        except OSError as error:
            rmtree(self.folder)
            raise DistributedError(
                f"the launcher cannot make its socket {self.path!r}: {error}; "
                "set TMPDIR to a folder with a short path"
            ) from error
        self._listener.listen(2 * world_size)
        # It wakes the thread: the launcher stops it.
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stop_reader, selectors.EVENT_READ)
        self._peer_of: dict[Channel, Peer | None] = {}  # None until it has joined
        self._group = _Group(world_size)

    def stop(self) -> None:
        with suppress(OSError):  # the thread has ended by an error
            self._stop_writer.send(b".")
        self.join()

    def run(self) -> None:
        try:
            while self._serve():
                pass
        finally:  # the processes notice it
            for channel in self._peer_of:
                channel.close()
            for connection in (self._listener, self._stop_reader, self._stop_writer):
                connection.close()
            self._selector.close()
            rmtree(self.folder)

    def _serve(self) -> bool:
        """Serve what has arrived, or is due; whether the launcher still runs."""
        ready = [key.fileobj for key, _ in self._selector.select(self._group.seconds_to_deadline())]
        if self._stop_reader in ready:
            return False
        if self._listener in ready:
            with suppress(OSError):  # too many open files: it is accepted later
                channel = Channel(self._listener.accept()[0])
                self._peer_of[channel] = None
                self._selector.register(channel, selectors.EVENT_READ)
        channels = [source for source in ready if isinstance(source, Channel)]
        # Control channels first: the reason why a process ends comes before
        # its end.
        for channel in sorted(channels, key=self._is_barrier):
            self._receive(channel)
        self._group.check_deadlines()
        if self._group.is_over:
            self._group = _Group(self._world_size)
        return True

    def _is_barrier(self, channel: Channel) -> bool:
        peer = self._peer_of[channel]
        return peer is not None and peer.channels.get("barrier") is channel

    def _receive(self, channel: Channel) -> None:
        peer = self._peer_of[channel]
        try:
            messages = channel.read()
            for message in messages or ():
                if peer is None:
                    if self._group.is_left_by(message):
                        self._group = _Group(self._world_size)
                    peer = self._peer_of[channel] = self._group.join(channel, message)
                elif not self._group.has(peer):
                    continue  # it is late in an earlier group, and has been told
                elif self._is_barrier(channel):
                    self._group.on_barrier_message(peer, message)
                else:
                    self._group.on_control_message(peer, message)
        except (AttributeError, LookupError, TypeError, ValueError):
            messages = None  # another program's messages
        if messages is None:
            del self._peer_of[channel]
            self._selector.unregister(channel)
            channel.close()
            if peer is not None:
                self._group.on_close(peer)


class _Group:
    """The processes from `init` to `shutdown`, or to the job's failure.

    All times are those of `time.monotonic`.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._peers: dict[int, Peer] = {}
        self._failure: Message | None = None
        self._is_complete = False  # whether all processes have joined
        self._has_ended = False  # by the last collective
        self._timeout = 0.0
        self._last = "the start of the engine"  # the last collective that all entered
        self._entered = 0  # how many they have entered
        self._deadline: float | None = None
        self._asked_at: float | None = None  # when the processes were asked where they are

    @property
    def is_over(self) -> bool:
        """Whether the processes may form another group."""
        has_failed = self._failure is not None and not self._peers
        return self._has_ended or has_failed

    def has(self, peer: Peer) -> bool:
        """Whether the process is in this group, and not refused or in an earlier one."""
        return self._peers.get(peer.rank) is peer

    def is_left_by(self, message: Message) -> bool:
        """Whether the group has failed, and the process joins again."""
        peer = self._peers.get(message["rank"])
        return self._failure is not None and peer is not None and len(peer.channels) == 2

    def seconds_to_deadline(self) -> float | None:
        times = [self._deadline, self._asked_at and self._asked_at + ANSWER]
        due = min((time for time in times if time is not None), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    # Joining

    def join(self, channel: Channel, message: Message) -> Peer:
        """The process that has sent this message on its channel."""
        if not self._peers:
            self._timeout = message["start"]
            self._deadline = time.monotonic() + self._timeout
        peer = self._peers.get(message["rank"])
        if peer is None:
            peer = self._peers[message["rank"]] = Peer(message)
        elif peer.pid != message["pid"] or message["channel"] in peer.channels:
            twice = f"rank {peer.rank} is there twice: processes {peer.pid} and {message['pid']}"
            self._fail(f"{twice}; give each process a rank of its own", peer.rank)
            channel.send(**self._failure or {})
            return Peer(message)
        peer.channels[message["channel"]] = channel
        if self._failure is not None:
            channel.send(**self._failure)
        elif len(self._peers) == self._world_size and all(
            len(joined.channels) == 2 for joined in self._peers.values()
        ):
            self._begin()
        return peer

    def _begin(self) -> None:
        """All processes have joined: tell them of the job."""
        for rank in range(self._world_size):
            reason = disagreement(self._peers[rank], self._peers[0])
            if reason is not None:
                self._fail(reason, rank)
                return
        self._is_complete = True
        self._deadline = None
        self._send_all("barrier", name=token_hex(16))

    # Messages

    def on_close(self, peer: Peer) -> None:
        """The process has closed a channel, as it does at its end."""
        if not self.has(peer):
            return
        if not self._has_ended:
            reason = "it was killed, or ended without shutdown()"
            self._fail(f"{peer} has gone: {reason}, {after(self._last, self._entered)}", peer.rank)
        del self._peers[peer.rank]

    def on_control_message(self, peer: Peer, message: Message) -> None:
        if "where" in message:
            peer.take_answer(message)
            if "stuck" in message and self._asked_at is None and self._deadline is None:
                self._deadline = time.monotonic()  # ask all now
        elif "raised" in message:
            self._fail(f"{peer} raised {message['raised']}", peer.rank)
        elif "left" in message:
            self._fail(f"{peer} ended without shutdown()", peer.rank)

    def on_barrier_message(self, peer: Peer, message: Message) -> None:
        """The process asks to enter a collective."""
        if self._failure is not None:
            peer.channels["barrier"].send(**self._failure)
            return
        peer.fingerprint = Fingerprint.from_message(message)
        peer.waiting_since = time.monotonic()
        if self._deadline is None:
            self._deadline = peer.waiting_since + self._timeout
        fingerprints = {rank: peer.fingerprint for rank, peer in self._peers.items()}
        if None not in fingerprints.values():
            self._deadline = None
            self._asked_at = None
            self._let_in(fingerprints)

    def _let_in(self, fingerprints: dict[int, Any]) -> None:
        """All ask to enter a collective: let them in if it is rank 0's."""
        for rank, fingerprint in sorted(fingerprints.items()):
            if fingerprint != fingerprints[0]:
                difference = fingerprint.difference(fingerprints[0])
                self._fail(f"{self._peers[rank]} {difference}", rank)
                return
        self._last = fingerprints[0].name
        self._entered += 1
        if self._entered == _FIRST_BARRIER:
            self._timeout = self._peers[0].agreed["timeout"]
        self._has_ended = self._last == LAST_COLLECTIVE
        for peer in self._peers.values():
            peer.fingerprint = None
        self._send_all("barrier", entered=self._last)

    def _send_all(self, kind: str, **message: Any) -> None:
        for peer in self._peers.values():
            if kind in peer.channels:
                peer.channels[kind].send(**message)

    # Failures

    def _fail(self, message: str, rank: int | None, late: bool = False) -> None:
        """Tell all processes of the failure and the responsible rank.

        Only the first failure counts.
        """
        if self._failure is not None:
            return
        self._failure = {"error": message, "rank": rank, "late": late}
        self._deadline = None
        self._asked_at = None
        self._send_all("control", **self._failure)
        self._send_all("barrier", **self._failure)  # for those that wait there

    def check_deadlines(self) -> None:
        now = time.monotonic()
        if self._asked_at is not None:
            if now >= self._asked_at + ANSWER:
                self._conclude(now)
        elif self._deadline is not None and now >= self._deadline:
            if self._is_complete:
                self._ask_all(now)
            else:
                diagnosis = diagnose_rendezvous(self._peers, self._world_size, self._timeout)
                self._fail(diagnosis.message, diagnosis.rank, late=True)

    def _ask_all(self, now: float) -> None:
        """Ask all processes where they are."""
        self._asked_at = now
        for peer in self._peers.values():
            peer.forget_answer()
        self._send_all("control", where=True)

    def _conclude(self, now: float) -> None:
        """Diagnose the job, or let it go on.

        The processes have had time to answer where they are.
        """
        self._asked_at = None
        peers = list(self._peers.values())
        waiting = [peer for peer in peers if peer.fingerprint is not None]
        ends_of_waits = [peer.waiting_since + self._timeout for peer in waiting]
        engine_times = [peer.engine_time for peer in peers if peer.engine_time is not None]
        if may_still_come(peers):
            self._deadline = now + max(engine_time.left for engine_time in engine_times)
            self._send_all("control", extended=True)
            return
        is_timed_out = (
            any(peer.location is None for peer in peers)
            or any(end <= now for end in ends_of_waits)
            or any(engine_time.spent >= self._timeout for engine_time in engine_times)
        )
        if not is_timed_out:  # the work whose time was extended has ended
            self._deadline = min(ends_of_waits, default=None)
            return
        message, rank = diagnose(peers, self._timeout, self._last, self._entered)
        self._fail(message, rank, late=True)
