"""A file of accepted lines, whose copies a report, a budget and a test leave out.

A line is identified by its file, its text and the kind of its copies. Its
number does not count, because other changes move it.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from xdevice.contract import Kind
from xdevice.errors import ArgumentError
from xdevice.escaping import as_json
from xdevice.transfers.syntax import Place

_FORMAT = 1
_HINT = "--update-baseline writes one"


class _Line(NamedTuple):
    file: str  # relative to the baseline's folder, with slashes
    source: str
    kind: str


class Baseline:
    """The accepted lines of one file.

    A text that several lines have is accepted as often as it was found.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._accepted = Counter[_Line]()
        # the numbers of the lines that count among the accepted ones
        self._numbers = defaultdict[_Line, set[int]](set)
        self._answers: dict[tuple[Place, Kind], bool] = {}

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
            content = json.loads(baseline.path.read_text(encoding="utf-8"))
            for entry in content["accepted"]:
                line = _Line(entry["file"], entry["source"], entry["kind"])
                baseline._accepted[line] += int(entry["lines"])
        except OSError as error:
            raise ArgumentError(
                f"no baseline in {str(path)!r}: {error.strerror}; {_HINT}"
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise ArgumentError(f"{str(path)!r} is not a baseline of transfers; {_HINT}") from error
        return baseline

    def accepts(self, place: Place, kind: Kind) -> bool:
        """Whether the line may make copies of this kind."""
        answer = self._answers.get((place, kind))
        if answer is None:
            answer = self._answers[place, kind] = self._count(place, kind)
        return answer

    def _count(self, place: Place, kind: Kind) -> bool:
        """Count the line among the accepted ones with its text; False if there are no more."""
        line = self._line(place, kind)
        numbers = self._numbers[line]
        if len(numbers) < self._accepted[line]:
            numbers.add(place.line)
        return place.line in numbers

    def write(self, lines: Iterable[tuple[Place, Kind]]) -> int:
        """Write these lines, and no others, to the file; how many."""
        counts = Counter(self._line(place, kind) for place, kind in set(lines))
        accepted = [{**line._asdict(), "lines": counts[line]} for line in sorted(counts)]
        content = as_json({"format": _FORMAT, "accepted": accepted})
        self.path.write_text(f"{content}\n", encoding="utf-8")
        return counts.total()

    def _line(self, place: Place, kind: Kind) -> _Line:
        try:
            file = os.path.relpath(place.file, self.path.parent)
        except ValueError:  # another drive
            file = place.file
        return _Line(file.replace(os.sep, "/"), place.source, kind)
