"""The processes of a job as rank 0 knows them, and which has failed when they have waited too long for each other."""

from collections.abc import Collection, Sequence
from typing import Any

from xdevice.distributed.failures import ANSWER
from xdevice.distributed.rendezvous.messages import Channel, JoinMessage, Request

_MUST_AGREE = ("world_size", "timeout", "backend", "engine", "version")
_WORDS = {"world_size": "world size", "version": "xdevice version"}


class Peer:
    def __init__(self, joined: JoinMessage) -> None:
        self.joined = joined
        self.rank: int = joined["rank"]
        self.channels: dict[str, Channel] = {}  # barrier and control
        self.request: Request | None = None  # while it waits to enter a collective
        self.since = 0.0  # when it began to wait, a time of `time.monotonic`
        self.where: str | None = None  # what it answers to the question where it is
        self.engine: tuple[float, float] | None = (
            None  # seconds it has been in the engine, and may still be
        )
        self.done = False  # whether it has left the job

    def answer(self, message: dict[str, Any]) -> None:
        self.where = str(message["where"])
        match message.get("engine"):
            case [float(so_far), float(left)] if abs(so_far) < 1e9 and abs(left) < 1e9:
                self.engine = so_far, left
            case _:
                self.engine = None

    @property
    def is_late(self) -> bool:
        return self.request is None and not self.done

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.joined['pid']} on {self.joined['name']})"


def refusal(joining: JoinMessage, own: JoinMessage, here: Peer | None) -> str | None:
    """Why a process cannot join the job of rank 0; ``here`` is the one that has joined with the same rank."""
    rank, size = joining["rank"], own["world_size"]
    for key in _MUST_AGREE:
        if joining.get(key) != own[key]:
            theirs = f"{_WORDS.get(key, key)} {joining.get(key)!r}"
            return f"rank {rank} has {theirs}, and rank 0 has {own[key]!r}; start all alike"
    if not 0 <= rank < size:
        return f"a process has rank {rank} in a job of {size} processes; ranks count from 0"
    if here is not None and here.joined["id"] != joining.get("id"):
        one, other = (
            f"process {each.get('pid')} on {each.get('name')}" for each in (here.joined, joining)
        )
        return f"rank {rank} is there twice: {one} and {other}; give each process a rank of its own"
    return None


def diagnose(
    peers: Sequence[Peer], timeout: float, last: str, entered: int
) -> tuple[str, int | None]:
    """What the processes have waited for, and the rank that failed, once all have been asked where they are.

    No rank has failed where all answer, and those that are missing are in the engine: it waits for the network.
    """
    peers = sorted(peers, key=lambda peer: peer.rank)
    waiting = [(peer, peer.request.fingerprint.name) for peer in peers if peer.request is not None]
    late = [peer for peer in peers if peer.is_late]
    silent = [peer for peer in late if peer.where is None]
    elsewhere = [peer for peer in late if peer.engine is None]
    before = f"the processes waited {timeout:g} s inside {last}"
    if waiting:
        before = (
            f"{ranks([peer.rank for peer, _ in waiting])} waited {timeout:g} s in {waiting[0][1]}"
        )
    if silent:
        why = f"{silent[0]} does not answer: it is stopped, or its host is, {after(last, entered)}"
        return f"{before}; {why}", silent[0].rank
    if elsewhere:
        why = f"{elsewhere[0]} did not come: it is {elsewhere[0].where}, {after(last, entered)}"
        return f"{before}; {why}", elsewhere[0].rank
    if late:
        seconds = max(peer.engine[0] for peer in late if peer.engine is not None)
        those, verb = ranks([peer.rank for peer in late]), "has" if len(late) == 1 else "have"
        before = f"{those} {verb} been {late[0].where} for {seconds:.3g} s"
    return (
        f"{before}, and all processes answer: check the network between them, or give a longer timeout",
        None,
    )


def is_in_time(peers: Sequence[Peer]) -> bool:
    """Whether all answer, and those that are missing are in the engine, where one of them may still be for a while."""
    late = [peer for peer in peers if peer.is_late]
    left = [peer.engine[1] for peer in late if peer.where is not None and peer.engine is not None]
    return len(left) == len(late) and max(left, default=0.0) > ANSWER


def diagnose_rendezvous(came: Collection[int], world_size: int, timeout: float) -> tuple[str, int]:
    missing = [rank for rank in range(world_size) if rank not in came]
    there = f"{ranks(sorted(came))} of {world_size} came within {timeout:g} s"
    hint = "start every process, or give init() a longer timeout"
    return f"{ranks(missing) or 'a process'} did not come: {there}; {hint}", missing[
        0
    ] if missing else 0


def after(last: str, entered: int) -> str:
    """When something happened, as the end of a sentence."""
    # the first collective is the barrier after the start of the engines
    return f"after {last}, its number {entered - 1}" if entered > 1 else "before any collective"


def ranks(numbers: Sequence[int]) -> str:
    """The ranks as text: ``ranks 1, 2``; an empty string for none."""
    if len(numbers) > 8:
        return f"{ranks(numbers[:7])} and {len(numbers) - 7} more"
    text = ", ".join(map(str, numbers))
    return text and f"{'rank' if len(numbers) == 1 else 'ranks'} {text}"
