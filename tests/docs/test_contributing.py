"""The reading list of CONTRIBUTING.md: its files exist, are as long as it says, and can be read in an evening."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| \d+ \| `([^`]+)` \| (\d+) \|", re.MULTILINE)
MOST = 3700  # lines


def test_the_core_is_read_in_an_evening():
    listed = ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    lengths = {path: length(ROOT / path) for path, _ in listed}
    assert len(lengths) == len(listed) > 10
    assert sum(lengths.values()) <= MOST
    assert [path for path, said in listed if abs(lengths[path] - int(said)) > 30] == []


def length(path):
    """The lines of a file, or of a folder's modules."""
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
