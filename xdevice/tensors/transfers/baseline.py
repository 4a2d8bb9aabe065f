"""A file of the lines whose copies are accepted, so that a report, a budget or a test is about new ones alone.

A line is known by its file, its text and the kind of its copies, and not by its number, which other changes move.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from xdevice.contract import Kind
from xdevice.errors import ArgumentError
from xdevice.kit.escaping import as_json
from xdevice.tensors.transfers.syntax import Place

_FORMAT = 1
_WRITES = "--update-baseline writes one"


class _Line(NamedTuple):
    file: str  # relative to the baseline's folder, with slashes
    source: str
    kind: str


class Baseline:
    """The accepted lines of one file; a text that stands on several lines is accepted as often as it was found."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._accepted = Counter[_Line]()
        self._seen = defaultdict[_Line, set[int]](
            set
        )  # the lines that have taken a place among the accepted
        self._known: dict[tuple[Place, Kind], bool] = {}

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Baseline":
        """The file's lines.

        Raises
        ------
        ArgumentError
            The file cannot be read, or is not a baseline.
        """
        baseline = cls(path)
        try:
            kept = json.loads(baseline.path.read_text(encoding="utf-8"))
            for each in kept["accepted"]:
                baseline._accepted[_Line(each["file"], each["source"], each["kind"])] += int(
                    each["lines"]
                )
        except OSError as error:
            raise ArgumentError(
                f"no baseline in {str(path)!r}: {error.strerror}; {_WRITES}"
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise ArgumentError(
                f"{str(path)!r} is not a baseline of transfers; {_WRITES}"
            ) from error
        return baseline

    def accepts(self, place: Place, kind: Kind) -> bool:
        """Whether the line may make copies of this kind."""
        known = self._known.get((place, kind))
        if known is None:
            known = self._known[place, kind] = self._takes(place, kind)
        return known

    def _takes(self, place: Place, kind: Kind) -> bool:
        line = self._line(place, kind)
        seen = self._seen[line]
        if len(seen) < self._accepted[line]:
            seen.add(place.line)
        return place.line in seen

    def write(self, found: Iterable[tuple[Place, Kind]]) -> int:
        """Keep these lines, and no others, in the file; how many."""
        counted = Counter(self._line(place, kind) for place, kind in set(found))
        accepted = [{**line._asdict(), "lines": counted[line]} for line in sorted(counted)]
        self.path.write_text(
            f"{as_json({'format': _FORMAT, 'accepted': accepted})}\n", encoding="utf-8"
        )
        return counted.total()

    def _line(self, place: Place, kind: Kind) -> _Line:
        try:
            file = os.path.relpath(place.file, self.path.parent)
        except ValueError:  # another drive
            file = place.file
        return _Line(file.replace(os.sep, "/"), place.source, kind)
