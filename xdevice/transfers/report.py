"""``watch_transfers``: what a block copies, what that costs, and what to write instead."""

import gc
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from time import perf_counter

from xdevice._version import __version__
from xdevice.contract import Kind
from xdevice.device import Device
from xdevice.errors import BrokenBackendError, NotSupportedError, VirtualDeviceError, XDeviceError
from xdevice.escaping import as_json, escaped
from xdevice.framework.adapters import Backend, find, imported
from xdevice.framework.ownership import devices_of_tensors, tensor_owner
from xdevice.hardware.bus import DEFAULT, Bus
from xdevice.hardware.memory import ask_memory
from xdevice.transfers.facts import Facts
from xdevice.transfers.recorder import Recorder, Site
from xdevice.transfers.rules import advice
from xdevice.transfers.syntax import Place, in_library, shown
from xdevice.transfers.watching import WORDS, accepting, close_for, open_for, watched
from xdevice.units import size

__all__ = ["watch_transfers"]

NO_GPU = (
    "no framework had a GPU, so nothing could be copied; xdevice watch --gpus 2 PROGRAM runs a "
    "program on two virtual ones, which NumPy cannot have"
)

_MAX_UNSEEN = 2  # sentences on what is not seen, in a summary


@dataclass(frozen=True)
class Finding:
    """A line that makes copies of one kind, from one device to another.

    ``rule`` and ``advice`` are empty where there is nothing to mend, as where
    a program moves a model once.
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
    """How often, in words: ``1 a step``, or ``1 each turn of the loop in line 190``.

    Empty where it is not known.
    """
    estimate: float
    """Seconds on the stated bus."""
    library: str = ""
    """The line of a library that copies, if the program's line called one: ``a/b.py:12  x.item()``."""

    @property
    def where(self) -> str:
        """``main.py:196``."""
        if not self.file:
            return "(no line of the program)"
        return f"{shown(self.file)}:{self.line}"

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
        """The program's line, what it copies and what to write instead, in lines of that width."""
        yield from _wrapped(f"{self.where}  {escaped(self.source)}".rstrip(), width)
        if self.library:
            yield from _wrapped(f"    in {escaped(self.library)}", width)
        yield from _wrapped(f"    {self.how_much}: about {_duration(self.estimate)}", width)
        if self.kind != "copy":
            yield from _wrapped(f"    {WORDS[self.kind]}", width)
        if self.advice:
            yield from _wrapped(f"    help: {escaped(self.advice)}", width)


class Report:
    """The lines that copied: first those with advice, and the most expensive first.

    ``str`` shows the report in lines as wide as the terminal, or of 80 columns
    where there is none. ``len`` and iteration give the findings. The report can be used while the block is open.
    """

    def __init__(self, recorder: Recorder, bus: Bus) -> None:
        self.bus = bus
        self._recorder = recorder
        self._start = perf_counter()
        self._watched: list[str] = []
        self.seconds = 0.0
        """How long the block was open."""
        self.unused_gpus = ""
        """A sentence, if no tensor was ever on a GPU, with what the CPU had at the end."""

    def end(self) -> None:
        if not self._sites:
            self.unused_gpus = _unused_gpus()
        self._watched = watched()
        self.seconds = perf_counter() - self._start

    @property
    def frameworks(self) -> list[str]:
        """The frameworks whose copies were seen."""
        return self._watched or sorted({site.owner for site in self._sites})

    @property
    def findings(self) -> list[Finding]:
        """The lines that copied, without those that ``# xdevice: allow``, or a baseline, allows."""
        findings = [self._finding(site) for site in self._sites if not site.allowed]
        findings.sort(key=_order)
        return findings

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
        """How many more copies ``# xdevice: allow``, or a baseline, allowed."""
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
        """What could not be seen, a sentence each.

        It is about the frameworks that copied, or about all frameworks if none
        did.
        """
        sentences = ["other processes"]
        frameworks = {site.owner for site in self._sites} or self.frameworks
        for owner in imported():
            try:
                capability = owner.load("transfers")
            except XDeviceError as error:  # its virtual GPUs are refused, so it was not watched
                sentences.append(f"{owner}: {error}")
                continue
            if owner in frameworks and capability.has("unseen"):
                sentences += capability.unseen()
            elif not capability.has("watch") and _has_gpu(owner):
                sentences.append(f"{owner}: {capability.why_not('watch')}")
        return sentences

    def has_gpu(self) -> bool:
        """Whether any framework has a device besides the CPU; else nothing can be copied."""
        return bool(self._sites) or any(map(_has_gpu, imported()))

    @property
    def _sites(self) -> list[Site]:
        return list(self._recorder.sites.values())

    def _finding(self, site: Site) -> Finding:
        facts = Facts(site, self._recorder, self.bus)
        rule, text = advice(facts, _words(site.owner))
        file, line, source, library = "", 0, "", ""
        if site.library is not None:
            library = f"{in_library(*site.library)}  {site.library.source}"
        if site.place is not None:
            file, line, source = site.place.file, site.place.line, site.place.source
        return Finding(
            file=file,
            line=line,
            source=source,
            framework=site.owner,
            copies=facts.copies,
            nbytes=site.nbytes,
            from_=facts.source,
            to=facts.to,
            kind=site.kind,
            rule=rule,
            advice=text,
            per_step=facts.per_step,
            often=facts.often,
            estimate=self.bus.seconds(facts.copies, site.nbytes),
            library=library,
        )

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return self.to_text(shutil.get_terminal_size().columns)

    def to_text(self, width: int = 80) -> str:
        """The report as lines of at most ``width`` columns, of 40 at least.

        Each finding is the line of the program, what it copies, and what to
        write instead. The last lines are the totals, and what they leave out.
        """
        columns = max(width, 40)
        lines: list[str] = []
        for finding in self:
            lines += finding.wrapped(columns)
        for line in self._summary():
            lines += _wrapped(line, columns)
        return "\n".join(lines)

    def to_json(self) -> str:
        """The report as JSON; its keys are stable."""
        bus = {"bytes_per_second": self.bus.bandwidth, "seconds_per_copy": self.bus.latency}
        return as_json(
            {
                "version": __version__,
                "frameworks": self.frameworks,
                "bus": bus,
                "seconds": round(self.seconds, 3),
                "steps": self.steps,
                "copies": self.copies,
                "nbytes": self.nbytes,
                "estimate": self.estimate,
                "allowed": self.allowed,
                "has_gpu": self.has_gpu(),
                "unused_gpus": self.unused_gpus,
                "unseen": self.unseen(),
                "findings": [_as_dict(finding) for finding in self],
            }
        )

    def _summary(self) -> list[str]:
        """The totals and the stated bus, what is allowed, and what was not seen."""
        if not self.has_gpu():
            return [NO_GPU]
        total = f"in all {_number(self.copies)}, {size(self.nbytes)}"
        if self.copies:
            total += f": {_duration(self.estimate)} at {self.bus}, a stated bus"
        if self.allowed:
            total += f"; {_number(self.allowed)} more allowed by {accepting()}"
        totals = [total, self.unused_gpus] if self.unused_gpus else [total]
        sentences = [sentence.rstrip(".") for sentence in self.unseen()]
        unseen = f"not seen: {'; '.join(sentences[:_MAX_UNSEEN])}"
        if len(sentences) > _MAX_UNSEEN:
            unseen += f"; {len(sentences) - _MAX_UNSEEN} more in to_json()"
        return [*totals, unseen]


def _order(finding: Finding) -> tuple[bool, float, str, int]:
    """The key by which findings are sorted: those with advice first, then the slowest."""
    return not finding.rule, -finding.estimate, finding.file, finding.line


def _as_dict(finding: Finding) -> dict[str, object]:
    return {name.rstrip("_"): value for name, value in asdict(finding).items()}


class watch_transfers:  # noqa: N801  (reads as a verb: `with watch_transfers() as report:`)
    """Record every copy between the host and a device, or two devices, in a ``with`` block.

    These are the framework's own copies and those of xdevice, in every thread,
    each with the line of the program that makes it. The report says what each
    copy costs and what to write instead. It changes while the block is open.
    While no block is open, nothing is watched and there is no cost.

    Parameters
    ----------
    bus
        A bandwidth, and a time for each copy: what a copy is assumed to cost. No time is measured.

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

    def __exit__(self, *error: object) -> None:
        recorder, report = self._open.pop()
        report.end()
        close_for(recorder)


def _has_gpu(owner: Backend) -> bool:
    try:
        kinds = [kind for kind in owner.hardware.kinds() if kind != "cpu"]
        if not owner.has("transfers", "watch"):
            kinds = ["gpu"]  # array-api-strict's own devices are in the host's memory
        return any(map(owner.hardware.count, kinds))
    except (BrokenBackendError, NotSupportedError, VirtualDeviceError):
        return False


def _unused_gpus() -> str:
    """What to say if every framework with GPUs knows that none of them ever had a tensor."""
    owners = [owner for owner in imported() if _has_gpu(owner)]
    gpus = [
        (owner, Device("gpu", i)) for owner in owners for i in range(owner.hardware.count("gpu"))
    ]
    stats = [ask_memory(owner, "memory_stats", gpu) or {} for owner, gpu in gpus]
    if not gpus or any(each.get("peak") != 0 for each in stats):
        return ""
    tensors = [obj for obj in gc.get_objects() if _is_on_host(obj, owners)]
    nbytes = sum(getattr(tensor, "nbytes", 0) for tensor in tensors)
    noun = "tensor" if len(tensors) == 1 else "tensors"
    # Python's garbage collector does not know PaddlePaddle's tensors that are no parameters
    known = f", where it has {len(tensors)} {noun}, {size(nbytes)}, now" if tensors else ""
    return (
        f"no tensor was ever on a GPU: the program computed on the CPU{known}; "
        "move the model and its inputs to a GPU"
    )


def _is_on_host(obj: object, owners: Sequence[Backend]) -> bool:
    is_frameworks = type(obj).__module__.partition(".")[0] in owners
    return (
        is_frameworks
        and tensor_owner(obj) is not None
        and devices_of_tensors([obj]) == {Device("cpu", 0)}
    )


@cache
def _words(owner: str) -> Mapping[str, str]:
    """The framework's own words for what to write instead."""
    capability = find(owner).load("transfers")
    if not capability.has("words"):
        return {}
    words: Mapping[str, str] = capability.words()
    return words


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent=" " * 8, break_on_hyphens=False)


def _number(copies: int) -> str:
    noun = "copy" if copies == 1 else "copies"
    return f"{copies} {noun}"


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.2g} ms"
