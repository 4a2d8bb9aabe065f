"""What was copied, as a linter says it: one finding a line, worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdevice.kit.units import size
from xdevice.tensors.transfers.bus import Bus
from xdevice.tensors.transfers.recording import Recorder, Site
from xdevice.tensors.transfers.watching import WORDS, named


class Report(Sequence[Site]):
    """The lines that copied, those that cost most first. ``str`` shows it."""

    def __init__(self, recorder: Recorder, bus: Bus) -> None:
        self._recorder, self.bus = recorder, bus
        self.frameworks: list[str] = []
        self.seconds = 0.0

    def end(self, frameworks: list[str], seconds: float) -> None:
        """What was watched, and for how long."""
        self.frameworks, self.seconds = frameworks, seconds

    def _sites(self) -> list[Site]:
        sites = [site for site in list(self._recorder.sites.values()) if not site.allowed]
        return sorted(sites, key=lambda site: -self.bus.seconds(site.copies, site.nbytes))

    def __len__(self) -> int:
        return len(self._sites())

    def __getitem__(self, i):  # type: ignore[no-untyped-def]
        return self._sites()[i]

    def __iter__(self) -> Iterator[Site]:
        return iter(self._sites())

    def __str__(self) -> str:
        return "\n".join(
            f"{s.place}  {s.copies} copies, {size(s.nbytes)}, {named(s.source)} → {named(s.target)}: {WORDS[s.kind]}"
            f"   | {s.place.source if s.place else ''}"
            for s in self._sites()
        )
