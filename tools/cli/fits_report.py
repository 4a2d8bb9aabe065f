"""The report of ``xdevice fits``, as text and as JSON."""

import textwrap
from collections.abc import Iterator

from xdevice._version import __version__
from xdevice.escaping import as_json, escaped
from xdevice.tools.cli.fits_advice import Shares, advice
from xdevice.transfers.syntax import Place, in_library, shown
from xdevice.units import size
from xdevice.virtual.fits.estimate import FITS, NOT, UNKNOWN, Estimate, Share

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

_LESS_OF_NCCL = (
    "fewer process groups, or a smaller NCCL_BUFFSIZE: NCCL's buffers decide whether the program "
    "fits"
)


class Report:
    """The answer, the peak by kind and by line, what would help, and what is not known."""

    def __init__(self, estimate: Estimate, nearest_card: str = "") -> None:
        self.estimate = estimate
        self.nearest_card = nearest_card
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
        yield "", f"{self.estimate.answer}: {self._answer()}"
        if self._largest is not None:
            yield from self._peak(self._largest)
            yield from self._range(self._largest)
            yield from self._others(self._largest)
        for sentence in self._advice():
            yield "", f"help: {sentence}"
        if self.nearest_card:
            yield "", f"help: {self.nearest_card}"
        for sentence in self.unknown():
            yield "", f"not counted: {sentence}"

    def _answer(self) -> str:
        """The reason of the answer, with its figures."""
        estimate = self.estimate
        if not estimate.needs:
            return estimate.reason
        need = estimate.needs[0]
        words = f"gpu:{need.gpu} needs {size(need.least)} to {size(need.most)} of "
        words += size(estimate.size)
        if estimate.answer == FITS:
            words += f", so that {size(estimate.size - need.most)} or more would be left"
        if estimate.answer == NOT:
            words += f", {size(need.least - estimate.size)} too much at least"
        return f"{words}; {self._reason}" if self._reason else words

    def _peak(self, share: Share) -> Iterator[tuple[str, str]]:
        peak = share.peak
        phase = f", in the {_PHASES[peak.phase]}" if peak.phase else ""
        process = f" in {_name(share)}" if len(self._shares) > 1 else ""
        yield "", f"peak of {peak.device}{process}{phase}: {_where(peak.file, peak.line)}"
        shares = Shares.of(peak)
        for kind, nbytes in shares.by_kind.items():
            yield "    ", f"{size(nbytes):>9}  {_KINDS.get(kind, kind)}"
        yield "    ", f"{size(shares.cached):>9}  cached by the allocator, or in fragments"
        if peak.parts:
            yield "", "allocated by:"
        for part in peak.parts[:_MOST_LINES]:
            kind = _KINDS.get(part.kind, part.kind)
            where = _where(part.file, part.line)
            if part.library:
                where += f", in {in_library(part.library, part.library_line)}"
            yield "    ", f"{size(part.nbytes):>9}  {kind}: {where}"

    def _range(self, share: Share) -> Iterator[tuple[str, str]]:
        """The parts of the need: what is counted, and what is known from recordings."""
        peak = share.peak
        yield "", "the range:"
        yield "    ", f"{size(peak.reserved)} counted: what the allocator reserves"
        for part in share.parts():
            bounds = f"{_signed(part.least)} to {_signed(part.most)}"
            yield "    ", f"{bounds} {part.words}, {part.source}"
        if len(self._shares) > 1:
            yield "    ", "the same for each process on the GPU; together, if they run at once"
        if peak.unlimited > peak.reserved:
            words = "on a larger GPU, where nothing that is cached has to be released"
            yield "    ", f"{size(peak.unlimited)} would be counted {words}"

    def _others(self, largest: Share) -> Iterator[tuple[str, str]]:
        """The other GPUs, and the other processes, at their peaks."""
        others = [share for share in self._shares if share is not largest]
        if others:
            yield "", "other peaks:"
        for share in others:
            reserved = size(share.peak.reserved)
            yield "    ", f"{reserved:>9}  {share.peak.device} in {_name(share)}"

    def _advice(self) -> list[str]:
        """What would help a program that needs too much, or may need too much."""
        estimate = self.estimate
        if self._largest is None:
            return []
        need = estimate.needs[0]
        if need.most <= estimate.size:
            return []
        if need.most - sum(share.peak.libraries for share in need.shares) <= estimate.size:
            return [_LESS_OF_NCCL]
        if not self._largest.peak.parts:
            return []
        return advice(self._largest.peak, self._largest.use)

    def unknown(self) -> list[str]:
        """What the figures do not contain, a sentence each."""
        ended = self.estimate.ended
        sentences = ["memory that other libraries allocate themselves; other programs on the GPU"]
        reads = self._reads()
        if reads:
            words = "what follows from values that the program reads, all 0 without --compute"
            sentences.append(f"{words}: {reads}")
        programs = {name for each in self.estimate.processes for name in each.started_others}
        if programs:
            sentences.append(f"programs that are not Python: {', '.join(sorted(programs))}")
        if not ended.is_complete and not ended.has_failed:
            is_known = self._steps and f"after {self._steps} steps" not in ended.words
            made = f" after {self._steps} steps" if is_known else ""
            sentences.insert(0, f"what follows: {ended.words}{made}")
        return sentences

    @property
    def _reason(self) -> str:
        """Why it cannot be told, or on what the answer that it fits depends."""
        integers = self._reads(of_integers=True)
        if self.estimate.answer != FITS or not integers:
            return self.estimate.reason
        return f"unless integers decide that it reads as 0: {integers}; --compute tells"

    def _reads(self, of_integers: bool = False) -> str:
        """The lines that read values that were not computed."""
        uses = [use for each in self.estimate.processes for _, use in each.uses]
        reads = {each[:2] for use in uses for each in use.reads if each[2] or not of_integers}
        return ", ".join(_where(*place) for place in sorted(reads)[:_MOST_LINES])

    @property
    def _shares(self) -> list[Share]:
        """What each process used of each GPU, the GPU and the process that need the most first."""
        return [share for need in self.estimate.needs for share in need.shares]

    @property
    def _largest(self) -> Share | None:
        return self._shares[0] if self._shares else None

    @property
    def _steps(self) -> int | None:
        steps = [use.steps for each in self.estimate.processes for _, use in each.uses]
        return max((number for number in steps if number is not None), default=None)

    def to_json(self) -> str:
        """The report as JSON; its keys are stable."""
        estimate = self.estimate
        needs = estimate.needs[0] if estimate.needs else None
        answer: dict[str, object] = {
            "version": __version__,
            "answer": estimate.answer,
            "reason": self._reason,
            "size": estimate.size,
            "ended": estimate.ended.words,
            "steps": self._steps,
            "needs": needs and {"least": needs.least, "most": needs.most},
            "gpus": [_as_dict(share) for share in self._shares],
            "advice": self._advice(),
            "not_counted": self.unknown(),
        }
        return as_json(answer)


def _name(share: Share) -> str:
    return f"{share.process.title} (process {share.process.pid})"


def _as_dict(share: Share) -> dict[str, object]:
    peak = share.peak
    shares = Shares.of(peak)
    return {
        "device": str(peak.device),
        "process": share.process.pid,
        "program": share.process.title,
        "framework": share.framework,
        "allocated": peak.allocated,
        "reserved": peak.reserved,
        "file": peak.file,
        "line": peak.line,
        "phase": peak.phase,
        "kinds": shares.by_kind,
        "cached": shares.cached,
        "unlimited": peak.unlimited,
        "range": [part._asdict() for part in share.parts()],
        "lines": [part._asdict() for part in peak.parts],
    }


def _signed(nbytes: int) -> str:
    return f"-{size(-nbytes)}" if nbytes < 0 else size(nbytes)


def _where(file: str, line: int) -> str:
    """``train.py:31  loss.backward()``."""
    if not file:
        return "(no line of the program)"
    return f"{shown(file)}:{line}  {escaped(Place(file, line).source)}".rstrip()
