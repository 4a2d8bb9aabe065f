"""The report of ``xdevice run --fits``, as text and as JSON."""

import textwrap
from collections.abc import Iterator

from xdevice._version import __version__
from xdevice.contract import PeakMemory
from xdevice.kit.escaping import as_json, escaped
from xdevice.kit.units import size
from xdevice.tensors.transfers.syntax import Place, shown
from xdevice.virtual.fits import CONTEXT, FITS, NOT, UNKNOWN, Estimate, kernels, need
from xdevice.virtual.fits_advice import Shares, advice

STATUS = {FITS: 0, NOT: 1, UNKNOWN: 3}
"""The exit status for each answer; 2 is an error in the command line."""

_MOST_LINES = 6
_PHASES = {
    "forward": "forward pass",
    "no_grad": "computation without gradients",
    "backward": "backward pass",
    "step": "optimizer's step",
}
_KINDS = {"other": "activations and other tensors", "workspaces": "workspaces of cuBLAS"}


class Report:
    """The answer, the peak by kind and by line, what would help, and what is not known."""

    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate
        self.status = STATUS[estimate.answer]

    def to_text(self, width: int) -> str:
        columns = max(width, 40)
        lines: list[str] = []
        for indent, text in self._rows():
            lines += textwrap.wrap(
                text,
                columns,
                initial_indent=indent,
                subsequent_indent=indent + "    ",
                break_on_hyphens=False,
                drop_whitespace=True,
            )
        return "\n".join(lines)

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Each line with its indentation."""
        estimate = self.estimate
        yield "", f"{estimate.answer}: {self._answer()}"
        if estimate.peak is not None and estimate.peak.reserved:
            yield from self._peak(estimate.peak)
        for sentence in self._advice():
            yield "", f"help: {sentence}"
        for sentence in self.unknown():
            yield "", f"not counted: {sentence}"

    def _answer(self) -> str:
        """The reason of the answer, with its figures."""
        estimate = self.estimate
        peak = estimate.peak
        if peak is None or not peak.reserved:
            return estimate.reason
        needed = need(peak, estimate.use)
        words = f"{peak.device} needs {size(needed.least)} to {size(needed.most)} of "
        words += size(estimate.size)
        if estimate.answer == FITS:
            words += f", so that {size(estimate.size - needed.most)} or more would be left"
        if estimate.answer == NOT:
            words += f", {size(needed.least - estimate.size)} too much at least"
        return f"{words}; {estimate.reason}" if estimate.reason else words

    def _peak(self, peak: PeakMemory) -> Iterator[tuple[str, str]]:
        where = _where(peak.file, peak.line)
        phase = f", in the {_PHASES[peak.phase]}" if peak.phase else ""
        yield "", f"peak of {peak.device}{phase}: {where}"
        shares = Shares.of(peak)
        for kind, nbytes in shares.by_kind.items():
            yield "    ", f"{size(nbytes):>9}  {_KINDS.get(kind, kind)}"
        yield "    ", f"{size(shares.cached):>9}  cached by the allocator, or in fragments"
        if peak.parts:
            yield "", "allocated by:"
        for part in peak.parts[:_MOST_LINES]:
            kind = _KINDS.get(part.kind, part.kind)
            yield "    ", f"{size(part.nbytes):>9}  {kind}: {_where(part.file, part.line)}"
        others = [
            f"{other.device} {size(other.reserved)}"
            for other in self.estimate.use.peaks
            if other.device != peak.device and other.reserved
        ]
        if others:
            yield "", f"other GPUs at their peaks: {', '.join(others)}"

    def _advice(self) -> list[str]:
        """What would help a program that needs too much, or may need too much."""
        estimate = self.estimate
        peak = estimate.peak
        if peak is None or not peak.parts or need(peak, estimate.use).most <= estimate.size:
            return []
        return advice(peak, estimate.use)

    def unknown(self) -> list[str]:
        """What the figures do not contain, a sentence each."""
        ended = self.estimate.ended
        steps = self.estimate.use.steps
        context = f"CUDA's context, taken as {size(CONTEXT[0])} to {size(CONTEXT[1])}"
        use = self.estimate.use
        source = "as in recordings of GPUs"
        if use.unrecorded:
            source = f"an assumption: there is no recording of {' and '.join(use.unrecorded)}"
        sentences = [
            f"temporary memory of kernels, taken as 0 to {kernels(use):.0%}, {source}",
            f"{context}; libraries' own memory; other programs on the GPU; child processes",
        ]
        if not ended.is_complete and not ended.has_failed:
            made = f" after {steps} steps" if steps else ""
            sentences.insert(0, f"what follows: {ended.words}{made}")
        return sentences

    def to_json(self) -> str:
        """The report as JSON; its keys are stable."""
        estimate = self.estimate
        peak = estimate.peak
        answer: dict[str, object] = {
            "version": __version__,
            "answer": estimate.answer,
            "reason": estimate.reason,
            "size": estimate.size,
            "ended": estimate.ended.words,
            "steps": estimate.use.steps,
            "needs": None,
            "gpus": [_as_dict(each) for each in estimate.use.peaks],
            "advice": self._advice(),
            "not_counted": self.unknown(),
        }
        if peak is not None and peak.reserved:
            answer["needs"] = need(peak, estimate.use)._asdict()
        return as_json(answer)


def _as_dict(peak: PeakMemory) -> dict[str, object]:
    shares = Shares.of(peak)
    return {
        "device": str(peak.device),
        "allocated": peak.allocated,
        "reserved": peak.reserved,
        "file": peak.file,
        "line": peak.line,
        "phase": peak.phase,
        "kinds": shares.by_kind,
        "cached": shares.cached,
        "lines": [part._asdict() for part in peak.parts],
    }


def _where(file: str, line: int) -> str:
    """``train.py:31  loss.backward()``."""
    if not file:
        return "(no line of the program)"
    return f"{shown(file)}:{line}  {escaped(Place(file, line).source)}".rstrip()
