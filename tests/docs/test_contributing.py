"""The reading list of CONTRIBUTING.md: its files exist, are as long as it says, and can be read in an evening."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| \d+ \| `([^`]+)` \| (\d+) \|", re.MULTILINE)
MOST = 3200  # lines


def test_the_core_is_read_in_an_evening():
    listed = ROW.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    lengths = {file: len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file, _ in listed}
    assert len(lengths) == len(listed) > 10
    assert sum(lengths.values()) <= MOST
    assert [file for file, said in listed if abs(lengths[file] - int(said)) > 30] == []
