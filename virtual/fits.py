"""Whether a program's GPU memory would suffice: ``xdevice run --fits``.

The need that is counted is the most that the caching allocator of a virtual
GPU reserves. A real GPU needs more: temporary memory of kernels, and memory of
CUDA's context. How much more, is known from recordings only, so the need is a
range, and there are three answers.
"""

from __future__ import annotations

from typing import NamedTuple

from xdevice.contract import MemoryUse, PeakMemory
from xdevice.errors import ArgumentError, NotSupportedError
from xdevice.framework.adapters import Backend
from xdevice.virtual import request

FITS, NOT, UNKNOWN = "fits", "does not fit", "cannot be told"

KERNELS = 0.05
"""What temporary memory of kernels adds to the peak, at most, in the recordings."""

UNRECORDED_KERNELS = 0.2
"""The same where nothing is recorded, as for convolutions: an assumption."""

CONTEXT = (100 << 20, 1100 << 20)
"""The least and the most that CUDA's context took in 14 of 16 published out-of-memory errors."""

STEPS = 2
"""The steps that a training must have made: the second has the optimizer's state from its start."""


class Settings(NamedTuple):
    size: int  # of the GPU's memory, in bytes
    stop_after: int | None  # that number of an optimizer's steps


class Ended(NamedTuple):
    """How the program has ended."""

    words: str
    is_complete: bool  # by itself, and without an error
    has_failed: bool


_settings: Settings | None = None
_measured: list[Backend] = []


def measure(size: int, stop_after: int | None) -> None:
    """Measure each framework that gets virtual GPUs in this process.

    The size is that of a GPU's memory; 0 means that of its model.
    """
    global _settings
    if size:
        request.measure_for(size)
    of_model = request.memory()
    if of_model is None:
        raise ArgumentError(
            "--fits has neither a size nor a model; write --fits 24GiB, or --fits --gpu-model rtx4090"
        )
    _settings = Settings(of_model, stop_after)


def check(owner: Backend) -> None:
    """Raise an error if the framework is to be measured and cannot be."""
    if _settings is not None and not owner.load("measuring").has("measure_memory"):
        raise NotSupportedError(
            f"--fits is not known under {owner}, whose virtual GPUs do not count the memory that "
            "its operations take; it is known under torch"
        )


def begin(owner: Backend) -> None:
    """Measure the framework, if that was asked for: its virtual GPUs have just been made."""
    if _settings is not None:
        limit = most_that_surely_fits(_settings.size)
        owner.measuring.measure_memory(limit, _settings.stop_after)
        _measured.append(owner)


def most_that_surely_fits(size: int) -> int:
    """The memory that an allocator may reserve on a GPU of that size in any case."""
    return max(int((size - CONTEXT[1]) / (1 + KERNELS)), 0)


class Need(NamedTuple):
    """The memory that a GPU must have, in bytes."""

    least: int
    most: int


def need(peak: PeakMemory, use: MemoryUse) -> Need:
    most = int(peak.reserved * (1 + kernels(use))) + CONTEXT[1]
    return Need(peak.reserved + CONTEXT[0], most)


def kernels(use: MemoryUse) -> float:
    """The part of the peak that temporary memory of kernels may add."""
    return UNRECORDED_KERNELS if use.unrecorded else KERNELS


class Estimate(NamedTuple):
    """What was measured, and the answer."""

    size: int
    ended: Ended
    use: MemoryUse
    peak: PeakMemory | None  # of the GPU that needs the most
    answer: str
    reason: str  # why it cannot be told; else empty


def estimate(ended: Ended) -> Estimate:
    assert _settings is not None, "nothing has been measured"
    size = _settings.size
    uses = {owner: owner.measuring.memory_use() for owner in _measured}
    used = {owner: use for owner, use in uses.items() if use.host_shortage or _is_used(use)}
    if len(used) != 1:
        reason = "this process used no memory of a GPU, and its children are not measured"
        if used:
            reason = f"the program used {' and '.join(used)}, which share the GPU's memory"
        elif ended.has_failed:
            reason = f"{ended.words}, and had used no memory of a GPU"
        return Estimate(size, ended, MemoryUse((), None), None, UNKNOWN, reason)
    [use] = used.values()
    peak = max(use.peaks, key=lambda peak: peak.reserved)
    answer, reason = _answer(size, ended, use, peak)
    return Estimate(size, ended, use, peak, answer, reason)


def _is_used(use: MemoryUse) -> bool:
    return any(peak.reserved for peak in use.peaks)


def _answer(size: int, ended: Ended, use: MemoryUse, peak: PeakMemory) -> tuple[str, str]:
    """The answer, and why it cannot be told."""
    needed = need(peak, use)
    if needed.least > size:
        return NOT, ""
    if use.host_shortage:
        return UNKNOWN, f"the host has too little memory: the program needs {use.host_shortage}"
    if ended.has_failed:
        return UNKNOWN, f"{ended.words}, and what follows was not measured"
    if needed.most > size:
        return UNKNOWN, "the size is within the uncertainty"
    if not ended.is_complete and not _has_trained(use):
        return UNKNOWN, f"{ended.words}, before an optimizer had made {STEPS} steps"
    return FITS, ""


def _has_trained(use: MemoryUse) -> bool:
    return use.steps is not None and use.steps >= STEPS
