"""Rank 0's coordinator, which lets processes in and reports failures.

Every process has two channels to it. On the *barrier channel* it asks to enter
a collective, and describes it. Once all have asked for the same collective,
all may enter. Without this, engines would hang if a process is missing, and
compute wrong numbers if shapes differ. If there is a tree barrier, processes
only tell the coordinator that they have waited for a while, and that they no
longer wait. The *control channel* carries failures, and the coordinator's
question where a process is.
"""

import selectors
import socket
import threading
import time
from secrets import token_hex
from typing import Any

from xdevice.distributed.process_info import block
from xdevice.distributed.rendezvous.authentication import Acceptor, Connection
from xdevice.distributed.rendezvous.messages import (
    LAST_COLLECTIVE,
    Channel,
    JoinMessage,
    Message,
    Request,
    is_join_message,
)
from xdevice.distributed.rendezvous.peers import (
    Peer,
    after,
    diagnose,
    diagnose_rendezvous,
    may_still_come,
    refusal,
)
from xdevice.distributed.deadlines import ANSWER, HANDSHAKE


class Coordinator(threading.Thread):
    """The thread of rank 0 that serves all processes of the job, also rank 0."""

    def __init__(
        self, listener: socket.socket, token: bytes, join_message: JoinMessage, timeout: float
    ) -> None:
        super().__init__(name="xdevice.distributed.coordinator", daemon=True)
        self.join_message = join_message  # rank 0's own
        self.timeout = timeout
        self.world_size: int = join_message["world_size"]
        self.peers: dict[int, Peer] = {}
        self.failure: Message | None = None
        self.is_complete = False  # whether all processes have joined
        self._failed_at: float | None = None
        self._own_process_joined = False  # its main thread waits for the answer

        # The collectives. All times are those of `time.monotonic`.
        self.last = "the start of the engine"  # the last collective that all entered
        self.entered = 0  # how many they have entered
        self._deadline: float | None = time.monotonic() + timeout
        self._asked_at: float | None = None  # when the processes were asked where they are
        self._waiting: set[Peer] = set()  # for the coordinator, not in a tree barrier
        self._passed = 0  # the number of the last tree barrier that all have passed

        # The connections
        self._peers_by_channel: dict[Channel, Peer] = {}
        # Authenticated channels without a join message, and the deadlines for
        # it.
        self._unidentified: dict[Channel, float] = {}
        self._selector = selectors.DefaultSelector()
        self._port: int = listener.getsockname()[1]
        self._acceptor = Acceptor(listener, token, 2 * self.world_size, self._selector)

    def run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # otherwise all would wait for a thread that has ended
            self.fail(f"rank 0 cannot go on as the coordinator: {error!r}", 0)
        self.close()

    def close(self) -> None:
        """Close this process's descriptors, and send nothing."""
        for channel in (*self._peers_by_channel, *self._unidentified):
            channel.close()
        self._acceptor.close()
        self._selector.close()

    def _serve(self) -> None:
        while self._goes_on():
            events = self._selector.select(self._select_timeout())
            ready = [key.fileobj for key, _ in events]
            channels = [source for source in ready if isinstance(source, Channel)]
            connections = [source for source in ready if isinstance(source, Connection)]
            listener_is_ready = len(ready) > len(channels) + len(connections)
            for connection in connections:
                self._authenticate(connection)
            if listener_is_ready:  # after the connections that wait already
                self._acceptor.accept()
            # Control channels first: the reason why a process ends comes
            # before its end.
            for channel in sorted(channels, key=lambda channel: channel.is_barrier):
                self._receive(channel)
            self._check_deadlines()

    def _goes_on(self) -> bool:
        if self._peers_by_channel or self._expects_more():
            return True
        return not self.is_complete and self.failure is None

    def _expects_more(self) -> bool:
        """Whether the rendezvous has just failed, and processes must be told.

        These are rank 0's own process, and channels without a join message.
        """
        if self._failed_at is None or self.is_complete:
            return False
        if time.monotonic() >= self._failed_at + ANSWER:
            return False
        return not self._own_process_joined or bool(self._unidentified)

    def _select_timeout(self) -> float | None:
        """Seconds until the next deadline; ``None`` if there is none."""
        times = [connection.deadline for connection in self._acceptor.waiting][:1]
        times += list(self._unidentified.values())[:1]
        if self._deadline is not None:
            times.append(self._deadline)
        if self._asked_at is not None:
            times.append(self._asked_at + ANSWER)
        if self._failed_at is not None and self._expects_more():
            times.append(self._failed_at + ANSWER)
        if not times:
            return None
        return max(0.0, min(times) - time.monotonic())

    # Joining

    def _authenticate(self, connection: Connection) -> None:
        authenticated = self._acceptor.authenticated(connection)
        if authenticated is None:
            return
        authenticated.settimeout(HANDSHAKE)
        channel = Channel(authenticated)
        self._unidentified[channel] = time.monotonic() + HANDSHAKE
        self._selector.register(channel, selectors.EVENT_READ)

    def _join(self, channel: Channel, message: JoinMessage) -> Peer | None:
        """The process that has sent this message on its channel.

        ``None`` if it is refused.
        """
        if not is_join_message(message):
            self._drop(channel)
            return None
        rank = message["rank"]
        if message["id"] == self.join_message["id"]:
            self._own_process_joined = True
        reason = refusal(message, self.join_message, self.peers.get(rank))
        if reason is not None:
            self.fail(reason, rank)
        if self.failure is not None:
            channel.send(**self.failure)
            self._drop(channel)
            return None
        peer = self.peers.setdefault(rank, Peer(message))
        peer.channels[message["channel"]] = channel
        self._peers_by_channel[channel] = peer
        channel.is_barrier = message["channel"] == "barrier"
        del self._unidentified[channel]
        have_both_channels = all(len(joined.channels) == 2 for joined in self.peers.values())
        if len(self.peers) == self.world_size and have_both_channels:
            self._begin()
        return peer

    def _begin(self) -> None:
        """All processes have joined: tell them of the job."""
        self.is_complete = True
        self._deadline = None
        self._acceptor.stop()
        for channel in list(self._unidentified):
            self._drop(channel)
        messages = [self.peers[rank].join_message for rank in range(self.world_size)]
        self._send_all(
            "barrier",
            hosts=[message["host"] for message in messages],
            local_ranks=[message["local_rank"] for message in messages],
            secret=token_hex(16),
        )

    # Messages

    def _receive(self, channel: Channel) -> None:
        if channel not in self._peers_by_channel and channel not in self._unidentified:
            return  # dropped after the selector has reported it
        try:
            messages = channel.read()
        except TimeoutError:
            return
        peer = self._peers_by_channel.get(channel)
        if messages is None:
            self._drop(channel)
            if peer is not None and not peer.has_left:
                when = after(self.last, self.entered)
                reason = "it was killed, or ended without shutdown()"
                self.fail(f"{peer} has gone: {reason}, {when}", peer.rank)
            return
        for message in messages:
            if peer is None:
                peer = self._join(channel, message)
                if peer is None:
                    return
            elif channel.is_barrier:
                self._on_barrier_message(peer, message)
            else:
                self._on_control_message(peer, message)

    def _drop(self, channel: Channel) -> None:
        self._peers_by_channel.pop(channel, None)
        self._unidentified.pop(channel, None)
        self._selector.unregister(channel)
        channel.close()

    def _on_control_message(self, peer: Peer, message: Message) -> None:
        if "where" in message:
            peer.take_answer(message)
            if "stuck" in message and self._asked_at is None and self._deadline is None:
                self._deadline = time.monotonic()  # ask all now
        elif "raised" in message:
            self.fail(f"{peer} raised {message['raised']}", peer.rank)
        elif "left" in message:
            self.fail(f"{peer} ended without shutdown()", peer.rank)

    def _send_all(self, kind: str, **message: Any) -> None:
        for peer in self._own_process_last():
            if kind in peer.channels:
                peer.channels[kind].send(**message)

    def _own_process_last(self) -> list[Peer]:
        """All peers, rank 0 last.

        Once its main thread goes on, that may keep this thread waiting.
        """
        return [self.peers[rank] for rank in sorted(self.peers, reverse=True)]

    # Collectives

    def _on_barrier_message(self, peer: Peer, message: Message) -> None:
        if self.failure is not None:
            peer.channels["barrier"].send(**self.failure)
            return
        if "passed" in message:
            if type(message["passed"]) is int:
                self._on_passed(message["passed"])
            return
        request = Request.from_message(message)
        if 0 < request.number <= self._passed:
            return  # it has entered since
        peer.request = request
        peer.waiting_since = time.monotonic() - request.waited
        if self._deadline is None:
            self._deadline = peer.waiting_since + self.timeout
        if not request.number:
            self._waiting.add(peer)
        if len(self._waiting) == len(self.peers):
            self._waiting.clear()
            self._deadline = None
            self._asked_at = None
            self._let_in(self.peers[0].request or request)

    def _on_passed(self, number: int) -> None:
        """The processes have passed the tree barriers up to this number."""
        self._passed = max(number, self._passed)
        for peer in self.peers.values():
            if peer.request is not None and 0 < peer.request.number <= self._passed:
                peer.request = None
        self._asked_at = None
        self._deadline = min(self._ends_of_waits(), default=None)

    def _ends_of_waits(self) -> list[float]:
        """When each waiting process has waited for the timeout."""
        waiting = [peer for peer in self.peers.values() if peer.request is not None]
        return [peer.waiting_since + self.timeout for peer in waiting]

    def _let_in(self, rank_0: Request) -> None:
        """All ask to enter a collective: let them in if it is rank 0's."""
        requests = {
            rank: peer.request for rank, peer in self.peers.items() if peer.request is not None
        }
        for rank, request in requests.items():
            if request.fingerprint != rank_0.fingerprint:
                difference = request.fingerprint.difference(rank_0.fingerprint)
                self.fail(f"{self.peers[rank]} {difference}", rank)
                return
        name = rank_0.fingerprint.name
        payloads = {rank: request.payload for rank, request in requests.items()}
        if rank_0.payload is None:  # the setup of the barrier does not count as a collective
            self.have_entered(name)
        for peer in self.peers.values():
            peer.request = None
            peer.has_left = name == LAST_COLLECTIVE
        for peer in self._own_process_last():
            request = requests[peer.rank]
            answer: Message = {"entered": name}
            if request.payload is not None:
                answer["all_ready"] = all(payloads.values())
            if request.payloads_of:
                answer["payloads"] = [payloads.get(rank) for rank in request.payloads_of]
            peer.channels["barrier"].send(**answer)

    def have_entered(self, name: str) -> None:
        """Note that all have entered.

        Rank 0's main thread calls this after a tree barrier.
        """
        self.last = name
        self.entered += 1

    # Failures

    def fail(self, message: str, rank: int | None, late: bool = False) -> None:
        """Tell all processes of the failure and the responsible rank.

        Only the first failure counts.
        """
        if self.failure is not None:
            return
        self.failure = {"error": message, "rank": rank, "late": late}
        self._deadline = None
        self._asked_at = None
        self._failed_at = time.monotonic()
        self._send_all("control", **self.failure)
        self._send_all("barrier", **self.failure)  # for those that wait there

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        self._acceptor.drop_expired()
        for channel, deadline in list(self._unidentified.items()):
            if now >= deadline:
                self._drop(channel)
        if self._asked_at is not None:
            if now >= self._asked_at + ANSWER:
                self._conclude(now)
        elif self._deadline is not None and now >= self._deadline:
            if self.is_complete:
                self._ask_all(now)
            else:
                diagnosis = diagnose_rendezvous(self.peers, self.world_size, self.timeout)
                self.fail(diagnosis.message, diagnosis.rank, late=True)

    def _ask_all(self, now: float) -> None:
        """Ask all processes where they are."""
        self._asked_at = now
        for peer in self.peers.values():
            peer.forget_answer()
        self._send_all("control", where=True)

    def _conclude(self, now: float) -> None:
        """Diagnose the job, or let it go on.

        The processes have had time to answer where they are.
        """
        self._asked_at = None
        peers = list(self.peers.values())
        ends = self._ends_of_waits()
        engine_times = [peer.engine_time for peer in peers if peer.engine_time is not None]
        if may_still_come(peers):
            self._deadline = now + max(engine_time.left for engine_time in engine_times)
            self._send_all("control", extended=True)
            return
        is_timed_out = (
            any(peer.location is None for peer in peers)
            or any(end <= now for end in ends)
            or any(engine_time.spent >= self.timeout for engine_time in engine_times)
        )
        if not is_timed_out:  # the work whose time was extended has ended
            self._deadline = min(ends, default=None)
            return
        message, rank = diagnose(peers, self.timeout, self.last, self.entered)
        hosts = dict.fromkeys(
            self.peers[number].join_message["host"] for number in sorted(self.peers)
        )
        if rank is None and len(hosts) > 1:
            ports = f"{block(self._port, self.world_size)}, and any that the engine opens"
            message += f"; {ports}, must be reachable between {', '.join(hosts)}"
        self.fail(message, rank, late=True)
