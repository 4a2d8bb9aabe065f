"""A chapter in Markdown with a tab for each framework, and what each of its cells was recorded to print."""

from __future__ import annotations

import json
import re
from pathlib import Path

from xdevice.course.chapters import Cell, chapter_of
from xdevice.course.markdown import cells_in_markdown

DEFINES = re.compile(r"^(?:def|class) (\w+)|^@d2l\.add_to_class\((?:d2l\.)?(\w+)\)", re.MULTILINE)
FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow", "jax": "jax", "mxnet": "mxnet"}


def cells(text: str, tab: str) -> list[Cell]:
    """The cells of one tab, without those that only choose the tabs."""
    chapter = chapter_of(Path("chapter.md"), cells_in_markdown(text))
    return chapter.cells_of(FRAMEWORKS[tab])


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
