"""Which rank has failed when the processes have waited too long for each other: rules over what each has reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xdevice.distributed.failures.timeouts import ANSWER


class Report(Protocol):
    """What rank 0 knows of a process; `str` is its rank, process id and host."""

    @property
    def rank(self) -> int: ...
    @property
    def waits_in(self) -> str | None:
        """The collective that it waits to enter."""
        ...

    where: str | None  # what it answers to the question where it is
    engine: tuple[float, float] | None  # seconds for which it has been in the engine, and that it may still be
    done: bool  # whether it has left the job


def diagnose(reports: Sequence[Report], timeout: float, last: str, entered: int) -> tuple[str, int | None]:
    """What the processes have waited for, and the rank that failed, once all have been asked where they are.

    No rank has failed where all answer, and those that are missing are in the engine: it waits for the network.
    """
    reports = sorted(reports, key=lambda report: report.rank)
    waiting = [report for report in reports if report.waits_in is not None]
    late = [report for report in reports if report.waits_in is None and not report.done]
    silent = [report for report in late if report.where is None]
    elsewhere = [report for report in late if report.engine is None]
    if waiting:
        before = f"{_ranks_of(waiting)} waited {timeout:g} s in {waiting[0].waits_in}"
    else:
        before = f"the processes waited {timeout:g} s inside {last}"
    if silent:
        why = f"{silent[0]} does not answer: it is stopped, or its host is, {after(last, entered)}"
        return f"{before}; {why}", silent[0].rank
    if elsewhere:
        why = f"{elsewhere[0]} did not come: it is {elsewhere[0].where}, {after(last, entered)}"
        return f"{before}; {why}", elsewhere[0].rank
    if late:
        seconds = max(report.engine[0] for report in late if report.engine is not None)
        before = f"{_ranks_of(late)} {'has' if len(late) == 1 else 'have'} been {late[0].where} for {seconds:.3g} s"
    return f"{before}, and all processes answer: check the network between them, or give a longer timeout", None


def is_in_time(reports: Sequence[Report]) -> bool:
    """Whether all answer, and those that are missing are in the engine, where one of them may still be for a while."""
    late = [report for report in reports if report.waits_in is None and not report.done]
    left = [report.engine[1] for report in late if report.where is not None and report.engine is not None]
    return len(left) == len(late) and max(left, default=0.0) > ANSWER


def _ranks_of(reports: Sequence[Report]) -> str:
    return ranks([report.rank for report in reports])


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
