"""A chapter in Markdown with a tab for each framework, and what each of its cells was recorded to print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

CELL = re.compile(r"^```\{\.python \.input([^}]*)\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"#([\w-]+)")
TAB = re.compile(r"\A(?:%%|#@)tab[ \t]+([^\n]*)\n")
DEFINES = re.compile(r"^(?:def|class) (\w+)|^@d2l\.add_to_class\((?:d2l\.)?(\w+)\)", re.MULTILINE)


class Cell(NamedTuple):
    name: str
    code: str


def cells(text: str, tab: str) -> list[Cell]:
    """The cells of one tab, without those that only choose the tabs."""
    found = []
    for attributes, body in CELL.findall(text):
        if body.startswith("%load_ext"):
            continue
        named = TAB.match(body)
        tabs = [word.strip() for word in named[1].split(",")] if named else ["all"]
        if tab in tabs or "all" in tabs:
            name = NAME.search(attributes)
            found.append(Cell(name[1] if name else "", TAB.sub("", body)))
    return found


def recorded(course: Path, chapter: str, tab: str) -> dict[str, str] | None:
    """What each cell printed, or nothing if the chapter was not recorded under this tab."""
    path = course / "outputs" / tab / f"{chapter}.json"
    if not path.exists():
        return None
    found = {}
    for name, cell in json.loads(path.read_text(encoding="utf-8"))["cells"].items():
        texts = [
            output.get("text", "")
            for output in cell["outputs"]
            if output["type"] == "execute_result" or output.get("name") == "stdout"
        ]
        found[name] = "\n".join(text.rstrip("\n") for text in texts)
    return found


def reaches(chapter: list[Cell]) -> dict[str, str]:
    """The code of each cell with the code of the earlier cells whose functions or classes it names."""
    defined: dict[str, str] = {}
    found = {}
    for cell in chapter:
        names = set(re.findall(r"\w+", cell.code))
        code = "\n".join([cell.code, *(text for name, text in defined.items() if name in names)])
        found[cell.name] = code
        for groups in DEFINES.findall(cell.code):
            name = groups[0] or groups[1]
            defined[name] = "\n".join(filter(None, [defined.get(name), code]))
    return found
