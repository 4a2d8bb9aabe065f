"""Rank 0's coordinator: it accepts every process, lets all into each collective together, and reports failures.

Every process has two channels to it. On the *barrier channel* it asks to enter a collective, and describes it; once
all have asked for the same, all may enter: engines answer a missing process, or other shapes, by hanging or with wrong
numbers. Where there is a tree barrier, processes only say here that they have waited for a while, and that they wait
no longer. The *control channel* carries failures, and the question where a process is.
"""

import selectors
import socket
import threading
import time
from secrets import token_hex
from typing import Any

from xdevice.distributed.failures import ANSWER, HANDSHAKE
from xdevice.distributed.process_info import block
from xdevice.distributed.rendezvous.authentication import Acceptor, Connection
from xdevice.distributed.rendezvous.messages import Channel, JoinMessage, Request, is_join_message
from xdevice.distributed.rendezvous.peers import (
    Peer,
    after,
    diagnose,
    diagnose_rendezvous,
    is_in_time,
    refusal,
)


class Coordinator(threading.Thread):
    def __init__(
        self, listener: socket.socket, token: bytes, joining: JoinMessage, timeout: float
    ) -> None:
        super().__init__(name="xdevice.distributed.coordinator", daemon=True)
        self.joining, self.timeout = joining, timeout  # rank 0's own
        self.world_size: int = joining["world_size"]
        self.peers: dict[int, Peer] = {}
        self.failure: dict[str, Any] | None = None
        self.deadline: float | None = time.monotonic() + timeout
        self.asked: float | None = None  # when the processes were asked where they are
        self.complete = False
        self.last, self.entered = (
            "the start of the engine",
            0,
        )  # the last collective entered, and how many
        self._waiting: set[Peer] = set()  # for the coordinator, not in a tree barrier
        self._passed = 0  # the number of the last tree barrier that all have passed
        self._failed_at: float | None = None
        self._own_joined = False  # rank 0's own process, whose main thread waits for the answer
        self._owners: dict[Channel, Peer] = {}
        self._unknown: dict[
            Channel, float
        ] = {}  # authenticated, without a join message yet: their deadlines
        self._selector = selectors.DefaultSelector()
        self._port: int = listener.getsockname()[1]
        self._acceptor = Acceptor(listener, token, 2 * self.world_size, self._selector)

    def run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # or all would wait for a thread that has ended
            self.fail(f"rank 0 cannot go on as the coordinator: {error!r}", 0)
        self.close()

    def _serve(self) -> None:
        while self._owners or self._expects_more() or not (self.complete or self.failure):
            ready = [key.fileobj for key, _ in self._selector.select(self._select_timeout())]
            channels = [found for found in ready if isinstance(found, Channel)]
            connections = [found for found in ready if isinstance(found, Connection)]
            for connected in filter(None, map(self._acceptor.authenticated, connections)):
                connected.settimeout(HANDSHAKE)
                channel = Channel(connected)
                self._unknown[channel] = time.monotonic() + HANDSHAKE
                self._selector.register(channel, selectors.EVENT_READ)
            if len(ready) > len(channels) + len(
                connections
            ):  # the listener; after the connections that wait already
                self._acceptor.accept()
            # control channels first: the reason for which a process ends comes before its end
            for channel in sorted(channels, key=lambda channel: channel.is_barrier):
                self._receive(channel)
            self._check_deadlines()

    def _expects_more(self) -> bool:
        """After a failed rendezvous, for a while: rank 0's own process, and channels that are still to be refused."""
        if self._failed_at is None or self.complete or time.monotonic() >= self._failed_at + ANSWER:
            return False
        return not self._own_joined or bool(self._unknown)

    def close(self) -> None:
        """Close this process's descriptors, and send nothing: also in a forked child."""
        for channel in (*self._owners, *self._unknown):
            channel.close()
        self._acceptor.close()
        self._selector.close()

    def _select_timeout(self) -> float | None:
        expected = self._failed_at if self._expects_more() else None
        oldest = next((connection.deadline for connection in self._acceptor.waiting), None)
        ends = [self.deadline, oldest, next(iter(self._unknown.values()), None)]
        times = [t for t in (*ends, *(t and t + ANSWER for t in (self.asked, expected))) if t]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _receive(self, channel: Channel) -> None:
        if channel not in self._owners and channel not in self._unknown:
            return  # dropped since it was found ready
        try:
            messages = channel.read()
        except TimeoutError:
            return
        owner = self._owners.get(channel)
        if messages is None:
            self._drop(channel)
            if owner is not None and not owner.done:
                when = after(self.last, self.entered)
                self.fail(
                    f"{owner} has gone: it was killed, or ended without shutdown(), {when}",
                    owner.rank,
                )
            return
        for message in messages:
            if owner is None:
                owner = self._join(channel, message)
                if owner is None:
                    return
            elif channel.is_barrier:
                self._at_barrier(owner, message)
            else:
                self._controlled(owner, message)

    def _drop(self, channel: Channel) -> None:
        self._owners.pop(channel, None)
        self._unknown.pop(channel, None)
        self._selector.unregister(channel)
        channel.close()

    def _join(self, channel: Channel, message: JoinMessage) -> Peer | None:
        if not is_join_message(message):
            self._drop(channel)
            return None
        kind, rank = message["channel"], message["rank"]
        self._own_joined = self._own_joined or message.get("id") == self.joining["id"]
        reason = refusal(message, self.joining, self.peers.get(rank))
        if reason:
            self.fail(reason, rank)
        if self.failure is not None:
            channel.send(**self.failure)
            self._drop(channel)
            return None
        peer = self.peers.setdefault(rank, Peer(message))
        peer.channels[kind], self._owners[channel] = channel, peer
        channel.is_barrier = kind == "barrier"
        del self._unknown[channel]
        if len(self.peers) == self.world_size and all(
            len(p.channels) == 2 for p in self.peers.values()
        ):
            self._begin()
        return peer

    def _begin(self) -> None:
        self.complete, self.deadline = True, None
        self._acceptor.stop()
        for channel in list(self._unknown):
            self._drop(channel)
        joined = [self.peers[rank].joined for rank in range(self.world_size)]
        hosts, local_ranks = ([each[key] for each in joined] for key in ("host", "local_rank"))
        self._send_all("barrier", hosts=hosts, local_ranks=local_ranks, secret=token_hex(16))

    def _at_barrier(self, peer: Peer, message: dict[str, Any]) -> None:
        if self.failure is not None:
            peer.channels["barrier"].send(**self.failure)
            return
        if "passed" in message:
            if type(message["passed"]) is int:
                self._have_passed(message["passed"])
            return
        request = Request.read(message)
        if 0 < request.number <= self._passed:
            return  # it has entered since
        peer.request, peer.since = request, time.monotonic() - request.waited
        if self.deadline is None:
            self.deadline = peer.since + self.timeout
        if not request.number:
            self._waiting.add(peer)
        if len(self._waiting) == len(self.peers):
            self._waiting.clear()
            self.deadline = self.asked = None
            self._let_in(self.peers[0].request or request)

    def _have_passed(self, number: int) -> None:
        self._passed = max(number, self._passed)
        for peer in self.peers.values():
            if peer.request is not None and 0 < peer.request.number <= self._passed:
                peer.request = None
        self.asked = None
        self.deadline = min(
            (p.since + self.timeout for p in self.peers.values() if p.request), default=None
        )

    def _let_in(self, zero: Request) -> None:
        """All ask to enter: let them in if they ask for what rank 0 does."""
        requests = {
            rank: peer.request for rank, peer in self.peers.items() if peer.request is not None
        }
        for rank, request in requests.items():
            if request.fingerprint != zero.fingerprint:
                self.fail(
                    f"{self.peers[rank]} {request.fingerprint.difference(zero.fingerprint)}", rank
                )
                return
        name, payloads = (
            zero.fingerprint.name,
            {rank: request.payload for rank, request in requests.items()},
        )
        if zero.payload is None:
            self.have_entered(name)
        for peer in self.peers.values():
            peer.request, peer.done = None, name == "shutdown"
        for peer in self._own_last():
            request = requests[peer.rank]
            answer: dict[str, Any] = (
                {} if request.payload is None else {"all_ready": all(payloads.values())}
            )
            if request.payloads_of:
                answer["payloads"] = list(map(payloads.get, request.payloads_of))
            peer.channels["barrier"].send(entered=name, **answer)

    def have_entered(self, name: str) -> None:
        """All have entered; rank 0's main thread calls this where they have a tree barrier."""
        self.last, self.entered = name, self.entered + 1

    def _controlled(self, peer: Peer, message: dict[str, Any]) -> None:
        if "where" in message:
            peer.answer(message)
            if "stuck" in message and self.asked is None:
                self.deadline = self.deadline or time.monotonic()  # ask all now
        elif "raised" in message:
            self.fail(f"{peer} raised {message['raised']}", peer.rank)
        elif "left" in message:
            self.fail(f"{peer} ended without shutdown()", peer.rank)

    def fail(self, message: str, rank: int | None, late: bool = False) -> None:
        """Tell all processes what is wrong, and which rank failed; the first failure counts."""
        if self.failure is None:
            self.failure = {"error": message, "rank": rank, "late": late}
            self.deadline = self.asked = None
            self._failed_at = time.monotonic()
            self._send_all("control", **self.failure)
            self._send_all("barrier", **self.failure)  # for those that wait there

    def _send_all(self, kind: str, **message: Any) -> None:
        for peer in self._own_last():
            if kind in peer.channels:
                peer.channels[kind].send(**message)

    def _own_last(self) -> list[Peer]:
        """All peers, rank 0 last: once its main thread goes on, it may keep this thread from running for a while."""
        return [self.peers[rank] for rank in sorted(self.peers, reverse=True)]

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        self._acceptor.drop_expired()
        for channel in [channel for channel, until in self._unknown.items() if now >= until]:
            self._drop(channel)
        if self.asked is not None and now >= self.asked + ANSWER:
            self._conclude(now)
        elif self.asked is None and self.deadline is not None and now >= self.deadline:
            if not self.complete:
                self.fail(
                    *diagnose_rendezvous(self.peers, self.world_size, self.timeout), late=True
                )
                return
            self.asked = now
            for peer in self.peers.values():
                peer.where = peer.engine = None
            self._send_all("control", where=True)

    def _conclude(self, now: float) -> None:
        """The processes have had time to say where they are: the job has failed, or goes on."""
        peers, self.asked = list(self.peers.values()), None
        waiting = [peer.since + self.timeout for peer in peers if peer.request is not None]
        in_engine = [peer.engine for peer in peers if peer.engine is not None]
        if is_in_time(peers):
            self.deadline = now + max(left for _, left in in_engine)
            self._send_all("control", extended=True)
        elif None not in [peer.where for peer in peers] and not (
            any(until <= now for until in waiting)
            or any(seconds >= self.timeout for seconds, _ in in_engine)
        ):
            self.deadline = min(waiting, default=None)  # the work that was extended has ended
        else:
            message, rank = diagnose(peers, self.timeout, self.last, self.entered)
            hosts = dict.fromkeys(self.peers[rank].joined["host"] for rank in sorted(self.peers))
            if rank is None and len(hosts) > 1:
                ports = f"{block(self._port, self.world_size)}, and any that the engine opens"
                message += f"; {ports}, must be reachable between {', '.join(hosts)}"
            self.fail(message, rank, late=True)
