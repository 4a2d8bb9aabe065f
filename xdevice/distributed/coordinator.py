"""Rank 0's side of the job: it meets every process, lets all into each collective together, and reports failures.

Every process holds two lines to it. On the *gate* it asks to enter a collective, and describes it; once all have
asked for the same, all are let in. So an engine never runs with a process missing, or with other shapes in another
process, to which engines answer by hanging or with wrong numbers. Where processes can let each other in, see `gate`,
they say here only that they have waited for a while, and that they wait no longer. The *alarm* carries news: a process
that raised, one that has gone, the question where a process is.
"""

from __future__ import annotations

import selectors
import threading
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from xdevice.distributed.asking import Ask
from xdevice.distributed.door import Door, Guest
from xdevice.distributed.lines import Line
from xdevice.distributed.periods import ANSWER, PROVING
from xdevice.distributed.roll import Member, after, is_hello, objection, ranks, verdict

if TYPE_CHECKING:
    import socket

    from xdevice.distributed.roll import Hello


class Coordinator(threading.Thread):
    """Serves the lines of all processes until the last has left."""

    def __init__(self, listener: socket.socket, token: bytes, hello: Hello, timeout: float) -> None:
        super().__init__(name="xdevice.distributed.coordinator", daemon=True)
        self.hello, self.timeout = hello, timeout  # rank 0's own
        self.world_size: int = hello["world_size"]
        self.members: dict[int, Member] = {}
        self.failure: dict[str, Any] | None = None
        self.deadline: float | None = time.monotonic() + timeout
        self.asked: float | None = None  # when the silent were asked where they are
        self.complete = False
        self.last, self.entered = "the start of the engine", 0  # the collective that all have entered, and how many
        self._to_let_in: set[Member] = set()  # those that wait for the coordinator, not for each other
        self._passed = 0  # the last number of those for which the processes have let each other in
        self._failed_at: float | None = None
        self._own_came = False  # rank 0's own line, on which its main thread waits to be let in, or refused
        self._owners: dict[Line, Member] = {}
        self._unknown: dict[Line, float] = {}  # lines of the job that have not introduced themselves, and until when
        self._selector = selectors.DefaultSelector()
        self._door = Door(listener, token, 2 * self.world_size, self._selector)

    def run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # or all would wait for a thread that has ended
            self.fail(f"rank 0 cannot go on as the coordinator: {error!r}", 0)
        self.close()

    def _serve(self) -> None:
        while not self._is_over():
            ready = [key.fileobj for key, _ in self._selector.select(self._patience())]
            lines = [found for found in ready if isinstance(found, Line)]
            guests = [found for found in ready if isinstance(found, Guest)]
            for guest in guests:
                self._prove(guest)
            if len(ready) > len(lines) + len(guests):  # the listener; after those who wait already
                self._door.accept()
            # an alarm before a gate: why a process has gone comes before that it has
            for line in sorted(lines, key=self._is_gate):
                self._hear(line)
            self._watch_the_clock()

    def _is_over(self) -> bool:
        """All processes have closed their lines, and none is expected."""
        met_or_failed = self.complete or self.failure is not None
        return met_or_failed and not self._owners and not self._expects_more()

    def _expects_more(self) -> bool:
        """After a failed meeting, for a while: rank 0's own main thread, and lines that are still to be refused."""
        if self._failed_at is None or self.complete or time.monotonic() >= self._failed_at + ANSWER:
            return False
        return not self._own_came or bool(self._unknown)

    def forget(self) -> None:
        """In a forked child: close what is the parent's, and send nothing."""
        for line in (*self._owners, *self._unknown):
            line.close()
        self._door.forget()

    def close(self) -> None:
        for line in (*self._owners, *self._unknown):
            self._drop(line)
        self._door.close()
        self._selector.close()

    def _patience(self) -> float | None:
        expected = self._failed_at if self._expects_more() else None
        ends = [self.deadline, self._door.next_end(), next(iter(self._unknown.values()), None)]
        times = [t for t in (*ends, *(t and t + ANSWER for t in (self.asked, expected))) if t]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _is_gate(self, line: Line) -> bool:
        owner = self._owners.get(line)
        return owner is not None and owner.lines.get("gate") is line

    def _prove(self, guest: Guest) -> None:
        connection = self._door.hear(guest)
        if connection is None:
            return
        line = Line(connection)
        connection.settimeout(PROVING)
        self._unknown[line] = time.monotonic() + PROVING
        self._selector.register(line, selectors.EVENT_READ)

    def _hear(self, line: Line) -> None:
        if line not in self._owners and line not in self._unknown:
            return  # dropped since it was found ready
        try:
            messages = line.read()
        except TimeoutError:
            return
        owner = self._owners.get(line)
        if messages is None:
            self._drop(line)
            if owner is not None and not owner.done:
                self._lost(owner)
            return
        for message in messages:
            if owner is None:
                owner = self._introduced(line, message)
                if owner is None:
                    return
            elif owner.lines.get("gate") is line:
                self._at_gate(owner, message)
            else:
                self._alarmed(owner, message)

    def _drop(self, line: Line) -> None:
        self._owners.pop(line, None)
        self._unknown.pop(line, None)
        self._selector.unregister(line)
        line.close()

    # Meeting

    def _introduced(self, line: Line, hello: Hello) -> Member | None:
        """The process at the other end, if it belongs into the job."""
        if not is_hello(hello):
            self._drop(line)
            return None
        kind, rank = hello["line"], hello["rank"]
        self._own_came = self._own_came or hello.get("id") == self.hello["id"]
        if self.failure is not None:
            self._refuse(line, self.failure)
            return None
        wrong = objection(hello, self.hello, self.members.get(rank))
        if wrong:
            self.fail(wrong, rank)
            self._refuse(line, self.failure or {})
            return None
        member = self.members.setdefault(rank, Member(hello))
        member.lines[kind], self._owners[line] = line, member
        del self._unknown[line]
        if len(self.members) == self.world_size and all(len(m.lines) == 2 for m in self.members.values()):
            self._begin()
        return member

    def _begin(self) -> None:
        """All are here: the door is closed."""
        self.complete, self.deadline = True, None
        self._door.close()
        for line in list(self._unknown):
            self._drop(line)
        all_of = [self.members[r].hello for r in range(self.world_size)]
        local_ranks = [h["local_rank"] for h in all_of]
        self._tell_all("gate", hosts=[h["host"] for h in all_of], local_ranks=local_ranks, secret=token_hex(16))

    def _refuse(self, line: Line, failure: dict[str, Any]) -> None:
        line.say(**failure)
        self._drop(line)

    # Collectives

    def _at_gate(self, member: Member, message: dict[str, Any]) -> None:
        if self.failure is not None:
            member.lines["gate"].say(**self.failure)
            return
        if "passed" in message:
            if type(message["passed"]) is int:
                self._have_passed(message["passed"])
            return
        ask = Ask.read(message)
        if 0 < ask.number <= self._passed:
            return  # it has been let in since
        member.asks, member.since = ask, time.monotonic() - ask.waited
        if self.deadline is None:
            self.deadline = member.since + self.timeout
        if not ask.number:
            self._to_let_in.add(member)
        if len(self._to_let_in) == len(self.members):
            self._to_let_in.clear()
            self.deadline = self.asked = None
            self._let_in(self.members[0].asks or ask)

    def _have_passed(self, number: int) -> None:
        """The processes have let each other into the collective of this number."""
        self._passed = max(number, self._passed)
        for member in self.members.values():
            if member.asks is not None and 0 < member.asks.number <= self._passed:
                member.asks = None
        self.asked = None
        self.deadline = min((m.since + self.timeout for m in self.members.values() if m.asks), default=None)

    def _let_in(self, zero: Ask) -> None:
        for member in self.members.values():
            if member.asks is not None and member.asks.entry != zero.entry:
                self.fail(f"{member} {member.asks.entry.difference(zero.entry)}", member.hello["rank"])
                return
        asks = {rank: member.asks for rank, member in self.members.items() if member.asks is not None}
        all_bring = all(ask.brings for ask in asks.values())
        if zero.brings is None:
            self.have_entered(zero.name)
        for member in self.members.values():
            member.asks, member.done = None, zero.name == "shutdown"
        for member in self._own_last():
            ask = asks[member.hello["rank"]]
            words: dict[str, Any] = {} if ask.brings is None else {"all_bring": all_bring}
            if ask.wants:
                words["brought"] = [asks[rank].brings if rank in asks else None for rank in ask.wants]
            member.lines["gate"].say(entered=zero.name, **words)

    def have_entered(self, name: str) -> None:
        """All are in; rank 0's main thread says so, where the processes let each other in."""
        self.last, self.entered = name, self.entered + 1

    # News

    def _alarmed(self, member: Member, news: dict[str, Any]) -> None:
        if "where" in news:
            member.where = str(news["where"])
        elif "stuck" in news:
            self.deadline = self.deadline or time.monotonic()  # ask all now
            member.where = f"inside {news['stuck']}"
        elif "raised" in news:
            self.fail(f"{member} raised {news['raised']}", member.hello["rank"])
        elif "left" in news:
            self.fail(f"{member} ended without shutdown()", member.hello["rank"])

    def _lost(self, member: Member) -> None:
        self.fail(
            f"{member} has gone: it was killed, or ended without shutdown(), {after(self.last, self.entered)}",
            member.hello["rank"],
        )

    def fail(self, message: str, rank: int, late: bool = False) -> None:
        """Tell all processes what is wrong, and with which rank; the first failure counts."""
        if self.failure is None:
            self.failure = {"error": message, "rank": rank, "late": late}
            self.deadline = self.asked = None
            self._failed_at = time.monotonic()
            self._tell_all("alarm", **self.failure)
            self._tell_all("gate", **self.failure)  # some wait there of which this is not told

    def _tell_all(self, kind: str, **words: Any) -> None:
        for member in self._own_last():
            if kind in member.lines:
                member.lines[kind].say(**words)

    def _own_last(self) -> list[Member]:
        """All members, rank 0 last: once its main thread goes on, it may keep this thread from running for a while."""
        return [self.members[rank] for rank in sorted(self.members, reverse=True)]

    # Time

    def _watch_the_clock(self) -> None:
        now = time.monotonic()
        self._door.drop_the_late()
        for line in [line for line, until in self._unknown.items() if now >= until]:
            self._drop(line)
        if self.asked is not None and now >= self.asked + ANSWER:
            self._give_up()
        elif self.asked is None and self.deadline is not None and now >= self.deadline:
            if not self.complete:
                self._give_up_meeting()
                return
            self.asked = now
            for member in self.members.values():
                member.where = None
            self._tell_all("alarm", where=True)

    def _give_up_meeting(self) -> None:
        missing = [r for r in range(self.world_size) if r not in self.members]
        there = f"{ranks(sorted(self.members))} of {self.world_size} came within {self.timeout:g} s"
        self.fail(
            f"{ranks(missing) or 'a process'} did not come: {there}; start every process, or give init() a longer "
            "timeout",
            missing[0] if missing else 0,
            late=True,
        )

    def _give_up(self) -> None:
        message, rank = verdict(list(self.members.values()), self.timeout, self.last, self.entered)
        self.fail(message, rank, late=True)
