"""Which rank has failed when the processes have waited too long for each other: rules over what each has reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Report(Protocol):
    """What rank 0 knows of a process; `str` is its rank, process id and host."""

    @property
    def rank(self) -> int: ...
    @property
    def waits_in(self) -> str | None:
        """The collective that it waits to enter."""
        ...

    where: str | None  # what it answers to the question where it is
    done: bool  # whether it has left the job


def diagnose(reports: Sequence[Report], timeout: float, last: str, entered: int) -> tuple[str, int]:
    """What the processes have waited for, and the rank that failed, once all have been asked where they are."""
    reports = sorted(reports, key=lambda report: report.rank)
    waiting = [report for report in reports if report.waits_in is not None]
    late = [report for report in reports if report.waits_in is None and not report.done] or reports
    silent = [report for report in late if report.where is None]
    failed = (silent or late)[0]
    if waiting:
        before = f"{ranks([report.rank for report in waiting])} waited {timeout:g} s in {waiting[0].waits_in}"
    else:
        before = f"the processes waited {timeout:g} s inside {last}"
    if silent:
        why = f"{failed} does not answer: it is stopped, or its host is, {after(last, entered)}"
    else:
        why = f"{failed} did not come: it is {failed.where}, {after(last, entered)}"
    return f"{before}; {why}", failed.rank


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
