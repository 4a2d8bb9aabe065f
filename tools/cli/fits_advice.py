"""What would lower the peak of a program's memory, as far as its figures show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from xdevice.contract import MemoryUse, PeakMemory
from xdevice.units import size

_LARGE = 0.1  # the share of the peak from which something is worth a line


class Shares(NamedTuple):
    """The parts of a peak, in bytes."""

    by_kind: dict[str, int]  # the largest first; empty where only the total is known
    cached: int  # reserved and not allocated
    total: int

    @classmethod
    def of(cls, peak: PeakMemory) -> Shares:
        sums: dict[str, int] = {}
        for part in peak.parts:
            sums[part.kind] = sums.get(part.kind, 0) + part.nbytes
        by_kind = dict(sorted(sums.items(), key=lambda item: -item[1]))
        return cls(by_kind, peak.reserved - peak.allocated, peak.reserved)

    def large(self, kind: str) -> int:
        """The bytes of the kind, or 0 if they are a small share of the peak."""
        nbytes = self.by_kind.get(kind, 0)
        return nbytes if nbytes >= _LARGE * self.total else 0


def advice(peak: PeakMemory, use: MemoryUse) -> list[str]:
    """A sentence for each change that would lower the peak, the most effective first."""
    return [sentence for _, sentence in sorted(_savings(peak, use), reverse=True)]


def _savings(peak: PeakMemory, use: MemoryUse) -> Iterator[tuple[int, str]]:
    """The bytes that a change saves at most, and the sentence about it."""
    shares = Shares.of(peak)
    trains = bool(shares.by_kind.get("gradients") or use.steps)
    yield from _savings_of_activations(peak, shares, use, trains)
    gradients = shares.large("gradients")
    if gradients and peak.phase == "forward":
        words = "optimizer.zero_grad(set_to_none=True) before the forward pass"
        yield gradients, f"{words}: saves {size(gradients)} of gradients"
    state = shares.large("optimizer state")
    if state:
        yield state, f"an optimizer with less state: saves up to {size(state)}"
    weights = shares.large("weights")
    if weights and 2 * use.float32_weights > weights:
        half = use.float32_weights // 2
        yield half, f"weights in bfloat16, if the program allows it: saves up to {size(half)}"
    if shares.cached >= _LARGE * shares.total:
        words = "PYTORCH_ALLOC_CONF=expandable_segments:True"
        yield shares.cached, f"{words}: saves up to {size(shares.cached)} of fragments"


def _savings_of_activations(
    peak: PeakMemory, shares: Shares, use: MemoryUse, trains: bool
) -> Iterator[tuple[int, str]]:
    activations = shares.large("other")
    half = activations // 2
    if not activations:
        return
    if peak.phase == "step":
        words = "foreach=False or fused=True for the optimizer, whose step then makes fewer copies"
        yield activations, f"{words}: saves up to {size(activations)}"
        return
    if use.float32_weights and not use.uses_autocast:
        words = 'torch.autocast("cuda", dtype=torch.bfloat16)'
        yield half, f"{words}: saves up to {size(half)}, half of the activations"
    if peak.phase in ("forward", "backward"):
        yield half, f"half the batch: saves up to {size(half)}, half of the activations"
    if trains and peak.phase in ("forward", "backward"):
        most = max(part.nbytes for part in peak.parts if part.kind == "other")
        words = "torch.utils.checkpoint around what the first line of activations calls"
        yield most, f"{words}: saves up to {size(most)}, and computes it twice"
    if not trains and peak.phase == "forward" and shares.by_kind.get("weights"):
        words = "torch.inference_mode(), if no gradients are needed"
        yield activations, f"{words}: saves up to {size(activations)}"
