"""``watch_transfers``: what a block copies, and what to do about it, in a report that reads like a linter's."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from time import perf_counter
from typing import Any

from xdevice._version import __version__
from xdevice.contract import Kind
from xdevice.errors import BrokenBackendError, NotSupportedError, VirtualDeviceError, XDeviceError
from xdevice.framework.adapters import find, imported
from xdevice.hardware.bus import DEFAULT, Bus
from xdevice.kit.escaping import as_json, escaped
from xdevice.kit.units import size
from xdevice.tensors.transfers.facts import Facts
from xdevice.tensors.transfers.recorder import Recorder, Site
from xdevice.tensors.transfers.rules import advice
from xdevice.tensors.transfers.syntax import Place, shown
from xdevice.tensors.transfers.watching import WORDS, accepting, close_for, open_for, watched

__all__ = ["watch_transfers"]

NO_GPU = (
    "no framework had a GPU, so nothing could be copied; xdevice run --watch-transfers --virtual-gpus 2 --stand-in "
    "SCRIPT runs a script on two virtual ones"
)

_FEW = 2  # sentences on what is not seen
_MOST_BARS = 20


@dataclass(frozen=True)
class Finding:
    """A line that makes copies of one kind, from one device to another.

    ``rule`` and ``advice`` are empty where there is nothing to mend, as where a model is moved once.
    """

    file: str
    """Empty where no line of the program is known."""
    line: int
    source: str
    """The line's text."""
    framework: str
    copies: int
    nbytes: int
    from_: str
    """A device, or ``host``."""
    to: str
    kind: Kind
    rule: str
    advice: str
    per_step: float | None
    """Copies in a step of the optimizer; ``None`` where that is not known."""
    often: str
    """How often, in words: ``1 a step``, or ``1 each turn of the loop in line 190``; empty where it is not known."""
    estimate: float
    """Seconds on the stated bus."""

    @property
    def where(self) -> str:
        """``main.py:196``."""
        return f"{shown(self.file)}:{self.line}" if self.file else "(no line of the program)"

    @property
    def what(self) -> str:
        """``12 copies, 48 B, gpu:0 → host: reads a number, so Python waits for the GPU``."""
        return f"{self.how_much}: {WORDS[self.kind]}"

    @property
    def how_much(self) -> str:
        """``12 copies, 48 B, gpu:0 → host``."""
        often = f" ({self.often})" if self.often else ""
        return f"{_number(self.copies)}{often}, {size(self.nbytes)}, {self.from_} → {self.to}"

    def wrapped(self, width: int) -> Iterator[str]:
        """The program's line; below it what it copies and what to write instead, in lines of that width."""
        yield from _wrapped(f"{self.where}  {escaped(self.source)}".rstrip(), width)
        yield from _wrapped(f"    {self.how_much}: about {_duration(self.estimate)}", width)
        if self.kind != "copy":
            yield from _wrapped(f"    {WORDS[self.kind]}", width)
        if self.advice:
            yield from _wrapped(f"    help: {escaped(self.advice)}", width)


class Report:
    """The lines that copied: first those with something to write instead, each group's worst first.

    ``str`` shows it in lines as wide as the terminal, of 80 columns where there is none, and a notebook shows a table;
    ``len`` and iteration give the findings. It is there from the beginning of a block, and may be asked while the
    block is open.
    """

    def __init__(self, recorder: Recorder, bus: Bus) -> None:
        self._recorder, self.bus = recorder, bus
        self._began, self._watched = perf_counter(), list[str]()
        self.seconds = 0.0
        """How long the block was open."""

    def end(self) -> None:
        self._watched, self.seconds = watched(), perf_counter() - self._began

    @property
    def frameworks(self) -> list[str]:
        """The frameworks whose copies were seen."""
        return self._watched or sorted({site.owner for site in self._sites})

    @property
    def findings(self) -> list[Finding]:
        """The lines that copied, without those that are allowed: by ``# xdevice: allow``, or by a baseline."""
        found = [self._finding(site) for site in self._sites if not site.allowed]
        return sorted(found, key=lambda each: (not each.rule, -each.estimate, each.file, each.line))

    @property
    def steps(self) -> int:
        """The steps that the first optimizer has made."""
        return self._recorder.steps

    @property
    def copies(self) -> int:
        """How many copies were made, without those that are allowed."""
        return sum(site.copies for site in self._sites if not site.allowed)

    @property
    def nbytes(self) -> int:
        """Their bytes."""
        return sum(site.nbytes for site in self._sites if not site.allowed)

    @property
    def allowed(self) -> int:
        """How many more copies were made by lines that ``# xdevice: allow``, or a baseline, accepts."""
        return sum(site.copies for site in self._sites if site.allowed)

    @property
    def estimate(self) -> float:
        """The seconds that the copies would take on the stated bus."""
        return self.bus.seconds(self.copies, self.nbytes)

    @property
    def lines(self) -> list[tuple[Place, Kind]]:
        """The lines of the findings, and the kind of their copies: what a baseline keeps."""
        return [
            (site.place, site.kind)
            for site in self._sites
            if site.place is not None and not site.allowed
        ]

    def unseen(self) -> list[str]:
        """What could not be seen, a sentence each: of the frameworks that copied, or of all if none did."""
        found, copied = ["other processes"], {site.owner for site in self._sites}
        for owner in imported():
            try:
                capability = owner.open("transfers")
            except (
                XDeviceError
            ) as error:  # its virtual GPUs are refused, and nothing of it could be watched
                found.append(f"{owner}: {error}")
                continue
            if owner in (copied or self.frameworks) and capability.has("unseen"):
                found += capability.unseen()
            elif not capability.has("watch") and _has_gpu(owner):
                found.append(f"{owner}: {capability.why_not('watch')}")
        return found

    def has_gpu(self) -> bool:
        """Whether any framework has a device besides the CPU: else nothing can cross."""
        return bool(self._sites) or any(map(_has_gpu, imported()))

    @property
    def _sites(self) -> list[Site]:
        return list(self._recorder.sites.values())

    def _finding(self, site: Site) -> Finding:
        at, place = Facts(site, self._recorder, self.bus), site.place
        file, line, source = (place.file, place.line, place.source) if place else ("", 0, "")
        rule, instead = advice(at, _words(site.owner))
        what = site.owner, at.copies, site.nbytes, at.source, at.to
        seconds = self.bus.seconds(at.copies, site.nbytes)
        return Finding(
            file, line, source, *what, site.kind, rule, instead, at.per_step, at.often, seconds
        )

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return self.to_text(shutil.get_terminal_size().columns)

    def to_text(self, width: int = 80) -> str:
        """The report as lines of at most ``width`` columns, of 40 at least.

        Each finding is the line of the program; below it what it copies, and what to write instead. The last lines
        are the totals, and what they leave out.
        """
        columns = max(width, 40)
        lines = [part for each in self for part in each.wrapped(columns)]
        return "\n".join(
            [*lines, *(part for line in self._summary() for part in _wrapped(line, columns))]
        )

    def to_json(self) -> str:
        """The report as JSON; its keys are stable."""
        return as_json(
            {
                "version": __version__,
                "frameworks": self.frameworks,
                "bus": {
                    "bytes_per_second": self.bus.bandwidth,
                    "seconds_per_copy": self.bus.latency,
                },
                "seconds": round(self.seconds, 3),
                **{
                    name: getattr(self, name)
                    for name in ("steps", "copies", "nbytes", "estimate", "allowed")
                },
                "has_gpu": self.has_gpu(),
                "unseen": self.unseen(),
                "findings": [
                    {name.rstrip("_"): value for name, value in asdict(finding).items()}
                    for finding in self
                ],
            }
        )

    def plot(self) -> Any:
        """Each line's estimated time as a bar, the longest on top, in a matplotlib ``Figure``.

        Raises
        ------
        NotSupportedError
            matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError as error:
            raise NotSupportedError("plot() needs matplotlib; pip install matplotlib") from error
        found = sorted(self, key=lambda each: -each.estimate)[:_MOST_BARS][::-1]
        figure = Figure(figsize=(9, 1.4 + 0.35 * len(found)), layout="constrained")
        axes: Any = figure.subplots()
        names = [f"{each.where}  {escaped(each.source[:48])}" for each in found]
        colours = [
            "#D55E00" if each.rule else "#999999" for each in found
        ]  # Okabe and Ito's, with advice and without
        axes.barh(range(len(found)), [each.estimate * 1e3 for each in found], color=colours)
        axes.set_yticks(range(len(found)), names, family="monospace", fontsize=8)
        axes.set_xlabel(f"ms at {self.bus}, a stated bus")
        axes.set_title("Copies between devices: orange can be mended")
        return figure

    def _repr_html_(
        self,
    ) -> str:  # notebooks show it; without colours, so that it is read in a light and a dark theme
        from html import escape

        heads = (
            "line",
            "copies",
            "",
            "bytes",
            "from → to",
            "what it is, and what to write",
            "estimate",
        )
        rows = [
            (
                f"<b>{escape(each.where)}</b><br><code>{escape(escaped(each.source))}</code>",
                str(each.copies),
                escape(each.often),
                size(each.nbytes),
                f"{each.from_} → {each.to}",
                escape(each.what.rpartition(": ")[2])
                + (f"<br><i>{escape(each.advice)}</i>" if each.advice else ""),
                _duration(each.estimate),
            )
            for each in self
        ]
        head = "".join(f"<th>{each}</th>" for each in heads)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        table = (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
        )
        return table + "".join(f"<p>{escape(line)}</p>" for line in self._summary())

    def _summary(self) -> list[str]:
        """The totals and the stated bus, what is allowed, and what was not seen."""
        if not self.has_gpu():
            return [NO_GPU]
        took = f": {_duration(self.estimate)} at {self.bus}, a stated bus" if self.copies else ""
        accepted = (
            f"; {_number(self.allowed)} more allowed by {accepting()}" if self.allowed else ""
        )
        total = f"in all {_number(self.copies)}, {size(self.nbytes)}{took}{accepted}"
        unseen = self.unseen()
        more = f"; {len(unseen) - _FEW} more in to_json()" if len(unseen) > _FEW else ""
        return [
            total,
            f"not seen: {'; '.join(sentence.rstrip('.') for sentence in unseen[:_FEW])}{more}",
        ]


class watch_transfers:  # noqa: N801  (reads as a verb: `with watch_transfers() as report:`)
    """Within a ``with`` block, record every copy between the host and a device, or between devices.

    The framework's own copies and ours, of every thread, each with the line of the program that makes it. The report
    says what each costs and what to write instead; it changes while the block is open. Nothing is watched, and nothing
    costs anything, while no block is open.

    Parameters
    ----------
    bus
        What a copy is said to cost, since no time is measured: a bandwidth, and a time for each copy.

    Raises
    ------
    ArgumentError
        ``bus`` lacks a unit, or is not positive.
    NotSupportedError
        On entering: the chosen framework has several devices, and its adapter cannot see copies.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.watch_transfers() as report:
    ...     x = xdevice.ones(3)
    >>> len(report)
    0
    """

    __slots__ = ("_bus", "_open")

    def __init__(self, bus: str | Bus = DEFAULT) -> None:
        self._bus = bus if isinstance(bus, Bus) else Bus.parsed(bus)
        self._open: list[tuple[Recorder, Report]] = []

    def __enter__(self) -> Report:
        recorder = Recorder()
        open_for(recorder)
        self._open.append((recorder, Report(recorder, self._bus)))
        return self._open[-1][1]

    def __exit__(self, *error: Any) -> None:
        recorder, report = self._open.pop()
        report.end()
        close_for(recorder)


def _has_gpu(owner: Any) -> bool:
    try:
        return any(owner.hardware.count(kind) for kind in owner.hardware.kinds() if kind != "cpu")
    except (BrokenBackendError, NotSupportedError, VirtualDeviceError):
        return False


@cache
def _words(owner: str) -> Mapping[str, str]:
    """The framework's own words for what to write instead."""
    capability = find(owner).open("transfers")
    return capability.words() if capability.has("words") else {}


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent=" " * 8, break_on_hyphens=False)


def _number(copies: int) -> str:
    return f"{copies} {'copy' if copies == 1 else 'copies'}"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.2g} ms"
