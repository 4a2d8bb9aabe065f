"""What was copied: findings and totals, as they are now."""

from collections.abc import Iterator
from typing import Any

from xdevice.errors import BrokenBackendError, NotSupportedError
from xdevice.framework.adapters import imported
from xdevice.hardware.bus import Bus
from xdevice.tensors.transfers.finding import Finding
from xdevice.tensors.transfers.recording import Recorder, Site
from xdevice.tensors.transfers.rules import Facts, advice
from xdevice.tensors.transfers.watching import named


class Contents:
    """The lines that copied: those with something to write instead first, each group's worst first."""

    def __init__(self, recorder: Recorder, bus: Bus) -> None:
        self._recorder, self.bus = recorder, bus
        self._ended: list[str] | None = None
        self.seconds = 0.0
        """How long the block was open."""

    def end(self, frameworks: list[str], seconds: float) -> None:
        self._ended, self.seconds = frameworks, seconds

    @property
    def frameworks(self) -> list[str]:
        """The frameworks whose copies were seen."""
        return self._ended or sorted({site.owner for site in self._sites})

    @property
    def findings(self) -> list[Finding]:
        """The lines that copied, without those that end with ``# xdevice: allow``."""
        found = [self._finding(site) for site in self._sites if not site.allowed]
        return sorted(found, key=lambda each: (not each.rule, -each.estimate, each.file, each.line))

    @property
    def steps(self) -> int:
        """The steps that the first optimizer has made."""
        return self._recorder.steps

    @property
    def copies(self) -> int:
        """How many copies were made, without those that are allowed by their lines."""
        return sum(site.copies for site in self._sites if not site.allowed)

    @property
    def nbytes(self) -> int:
        """Their bytes."""
        return sum(site.nbytes for site in self._sites if not site.allowed)

    @property
    def allowed(self) -> int:
        """How many more copies were made by lines that end with ``# xdevice: allow``."""
        return sum(site.copies for site in self._sites if site.allowed)

    @property
    def estimate(self) -> float:
        """The seconds that the copies would take on the stated bus."""
        return self.bus.seconds(self.copies, self.nbytes)

    def unseen(self) -> list[str]:
        """What could not be seen, a sentence each: of the frameworks that copied, or of all if none did."""
        found, told = ["other processes"], {site.owner for site in self._sites}
        for owner in imported():
            capability = owner.open("transfers")
            if owner in (told or self.frameworks) and capability.has("unseen"):
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
        facts, place = Facts(site, self._recorder, self.bus), site.place
        rule, instead = advice(facts)
        return Finding(
            file=place.file if place else "",
            line=place.line if place else 0,
            source=place.source if place else "",
            framework=site.owner,
            copies=site.copies,
            nbytes=site.nbytes,
            from_=named(site.source),
            to=named(site.target),
            kind=site.kind,
            rule=rule,
            advice=instead,
            per_step=facts.per_step,
            often=facts.often,
            estimate=self.bus.seconds(site.copies, site.nbytes),
        )

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)


def _has_gpu(owner: Any) -> bool:
    try:
        return any(owner.hardware.count(kind) for kind in owner.hardware.kinds() if kind != "cpu")
    except (BrokenBackendError, NotSupportedError):
        return False
