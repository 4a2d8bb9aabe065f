"""The barrier before each collective, so that an engine never runs with a process missing.

Where they can, the processes use a tree barrier, of which the coordinator hears nothing as long as all goes well. Those
that have waited for longer than usual tell it; then it starts its clock, and says which rank is late. It lets the
processes in itself where there are no pipes, where they call different things, and at the end of the job.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from xdevice.contract import Job
from xdevice.distributed.barriers.setup import BarrierSetup
from xdevice.distributed.barriers.tree import ENTER, MISMATCH, Follower, InterruptedByRank0Error, Leader, Wait
from xdevice.distributed.channel import Channel
from xdevice.distributed.failures.timeouts import ANSWER, BARRIER_MARGIN
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.messages import Fingerprint, Request

PATIENCE = ANSWER / 3
"""Seconds after which a process tells the coordinator that it waits: before it asks the others where they are."""

LAST = "shutdown"
"""The collective after which channels may close, which the coordinator must know."""

Answer = dict[str, Any] | None


class Barrier:
    """Where one process waits until all may enter a collective."""

    def __init__(self, channel: Channel, info: ProcessInfo, job: Job, entered: Callable[[str], None] | None) -> None:
        self.channel, self._info, self._job, self._have_entered = channel, info, job, entered
        self._node: Follower | Leader | None = None  # None where the coordinator lets all in
        self._is_set_up = False

    def enter(self, fingerprint: Fingerprint, timeout: float) -> Answer:
        """The answer when all processes are here with the same fingerprint, or the failure of the job.

        ``None`` once rank 0 has closed the channel, and `TimeoutError` if it is silent for longer than it may be.
        """
        if not self._is_set_up:
            answer = self._set_up(timeout)
            if not answer or "entered" not in answer:
                return answer
        if self._node is None:
            return self._by_rank_0(Request(fingerprint), timeout)
        return self._by_tree(self._node, fingerprint, timeout)

    def close(self) -> None:
        """Close this process's descriptors, and send nothing: also in a forked child."""
        if self._node is not None:
            self._node.close()
        self.channel.close()

    def _by_tree(self, node: Follower | Leader, fingerprint: Fingerprint, timeout: float) -> Answer:
        told = False

        def tell() -> None:
            nonlocal told
            told = True
            self.channel.send(**Request(fingerprint, waited=first, number=node.number).message())

        def count() -> None:
            if self._have_entered is not None:  # at rank 0
                self._have_entered(fingerprint.name)

        first = min(PATIENCE, timeout / 4)
        wait = Wait(self.channel.fileno(), first, timeout + BARRIER_MARGIN, tell, count)
        try:
            answer = node.enter(_digest(fingerprint), wait)
        except InterruptedByRank0Error:
            return self.channel.receive(timeout)
        if answer != ENTER:
            return self._by_rank_0(Request(fingerprint), timeout)
        if told:
            self.channel.send(passed=node.number)
        return {"entered": fingerprint.name}

    def _by_rank_0(self, request: Request, timeout: float) -> Answer:
        self.channel.send(**request.message())
        return self.channel.receive(timeout + BARRIER_MARGIN)

    def _set_up(self, timeout: float) -> Answer:
        """Set up the tree barrier if every process can; otherwise no process does."""
        setup = BarrierSetup(self._info, self._job, self.channel.fileno())
        offer = Request(Fingerprint("the offers of the barrier"), payload=setup.offer(), payloads_of=setup.needs())
        answer = self._by_rank_0(offer, timeout)
        if answer and "entered" in answer:
            node = setup.node(answer.get("payloads")) if answer.get("all_ready") else None
            ready = Request(Fingerprint("the setup of the barrier"), payload=node is not None)
            answer = self._by_rank_0(ready, timeout)
            if answer and answer.get("all_ready"):
                self._node, self._is_set_up = node, True
                return answer
        setup.close()
        self._is_set_up = True
        return answer


def _digest(fingerprint: Fingerprint) -> bytes:
    """What the tree compares; of the last collective nothing, so that all ask the coordinator."""
    if fingerprint.name == LAST:
        return MISMATCH
    text = "\0".join((fingerprint.name, str(fingerprint.count), fingerprint.digest, *fingerprint.tensors))
    return blake2b(text.encode(), digest_size=16).digest()
