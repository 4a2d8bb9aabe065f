"""The processes of a job as the launcher knows them, and the diagnosis of a long wait."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from xdevice.distributed.deadlines import ANSWER
from xdevice.distributed.messages import Channel, Fingerprint, Message

_LONGEST_TEXT_OF_RANKS = 8  # ranks


class EngineTime(NamedTuple):
    """Seconds that a process has been in its engine, and may still be."""

    spent: float
    left: float


class Diagnosis(NamedTuple):
    """Why the processes waited for too long, and the failed rank, if any."""

    message: str
    rank: int | None


class Peer:
    """A process that has joined the job."""

    def __init__(self, message: Message) -> None:
        self.rank: int = message["rank"]
        self.pid: int = message["pid"]
        self.agreed: Message = message["agreed"]
        self.channels: dict[str, Channel] = {}  # barrier and control
        self.fingerprint: Fingerprint | None = None  # while it waits to enter a collective
        self.waiting_since = 0.0  # a time of `time.monotonic`
        # Its answer when it is asked where it is.
        self.location: str | None = None
        self.engine_time: EngineTime | None = None  # if it is in the engine, or was at the timeout
        self.engine_error: str | None = None  # if its engine has raised

    def forget_answer(self) -> None:
        self.location = None
        self.engine_time = None
        self.engine_error = None

    def take_answer(self, message: Message) -> None:
        self.location = message["where"]
        self.engine_error = message.get("engine_error")
        self.engine_time = None
        if "engine" in message:
            self.engine_time = EngineTime(*message["engine"])

    @property
    def is_late(self) -> bool:
        return self.fingerprint is None

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid})"


def disagreement(peer: Peer, rank_0: Peer) -> str | None:
    """What the process was started with otherwise than rank 0; ``None`` if they agree."""
    for key, expected in rank_0.agreed.items():
        found = peer.agreed.get(key)
        if found != expected:
            return f"{peer} has {key} {found!r}, and rank 0 has {expected!r}; start all alike"
    return None


def diagnose(peers: Sequence[Peer], timeout: float, last: str, entered: int) -> Diagnosis:
    """Why the processes waited for too long.

    All have been asked where they are.

    If all answer and are in the engine, no rank has failed: they wait for the
    network. An engine that has raised after the timeout waited for it, too,
    unless some ranks have already left theirs.
    """
    peers = sorted(peers, key=lambda peer: peer.rank)
    late = [peer for peer in peers if peer.is_late]
    silent = [peer for peer in late if peer.location is None]
    not_in_engine = [peer for peer in late if peer.engine_time is None]
    failed = [peer for peer in late if peer.engine_error is not None]
    if len(late) == len(peers):
        failed = [peer for peer in failed if peer.engine_time is None]
    wait = _longest_wait(peers, timeout, last)
    when = after(last, entered)
    if silent:
        reason = f"{silent[0]} does not answer: it is stopped, {when}"
        return Diagnosis(f"{wait}; {reason}", silent[0].rank)
    if failed:
        peer = failed[0]
        reason = f"{peer} did not come: its engine failed {peer.location}, {when}"
        return Diagnosis(f"{wait}; {reason}: {peer.engine_error}", peer.rank)
    if not_in_engine:
        peer = not_in_engine[0]
        reason = f"{peer} did not come: it is {peer.location}, {when}"
        return Diagnosis(f"{wait}; {reason}", peer.rank)
    if late:
        seconds = max(peer.engine_time.spent for peer in late if peer.engine_time is not None)
        verb = "has" if len(late) == 1 else "have"
        late_ranks = ranks_as_text([peer.rank for peer in late])
        wait = f"{late_ranks} {verb} been {late[0].location} for {seconds:.3g} s"
    hint = "check the network between them, or give a longer timeout"
    return Diagnosis(f"{wait}, and all processes answer: {hint}", None)


def _longest_wait(peers: Sequence[Peer], timeout: float, last: str) -> str:
    waiting = {peer.rank: peer.fingerprint for peer in peers if peer.fingerprint is not None}
    if not waiting:
        return f"the processes waited {timeout:g} s inside {last}"
    first = next(iter(waiting.values()))
    return f"{ranks_as_text(list(waiting))} waited {timeout:g} s in {first.name}"


def may_still_come(peers: Sequence[Peer]) -> bool:
    """Whether all answer, and the late ones may stay in the engine for longer."""
    late = [peer for peer in peers if peer.is_late]
    answers = [peer for peer in late if peer.location is not None]
    seconds_left = [peer.engine_time.left for peer in answers if peer.engine_time is not None]
    if len(seconds_left) < len(late):
        return False
    return max(seconds_left, default=0.0) > ANSWER


def diagnose_rendezvous(came: Collection[int], world_size: int, timeout: float) -> Diagnosis:
    """Why the rendezvous has failed, from the ranks that came."""
    missing = [rank for rank in range(world_size) if rank not in came]
    missing_ranks = ranks_as_text(missing) or "a process"
    message = (
        f"{missing_ranks} did not come: {ranks_as_text(sorted(came))} of {world_size} came within "
        f"{timeout:g} s; start every process, or give init() a longer timeout"
    )
    return Diagnosis(message, missing[0] if missing else 0)


def after(last: str, entered: int) -> str:
    """When something happened, as the end of a sentence."""
    # the first collective is the barrier after the start of the engines
    if entered > 1:
        return f"after {last}, its number {entered - 1}"
    return "before any collective"


def ranks_as_text(ranks: Sequence[int]) -> str:
    """The ranks as text: ``ranks 1, 2``; an empty string for none."""
    if len(ranks) > _LONGEST_TEXT_OF_RANKS:
        first = ranks[: _LONGEST_TEXT_OF_RANKS - 1]
        return f"{ranks_as_text(first)} and {len(ranks) - len(first)} more"
    if not ranks:
        return ""
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"{word} {', '.join(map(str, ranks))}"
