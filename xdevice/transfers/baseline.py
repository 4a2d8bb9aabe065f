"""A file of accepted lines, whose copies a report, a budget and a test leave out.

The file has the findings of a report as JSON (`Report.to_json`), so that such a
report is a baseline, too. Of a finding, the file, the text of the line and the
kind of the copies count. The line's number does not, because other changes move
it: a text that several lines have is accepted as often as it was found.
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

_HINT = "--update-baseline writes one"


class _Line(NamedTuple):
    file: str  # its whole path
    source: str
    kind: str


class Baseline:
    """The accepted lines of one file."""

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
            found: set[tuple[_Line, int]] = set()
            for entry in content["findings"]:
                file = os.path.normpath(baseline.path.parent / entry["file"])
                found.add((_Line(file, entry["source"], entry["kind"]), int(entry["line"])))
        except OSError as error:
            raise ArgumentError(
                f"no baseline in {str(path)!r}: {error.strerror}; {_HINT}"
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise ArgumentError(f"{str(path)!r} is not a baseline of transfers; {_HINT}") from error
        baseline._accepted.update(line for line, _ in found)
        return baseline

    def accepts(self, place: Place, kind: Kind) -> bool:
        """Whether the line may make copies of this kind."""
        answer = self._answers.get((place, kind))
        if answer is None:
            answer = self._answers[place, kind] = self._count(place, kind)
        return answer

    def _count(self, place: Place, kind: Kind) -> bool:
        """Count the line among the accepted ones with its text; False if there are no more."""
        line = _Line(os.path.normpath(place.file), place.source, kind)
        numbers = self._numbers[line]
        if len(numbers) < self._accepted[line]:
            numbers.add(place.line)
        return place.line in numbers

    def write(self, lines: Iterable[tuple[Place, Kind]]) -> int:
        """Write these lines, and no others, to the file, and return how many they are.

        Their files are relative to the baseline's folder: a checkout elsewhere
        can use it.
        """
        findings = [
            {
                "file": self._relative(place.file),
                "line": place.line,
                "source": place.source,
                "kind": kind,
            }
            for place, kind in sorted(set(lines), key=lambda line: (line[0].file, line[0].line))
        ]
        self.path.write_text(f"{as_json({'findings': findings})}\n", encoding="utf-8")
        return len(findings)

    def _relative(self, file: str) -> str:
        try:
            file = os.path.relpath(file, self.path.parent)
        except ValueError:  # another drive
            pass
        return file.replace(os.sep, "/")
