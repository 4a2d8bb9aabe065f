"""Rank 0's side of the job: it meets every process, lets all into each collective together, and says what is wrong.

Every process holds two lines to it. On the *gate* it asks to enter a collective, and says which; once all have
come, with the same words, all are let in. So an engine never runs with a process missing, or with another shape
elsewhere, which engines answer by hanging or with wrong numbers. On the *alarm* come and go news: a process that
raised, one that has gone, the question where one is.
"""

from __future__ import annotations

import selectors
import threading
import time
from typing import TYPE_CHECKING, Any

from xdevice.distributed.lines import Line, parsed
from xdevice.distributed.roll import Member, after, disagreement, ranks, said

if TYPE_CHECKING:
    import socket

    from xdevice.distributed.roll import Hello

ANSWER = 1.5
"""Seconds that a process has to say where it is."""

_MUST_AGREE = {
    "world_size": "world size",
    "timeout": "timeout",
    "backend": "backend",
    "engine": "engine",
    "version": "xdevice version",
}


class Coordinator(threading.Thread):
    """Serves the lines of all processes until the last has left."""

    def __init__(self, listener: socket.socket, hello: Hello, timeout: float) -> None:
        super().__init__(name="xdevice.distributed.coordinator", daemon=True)
        self.hello, self.timeout = hello, timeout  # rank 0's own
        self.world_size: int = hello["world_size"]
        self.members: dict[int, Member] = {}
        self.failure: dict[str, Any] | None = None
        self.deadline: float | None = time.monotonic() + timeout
        self.asked: float | None = None  # when the silent were asked where they are
        self.complete = False
        self._failed_at: float | None = None
        self._own_came = False  # rank 0's own line, on which its main thread waits to be let in, or refused
        self._owners: dict[Line, Member | None] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ)

    def run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # or everybody would wait for a thread that is no more
            self.fail(f"rank 0 cannot go on as the coordinator: {error!r}", 0)
        self.close()

    def _serve(self) -> None:
        while not self._is_over():
            ready = [key.fileobj for key, _ in self._selector.select(self._patience())]
            if self._listener in ready:
                self._greet()
            # an alarm before a gate: why a process has gone comes before that it has
            for line in sorted((r for r in ready if isinstance(r, Line)), key=self._is_gate):
                self._hear(line)
            self._watch_the_clock()

    def _is_over(self) -> bool:
        """Everybody has hung up, and nobody is to come."""
        met_or_failed = self.complete or self.failure is not None
        return met_or_failed and not any(self._owners.values()) and not self._awaits_somebody()

    def _awaits_somebody(self) -> bool:
        """After a failed meeting, for a while: rank 0's own main thread, and who is on the line and has not spoken."""
        if self._failed_at is None or self.complete or time.monotonic() >= self._failed_at + ANSWER:
            return False
        return not self._own_came or None in self._owners.values()

    def forget(self) -> None:
        """In a forked child: let go of what is the parent's, without a word to anybody."""
        for line in list(self._owners):
            line.close()
        if self._listener.fileno() != -1:
            self._listener.close()

    def close(self) -> None:
        for line in list(self._owners):
            self._drop(line)
        self._hear_nobody_new()
        self._selector.close()

    def _hear_nobody_new(self) -> None:
        if self._listener.fileno() != -1:
            self._selector.unregister(self._listener)
            self._listener.close()

    def _patience(self) -> float | None:
        awaited = self._failed_at if self._awaits_somebody() else None
        times = [t for t in (self.deadline, *(t and t + ANSWER for t in (self.asked, awaited))) if t]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _is_gate(self, line: Line) -> bool:
        owner = self._owners.get(line)
        return owner is not None and owner.lines.get("gate") is line

    def _greet(self) -> None:
        try:
            line = Line(self._listener.accept()[0])
        except OSError:
            return
        line.socket.settimeout(5)
        self._owners[line] = None
        self._selector.register(line, selectors.EVENT_READ)

    def _hear(self, line: Line) -> None:
        if line not in self._owners:
            return  # dropped meanwhile
        try:
            texts = line.read()
        except TimeoutError:
            return
        owner = self._owners[line]
        if texts is None:
            self._drop(line)
            if owner is not None and not owner.done:
                self._lost(owner)
            return
        for text in texts:
            if owner is None:
                owner = self._introduced(line, parsed(text))
                if owner is None:
                    return
            elif owner.lines.get("gate") is line:
                self._at_gate(owner, text)
            else:
                self._alarmed(owner, parsed(text))

    def _drop(self, line: Line) -> None:
        del self._owners[line]
        self._selector.unregister(line)
        line.close()

    # Meeting

    def _introduced(self, line: Line, hello: Hello) -> Member | None:
        """The process at the other end, if it is one of ours."""
        kind = hello.get("line")
        if kind not in ("gate", "alarm") or type(hello.get("rank")) is not int:
            self._drop(line)  # somebody who mistook the port
            return None
        self._own_came = self._own_came or hello.get("id") == self.hello["id"]
        if self.failure is not None:
            self._refuse(line, self.failure)
            return None
        wrong = self._objection(hello)
        if wrong:
            if self.complete:  # the job has begun without it, and goes on
                self._refuse(line, {"error": wrong, "rank": hello["rank"]})
            else:
                self._owners[line] = None
                self.fail(wrong, hello["rank"])
                self._refuse(line, self.failure or {})
            return None
        member = self.members.setdefault(hello["rank"], Member(hello))
        member.lines[kind], self._owners[line] = line, member
        if len(self.members) == self.world_size and all(len(m.lines) == 2 for m in self.members.values()):
            self.complete, self.deadline = True, None
            all_of = [self.members[r].hello for r in range(self.world_size)]
            self._tell_all("gate", hosts=[h["host"] for h in all_of], local_ranks=[h["local_rank"] for h in all_of])
        return member

    def _objection(self, hello: Hello) -> str | None:
        rank, here = hello["rank"], self.members.get(hello["rank"])
        for key, word in _MUST_AGREE.items():
            if hello.get(key) != self.hello[key]:
                return f"rank {rank} has {word} {hello.get(key)!r}, and rank 0 has {self.hello[key]!r}; start all alike"
        if not (isinstance(rank, int) and 0 <= rank < self.world_size):
            return f"there is a rank {rank!r} in a job of {self.world_size} processes; ranks count from 0"
        if here is not None and here.hello["id"] != hello["id"]:
            return (
                f"rank {rank} is there twice: process {here.hello['pid']} on {here.hello['name']} and process "
                f"{hello['pid']} on {hello['name']}; give each process a rank of its own"
            )
        return None

    def _refuse(self, line: Line, failure: dict[str, Any]) -> None:
        line.say(**failure)
        self._drop(line)

    # Collectives

    def _at_gate(self, member: Member, what: str) -> None:
        if self.failure is not None:
            member.lines["gate"].say(**self.failure)
            return
        member.asks = what
        members = self.members.values()
        if self.deadline is None:
            self.deadline = time.monotonic() + self.timeout
        if any(m.asks is None for m in members):
            return
        self.deadline = self.asked = None
        self._let_in(what)

    def _let_in(self, what: str) -> None:
        zero = self.members[0].asks or ""
        other = next((m for m in self.members.values() if m.asks != zero), None)
        if other is not None:
            self.fail(disagreement(other, zero), other.hello["rank"])
            return
        for member in self.members.values():
            member.entered, member.last, member.asks = member.entered + 1, what.partition("|")[0], None
            member.done = member.last == "shutdown"
        if what.partition("|")[0] == "shutdown":
            self._hear_nobody_new()  # before anybody can come back, to the job's next coordinator
        for member in self._own_last():
            member.lines["gate"].send("ok")

    # News

    def _alarmed(self, member: Member, news: dict[str, Any]) -> None:
        if "where" in news:
            member.where = str(news["where"])
        elif "stuck" in news:
            self.deadline = self.deadline or time.monotonic()  # ask everybody now
            member.where = f"inside {news['stuck']}"
        elif "raised" in news:
            self.fail(f"{member} raised {news['raised']}", member.hello["rank"])
        elif "left" in news:
            self.fail(f"{member} ended without shutdown()", member.hello["rank"])

    def _lost(self, member: Member) -> None:
        self.fail(
            f"{member} has gone: it was killed, or ended without shutdown(), {after(member)}",
            member.hello["rank"],
        )

    def fail(self, message: str, rank: int, late: bool = False) -> None:
        """Tell everybody what is wrong, and with which rank; the first such news counts."""
        if self.failure is None:
            self.failure = {"error": message, "rank": rank, "late": late}
            self.deadline = self.asked = None
            self._failed_at = time.monotonic()
            self._tell_all("alarm", **self.failure)
            for member in self.members.values():
                if (member.asks is not None or not self.complete) and "gate" in member.lines:
                    member.lines["gate"].say(**self.failure)

    def _tell_all(self, kind: str, **words: Any) -> None:
        for member in self._own_last():
            if kind in member.lines:
                member.lines[kind].say(**words)

    def _own_last(self) -> list[Member]:
        """All members, and rank 0 last: once its main thread goes on, it may keep this one from Python for a while."""
        return [self.members[rank] for rank in sorted(self.members, reverse=True)]

    # Time

    def _watch_the_clock(self) -> None:
        now = time.monotonic()
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
        waiting = [m for m in self.members.values() if m.asks is not None]
        late = [m for m in self.members.values() if m.asks is None and not m.done] or list(self.members.values())
        silent = [m for m in late if m.where is None]
        culprit = (silent or late)[0]
        if waiting:
            before = f"{ranks([m.hello['rank'] for m in waiting])} waited {self.timeout:g} s in {said(waiting[0])}"
        else:
            before = f"the processes waited {self.timeout:g} s inside {culprit.last}"
        if silent:
            why = f"{culprit} does not answer: it is stopped, or its host is, {after(culprit)}"
        else:
            why = f"{culprit} did not come: it is {culprit.where}, {after(culprit)}"
        self.fail(f"{before}; {why}", culprit.hello["rank"], late=True)
