"""A chapter in Markdown with a tab for each framework, or a notebook, and what its cells were recorded to print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from xdevice.tools.course.failures import imported_by
from xdevice.tools.course.read import Cell, chapter_from

DEFINES = re.compile(r"^(?:def|class) (\w+)|^@d2l\.add_to_class\((?:d2l\.)?(\w+)\)", re.MULTILINE)
FRAMEWORKS = {
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "mxnet": "mxnet",
    "paddle": "paddle",
}
"""The frameworks by the names of the tabs; notebooks alone have PaddlePaddle's."""


def read(path: Path, tab: str) -> list[Cell]:
    """The cells of one tab of a chapter, or all cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return notebook_cells(notebook(path))
    return cells(text, tab)


def cells(text: str, tab: str) -> list[Cell]:
    """The cells of one tab, without those that only choose the tabs."""
    return list(chapter_from(text, Path("chapter.md")).cells_of(FRAMEWORKS[tab]))


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


def notebook(path: Path) -> list[dict[str, Any]]:
    """The cells of code of a notebook that were recorded, in its order."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    except FileNotFoundError:
        raise SystemExit(f"{path} does not exist; give the path of a notebook") from None
    except (ValueError, KeyError, TypeError):
        raise SystemExit(f"{path} is not a notebook of format 4; give the path of one") from None
    if not any(cell["outputs"] for cell in code):
        raise SystemExit(
            f"{path} has no recorded outputs; give a notebook that was saved with them"
        )
    return code


def notebook_cells(code: list[dict[str, Any]]) -> list[Cell]:
    """The cells, each named by its number among the cells of code, from 1."""
    return [
        Cell("".join(cell["source"]), name=f"cell-{number}") for number, cell in enumerate(code, 1)
    ]


def notebook_outputs(code: list[dict[str, Any]]) -> dict[str, str]:
    """What each cell of a notebook printed, its value, or the error that it raised."""
    found = {}
    for number, cell in enumerate(code, 1):
        texts, error = [], ""
        for output in cell["outputs"]:
            kind = output["output_type"]
            if kind == "stream" and output["name"] == "stdout":
                texts.append("".join(output["text"]))
            elif kind == "execute_result":
                texts.append("".join(output["data"].get("text/plain", "")) + "\n")
            elif kind == "error":
                error = f"{output['ename']}: {output['evalue']}"
        found[f"cell-{number}"] = error or "".join(texts)
    return found


def notebook_tab(code: list[dict[str, Any]]) -> str:
    """The tab of the first framework, in the order of `FRAMEWORKS`, that a notebook imports; nothing if none."""
    modules = {name for cell in notebook_cells(code) for name in imported_by(cell.code)}
    return next((tab for tab, name in FRAMEWORKS.items() if name in modules), "")


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
