"""Whether a program's GPU memory would suffice: ``xdevice fits``.

The need that is counted is the most that the caching allocator of a virtual
GPU reserves, in each process. A real GPU needs CUDA's context too, and its
kernels' temporary memory. How much these are is known from recordings only, so
the need is a range, and there are three answers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xdevice.contract import MemoryUse, PeakMemory
from xdevice.device import Device
from xdevice.virtual.fits.records import Record
from xdevice.virtual.models import CONTEXT, CONTEXTS, MODELS

FITS, NOT, UNKNOWN = "fits", "does not fit", "cannot be told"


class Kernels(NamedTuple):
    """How far what a real GPU reserves is from what is counted, as shares of the latter."""

    least: float
    most: float
    source: str


KERNELS = {
    "": Kernels(-0.045, 0.055, "as in 63 recordings"),
    "convolutions": Kernels(-0.075, 0.04, "as in 46 recordings"),
    "depthwise and pointwise convolutions": Kernels(-0.075, 0.22, "as in 37 recordings"),
    "recurrent layers": Kernels(-0.6, 0.2, "an assumption"),
    "functions that torch.compile compiles": Kernels(-0.045, 0.2, "an assumption"),
}
"""By what a program computes: the recordings are those of validation/fits and of docs/use/fits.md."""


def context_of(model: str) -> tuple[int, int]:
    """The memory of CUDA's context on that model of GPU; on any if the text is empty."""
    return CONTEXTS.get(MODELS[model].capability, CONTEXT) if model else CONTEXT


STEPS = 2
"""The steps that a training must have made: the second has the optimizer's state from its start."""


class Ended(NamedTuple):
    """How the program has ended."""

    words: str
    is_complete: bool = False  # by itself, and without an error
    has_failed: bool = False


def most_that_surely_fits(size: int, model: str = "") -> int:
    """The memory that an allocator may reserve on a GPU of that size in any case."""
    return max(int((size - context_of(model)[1]) / (1 + KERNELS[""].most)), 0)


class Part(NamedTuple):
    """A part of a need that is not counted, in bytes."""

    words: str
    least: int
    most: int
    source: str


class Share(NamedTuple):
    """What one process used of one GPU."""

    process: Record
    framework: str
    use: MemoryUse
    peak: PeakMemory
    context: tuple[int, int]

    @property
    def least(self) -> int:
        return self.peak.reserved + sum(part.least for part in self.parts())

    @property
    def most(self) -> int:
        return self.peak.reserved + sum(part.most for part in self.parts())

    def parts(self) -> list[Part]:
        """What the need has beside the counted memory."""
        parts = [self._kernels(), Part("CUDA's context", *self.context, "as recorded")]
        if self.peak.libraries:
            parts.append(Part("NCCL's buffers", 0, self.peak.libraries, "as in public issues"))
        return parts

    def _kernels(self) -> Part:
        counted = self.peak.reserved
        names = self.use.kernels or ("",)
        least = min(names, key=lambda name: KERNELS[name].least)
        most = max(names, key=lambda name: (KERNELS[name].most, -KERNELS[name].least))
        lowest, highest = int(counted * KERNELS[least].least), int(counted * KERNELS[most].most)
        bound = self.peak.with_temporary - counted
        if bound > highest:
            words = f"temporary memory of {self.peak.temporary}"
            return Part(words, lowest, bound, "the bound of its algorithm")
        of = f" of {most}" if most else ""
        return Part(f"kernels' temporary memory{of}", lowest, highest, KERNELS[most].source)


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


def estimate(size: int, records: Sequence[Record], ended: Ended, model: str = "") -> Estimate:
    """The answer for a program whose processes have written these records."""
    needs = tuple(
        sorted(_needs(records, context_of(model)), key=lambda need: (-need.most, need.gpu))
    )
    if any(need.least > size for need in needs):
        answer, reason = NOT, ""
    else:
        reason = next(_doubts(size, records, needs, ended), "")
        answer = UNKNOWN if reason else FITS
    return Estimate(size, ended, tuple(records), needs, answer, reason)


def _needs(records: Sequence[Record], context: tuple[int, int]) -> Iterator[Need]:
    shares = [share for record in records for share in _shares(record, context)]
    for index in sorted({share.peak.device.index for share in shares}):
        on_gpu = [share for share in shares if share.peak.device.index == index]
        on_gpu.sort(key=lambda share: -share.most)
        least = max(share.least for share in on_gpu)
        yield Need(index, least, _most_at_once(on_gpu), tuple(on_gpu))


def _shares(record: Record, context: tuple[int, int]) -> Iterator[Share]:
    """The use of each GPU; of a process that was killed, the bytes that it had reserved."""
    for framework, use in record.uses:
        for peak in use.peaks:
            if peak.reserved:
                index = _index(record, peak.device.index)
                in_program = peak._replace(device=Device("gpu", index))
                yield Share(record, framework, use, in_program, context)
    if record.ended is None:
        for visible, nbytes in enumerate(record.totals):
            if nbytes > 0:
                device = Device("gpu", _index(record, visible))
                peak = PeakMemory(device, nbytes, nbytes, "", 0, "", ())
                yield Share(record, "", MemoryUse((peak,), None), peak, context)


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


def _loops_that_ended(use: MemoryUse) -> Iterator[str]:
    """That a number which was read as 0 may have ended a training before its second step."""
    if use.steps is None or use.steps >= STEPS:
        return
    # with ast: not at each process's start
    from xdevice.transfers.syntax import Place, may_end_loop

    for file, line, _ in use.reads:
        if may_end_loop(Place(file, line)):
            yield (
                f"{os.path.basename(file)}:{line} reads a number that is not known without "
                f"computing, and may end a loop by it before an optimizer has made {STEPS} steps; "
                "add --compute"
            )


def _doubts(
    size: int, records: Sequence[Record], needs: Sequence[Need], ended: Ended
) -> Iterator[str]:
    """Why it cannot be told whether the program fits, the most important first."""
    yield from _shortages(records)
    uses = [use for record in records for _, use in record.uses]
    for use in uses:
        if use.undecided:
            yield f"{use.undecided}, not known without computing; add --compute"
        yield from _loops_that_ended(use)
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
