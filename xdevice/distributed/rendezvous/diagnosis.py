"""Which rank has failed when the processes have waited too long for each other: rules over what each has reported."""

from collections.abc import Collection, Sequence

from xdevice.distributed.failures.timeouts import ANSWER
from xdevice.distributed.rendezvous.peers import Peer


def diagnose(peers: Sequence[Peer], timeout: float, last: str, entered: int) -> tuple[str, int | None]:
    """What the processes have waited for, and the rank that failed, once all have been asked where they are.

    No rank has failed where all answer, and those that are missing are in the engine: it waits for the network.
    """
    peers = sorted(peers, key=lambda peer: peer.rank)
    waiting = [(peer, peer.request.name) for peer in peers if peer.request is not None]
    late = [peer for peer in peers if peer.is_late]
    silent = [peer for peer in late if peer.where is None]
    elsewhere = [peer for peer in late if peer.engine is None]
    if waiting:
        before = f"{_ranks_of([peer for peer, _ in waiting])} waited {timeout:g} s in {waiting[0][1]}"
    else:
        before = f"the processes waited {timeout:g} s inside {last}"
    if silent:
        why = f"{silent[0]} does not answer: it is stopped, or its host is, {after(last, entered)}"
        return f"{before}; {why}", silent[0].rank
    if elsewhere:
        why = f"{elsewhere[0]} did not come: it is {elsewhere[0].where}, {after(last, entered)}"
        return f"{before}; {why}", elsewhere[0].rank
    if late:
        seconds = max(peer.engine[0] for peer in late if peer.engine is not None)
        before = f"{_ranks_of(late)} {'has' if len(late) == 1 else 'have'} been {late[0].where} for {seconds:.3g} s"
    return f"{before}, and all processes answer: check the network between them, or give a longer timeout", None


def is_in_time(peers: Sequence[Peer]) -> bool:
    """Whether all answer, and those that are missing are in the engine, where one of them may still be for a while."""
    late = [peer for peer in peers if peer.is_late]
    left = [peer.engine[1] for peer in late if peer.where is not None and peer.engine is not None]
    return len(left) == len(late) and max(left, default=0.0) > ANSWER


def diagnose_rendezvous(came: Collection[int], world_size: int, timeout: float) -> tuple[str, int]:
    """Which ranks have not joined in time, and the first of them."""
    missing = [rank for rank in range(world_size) if rank not in came]
    there = f"{ranks(sorted(came))} of {world_size} came within {timeout:g} s"
    hint = "start every process, or give init() a longer timeout"
    return f"{ranks(missing) or 'a process'} did not come: {there}; {hint}", missing[0] if missing else 0


def _ranks_of(peers: Sequence[Peer]) -> str:
    return ranks([peer.rank for peer in peers])


def after(last: str, entered: int) -> str:
    """When something happened, as the end of a sentence."""
    # the first collective is the barrier after the start of the engines
    return f"after {last}, its number {entered - 1}" if entered > 1 else "before any collective"


def ranks(numbers: Sequence[int]) -> str:
    """The ranks as text: ``ranks 1, 2``; an empty string for none."""
    if len(numbers) > 8:
        return f"ranks {', '.join(map(str, numbers[:7]))} and {len(numbers) - 7} more"
    text = ", ".join(map(str, numbers))
    return text and f"{'rank' if len(numbers) == 1 else 'ranks'} {text}"
