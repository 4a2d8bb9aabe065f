"""The rows of validation/programs, which anyone can run, and the tables of the pages beside it: what came of them."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TEXT = (HERE / "programs.toml").read_text(encoding="utf-8")


def test_the_page_lists_the_rows_that_are_kept():
    kept = {
        f"{project}/{row}"
        for project, row in re.findall(r"^\[([\w-]+)\.(\w+)\]$", TEXT, re.MULTILINE)
    }
    pages = [page.read_text(encoding="utf-8") for page in HERE.glob("*.md")]
    listed = [
        row for page in pages for row in re.findall(r"^\| `([\w-]+/\w+)` \|", page, re.MULTILINE)
    ]
    assert kept == set(listed)
    assert len(listed) == len(kept) > 50
    counts = re.findall(
        r"\[(\d+)(?: and (\d+))? programs\]", (HERE / "README.md").read_text("utf-8")
    )
    assert sum(int(count) for pair in counts for count in pair if count) == len(listed)


def test_every_file_that_stands_in_for_a_data_set_can_be_made():
    tree = ast.parse((HERE / "files.py").read_text(encoding="utf-8"))
    makers = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    lists = re.findall(r"^files = \[(.*)\]$", TEXT, re.MULTILINE)
    assert {line.split()[0] for line in re.findall(r'"([^"]*)"', " ".join(lists))} <= makers
