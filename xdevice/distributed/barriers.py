"""The barrier before each collective: no engine runs while a process is missing.

If they can, the processes use a tree barrier, and the coordinator receives no
message unless something fails. A process that has waited for longer than usual
tells the coordinator, which then starts its clock and says which rank is late.
The coordinator lets the processes in itself if there are no pipes, if the
processes call different collectives, and at the end of the job.
"""

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

from xdevice.contract import Job
from xdevice.distributed.barrier_setup import BarrierSetup
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.messages import LAST_COLLECTIVE, Channel, Fingerprint, Request
from xdevice.distributed.tree_barrier import (
    MISMATCH,
    Follower,
    InterruptedByRank0Error,
    Leader,
    Wait,
)
from xdevice.distributed.deadlines import ANSWER, BARRIER_MARGIN

# Seconds after which a process tells the coordinator that it waits: before the
# coordinator asks.
PATIENCE = ANSWER / 3

Answer: TypeAlias = dict[str, Any] | None
"""Rank 0's answer to a request; ``None`` once rank 0 has closed the channel."""


class Barrier:
    """A process's entry into collectives: by the tree, or by the coordinator."""

    def __init__(
        self, channel: Channel, info: ProcessInfo, job: Job, entered: Callable[[str], None]
    ) -> None:
        self.channel = channel
        self._info = info
        self._job = job
        self._entered = entered  # called by the root of the tree, with the collective's name
        self._node: Follower | Leader | None = None  # None if the coordinator lets all in
        self._is_set_up = False

    def enter(self, fingerprint: Fingerprint, timeout: float) -> Answer:
        """Rank 0's answer: all processes have come, or the job has failed.

        They have come with the same fingerprint.

        `TimeoutError`: rank 0 does not answer in time.
        """
        if not self._is_set_up:
            answer = self._set_up(timeout)
            self._is_set_up = True
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
        patience = min(PATIENCE, timeout / 4)

        def tell_rank_0() -> None:
            request = Request(fingerprint, waited=patience, number=node.number)
            self.channel.send(**request.message())

        wait = Wait(
            self.channel.fileno(),
            patience,
            timeout + BARRIER_MARGIN,
            tell_rank_0,
            partial(self._entered, fingerprint.name),
        )
        try:
            node.ask(_digest(fingerprint), wait)
            may_enter = node.answer(wait)
        except InterruptedByRank0Error:
            return self.channel.receive(timeout)
        if not may_enter:
            return self._by_rank_0(Request(fingerprint), timeout)
        if wait.has_told_rank_0:
            self.channel.send(passed=node.number)
        return {"entered": fingerprint.name}

    def _by_rank_0(self, request: Request, timeout: float) -> Answer:
        self.channel.send(**request.message())
        return self.channel.receive(timeout + BARRIER_MARGIN)

    def _set_up(self, timeout: float) -> Answer:
        """Set up the tree barrier if every process can; otherwise none does."""
        setup = BarrierSetup(self._info, self._job, self.channel.fileno())
        offer = Request(
            Fingerprint("the offers of the barrier"),
            payload=setup.offer(),
            payloads_of=setup.needs(),
        )
        answer = self._by_rank_0(offer, timeout)
        if answer and "entered" in answer:
            node = None
            if answer.get("all_ready"):
                node = setup.node(answer.get("payloads"))
            ready = Request(Fingerprint("the setup of the barrier"), payload=node is not None)
            answer = self._by_rank_0(ready, timeout)
            if answer and answer.get("all_ready"):
                self._node = node
                return answer
        setup.close()
        return answer


def _digest(fingerprint: Fingerprint) -> bytes:
    """What the processes of the tree compare.

    At the last collective all ask the coordinator. Channels may close after
    it, so the coordinator must know of it.
    """
    if fingerprint.name == LAST_COLLECTIVE:
        return MISMATCH
    fields = (fingerprint.name, str(fingerprint.count), fingerprint.digest, *fingerprint.tensors)
    return blake2b("\0".join(fields).encode(), digest_size=16).digest()
