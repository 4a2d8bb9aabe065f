"""Whether a program's GPU memory would suffice: ``xdevice fits``.

The need that is counted is the most that the caching allocator of a virtual
GPU reserves, in each process. A real GPU needs more: temporary memory of
kernels, and memory of CUDA's context. How much more, is known from recordings
only, so the need is a range, and there are three answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xdevice.contract import MemoryUse, PeakMemory
from xdevice.device import Device
from xdevice.virtual.fits.records import Record

FITS, NOT, UNKNOWN = "fits", "does not fit", "cannot be told"

KERNELS = 0.05
"""What temporary memory of kernels adds to the peak, at most, in the recordings."""

UNRECORDED_KERNELS = 0.2
"""The same where nothing is recorded, as for convolutions: an assumption."""

CONTEXT = (100 << 20, 1100 << 20)
"""The least and the most that CUDA's context took in 14 of 16 published out-of-memory errors."""

STEPS = 2
"""The steps that a training must have made: the second has the optimizer's state from its start."""


class Ended(NamedTuple):
    """How the program has ended."""

    words: str
    is_complete: bool = False  # by itself, and without an error
    has_failed: bool = False


def most_that_surely_fits(size: int) -> int:
    """The memory that an allocator may reserve on a GPU of that size in any case."""
    return max(int((size - CONTEXT[1]) / (1 + KERNELS)), 0)


class Share(NamedTuple):
    """What one process used of one GPU."""

    process: Record
    framework: str
    use: MemoryUse
    peak: PeakMemory

    @property
    def kernels(self) -> float:
        """The part of the peak that temporary memory of kernels may add."""
        return UNRECORDED_KERNELS if self.use.unrecorded else KERNELS

    @property
    def least(self) -> int:
        return self.peak.reserved + CONTEXT[0]

    @property
    def most(self) -> int:
        return self._reserved_at_most + CONTEXT[1] + self.peak.libraries

    @property
    def _reserved_at_most(self) -> int:
        return max(int(self.peak.reserved * (1 + self.kernels)), self.peak.with_temporary)

    @property
    def bounded_kernels(self) -> int:
        """The bytes that the kernels of `PeakMemory.temporary` may add, if these decide the most."""
        is_decisive = self.peak.with_temporary == self._reserved_at_most
        return self.peak.with_temporary - self.peak.reserved if is_decisive else 0


class Need(NamedTuple):
    """The memory that a GPU must have, in bytes."""

    gpu: int
    least: int  # the most of what a process surely needs
    most: int  # that of all processes that ran at the same time
    shares: tuple[Share, ...]  # the largest first


class Estimate(NamedTuple):
    """What was measured, and the answer."""

    size: int
    ended: Ended
    processes: tuple[Record, ...]
    needs: tuple[Need, ...]  # of each GPU that was used, the largest first
    answer: str
    reason: str  # why it cannot be told; else empty


def estimate(size: int, records: Sequence[Record], ended: Ended) -> Estimate:
    """The answer for a program whose processes have written these records."""
    needs = tuple(sorted(_needs(records), key=lambda need: (-need.most, need.gpu)))
    if any(need.least > size for need in needs):
        answer, reason = NOT, ""
    else:
        reason = next(_doubts(size, records, needs, ended), "")
        answer = UNKNOWN if reason else FITS
    return Estimate(size, ended, tuple(records), needs, answer, reason)


def _needs(records: Sequence[Record]) -> Iterator[Need]:
    shares = [share for record in records for share in _shares(record)]
    for index in sorted({share.peak.device.index for share in shares}):
        on_gpu = [share for share in shares if share.peak.device.index == index]
        on_gpu.sort(key=lambda share: -share.most)
        least = max(share.least for share in on_gpu)
        yield Need(index, least, _most_at_once(on_gpu), tuple(on_gpu))


def _shares(record: Record) -> Iterator[Share]:
    """The use of each GPU; of a process that was killed, the bytes that it had reserved."""
    for framework, use in record.uses:
        for peak in use.peaks:
            if peak.reserved:
                index = _index(record, peak.device.index)
                yield Share(record, framework, use, peak._replace(device=Device("gpu", index)))
    if record.ended is None:
        for visible, nbytes in enumerate(record.totals):
            if nbytes > 0:
                device = Device("gpu", _index(record, visible))
                peak = PeakMemory(device, nbytes, nbytes, "", 0, "", ())
                yield Share(record, "", MemoryUse((peak,), None), peak)


def _index(record: Record, visible: int) -> int:
    """The GPU's index among those of the program, of which the process may see a part."""
    return record.gpus[visible] if visible < len(record.gpus) else visible


def _most_at_once(shares: Sequence[Share]) -> int:
    """The most that processes need together that have run at the same time."""
    begins = {share.process.begun for share in shares}
    return max(sum(share.most for share in shares if _runs_at(share, time)) for time in begins)


def _runs_at(share: Share, time: float) -> bool:
    ended = math.inf if share.process.ended is None else share.process.ended
    return share.process.begun <= time <= ended


def _doubts(
    size: int, records: Sequence[Record], needs: Sequence[Need], ended: Ended
) -> Iterator[str]:
    """Why it cannot be told whether the program fits, the most important first."""
    yield from _shortages(records)
    uses = [use for record in records for _, use in record.uses]
    for use in uses:
        if use.undecided:
            yield f"{use.undecided}, which are not known without computing; add --compute"
    unmeasured = sorted({name for record in records for name in record.refused})
    if unmeasured:
        yield f"the memory that the program uses under {' and '.join(unmeasured)} is not measured"
    if ended.has_failed:
        rest = "and what follows was not measured" if needs else "and had used no memory of a GPU"
        yield f"{ended.words}, {rest}"
    yield from sorted({use.unmeasured for use in uses} - {""})
    for record in records:
        yield from _doubts_about(record, ended)
    yield from _unmeasured_children(records)
    if not needs:
        yield "the program used no memory of a GPU"
    if any(need.most > size for need in needs):
        yield "the size is within the uncertainty"
    shares = [share for need in needs for share in need.shares]
    if not ended.is_complete and not all(_has_trained(share.use) for share in shares):
        yield f"{ended.words}, before an optimizer had made {STEPS} steps"


def _shortages(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        for _, use in record.uses:
            if use.host_shortage:
                yield f"the host has too little memory: the program needs {use.host_shortage}"


def _doubts_about(record: Record, ended: Ended) -> Iterator[str]:
    """Why the record of a process that used a framework may not contain all that it needs."""
    name = f"{record.title} (process {record.pid})"
    if record.ended is None and any(record.totals):
        yield f"{name} was killed, or still runs, and what else it needs was not measured"
    if record.error and record.totals and ended.is_complete:
        yield f"{name} {record.error}, and what follows was not measured"


def _unmeasured_children(records: Sequence[Record]) -> Iterator[str]:
    """Python programs that were started and did not report, since they run without xdevice."""
    for record in records:
        missing = len(record.started_pythons) - sum(_is_child(other, record) for other in records)
        if missing > 0:
            names = sorted(set(record.started_pythons))
            yield (
                f"{record.title} started {', '.join(names)}, and {missing} of these Python "
                "processes did not report what they need: let them have this Python, its "
                "environment variables, and none of the options -I, -E and -S"
            )


def _is_child(other: Record, record: Record) -> bool:
    is_replacement = other.pid == record.pid and other.begun > record.begun
    return not other.is_of_multiprocessing and (other.parent == record.pid or is_replacement)


def _has_trained(use: MemoryUse) -> bool:
    return use.steps is not None and use.steps >= STEPS
