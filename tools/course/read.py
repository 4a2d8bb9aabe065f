"""Read a chapter: its title, its prose and its cells, and the frameworks (tabs) that each cell is for."""

from __future__ import annotations

import ast
import configparser
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from xdevice.errors import ArgumentError
from xdevice.framework.adapters import registered
from xdevice.framework.installing import framework_named
from xdevice.tools.course.failures import imported_by, parsed
from xdevice.tools.course.formats import (
    Passage,
    Piece,
    Source,
    of_markdown,
    of_notebook,
    without_marks,
)

ALL_TABS: frozenset[str] = frozenset()
"""The tabs of what is for every framework."""

RAISES = "raises-exception"
"""Jupyter's tag of a cell whose error is part of the lesson."""

SKIPPED = "skip-execution"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of code, as it is in the file."""

    code: str
    tabs: frozenset[str] = ALL_TABS  # frameworks; names that are not frameworks stay as they are
    name: str = ""
    heading: str = ""
    row: int = 0  # cells of different tabs that stand for each other have the same
    tags: tuple[str, ...] = ()  # Jupyter's


@dataclass(frozen=True, slots=True)
class Prose:
    """The Markdown between two cells."""

    text: str
    tabs: frozenset[str] = ALL_TABS


@dataclass(frozen=True, slots=True)
class Chapter:
    path: Path
    title: str
    parts: tuple[Prose | Cell, ...]  # in the order of the file
    tabs: tuple[str, ...]  # the frameworks; empty if all cells are for all

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(part for part in self.parts if isinstance(part, Cell))

    def cells_of(self, tab: str, last_row: float = float("inf")) -> tuple[Cell, ...]:
        """The cells of a tab, up to a row."""
        return tuple(
            cell
            for cell in self.cells
            if (not cell.tabs or tab in cell.tabs) and cell.row <= last_row
        )

    def imported(self) -> list[str]:
        """The frameworks that the cells import themselves, the one that they use most first.

        A notebook for JAX may import PyTorch for its data loaders. NumPy comes last.
        """
        modules = {name for cell in self.cells for name in imported_by(cell.code)}
        chosen = {match[1] for cell in self.cells for match in _KERAS_BACKEND.finditer(cell.code)}
        modules |= {framework_named(name) for name in chosen}  # whatever else Keras imports
        names = [name for name in registered() if name in modules]
        uses = _uses(self.cells)
        return sorted(names, key=lambda name: (name == "numpy", -uses[name]))


_KERAS_BACKEND = re.compile(r"""KERAS_BACKEND["']?\]?\s*=\s*["']?(\w+)""")


def _uses(cells: Iterable[Cell]) -> Counter[str]:
    """How often the cells use what they import from each framework and its libraries."""
    trees = [parsed(cell.code) for cell in cells]
    framework_of: dict[str, str] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    module = getattr(node, "module", None) or alias.name
                    bound = alias.asname or alias.name.partition(".")[0]
                    framework_of[bound] = framework_named(module.partition(".")[0])
    names = [node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return Counter(framework_of[name] for name in names if name in framework_of)


# ------------------------------------------------------------------- the file


def read(path: Path) -> Chapter:
    """The chapter in a Markdown file or a Jupyter notebook."""
    if path.is_dir():
        raise ArgumentError(f"{str(path)!r} is a folder; give the path of a chapter in it")
    try:
        text = path.read_text(encoding="utf-8-sig")  # a byte order mark is left out
    except FileNotFoundError as error:
        reason = "does not exist; give the path of a chapter"
        raise ArgumentError(f"{str(path)!r} {reason}") from error
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte {error.start} cannot be read); save it as UTF-8"
        raise ArgumentError(f"{str(path)!r} {reason}") from error
    except OSError as error:
        raise ArgumentError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    chapter = chapter_from(text, path)
    if not chapter.cells:
        raise ArgumentError(f"{str(path)!r} has no cells of Python to run")
    return chapter


def chapter_from(text: str, path: Path) -> Chapter:
    """The chapter with this text. The path says which format it has, and where its course is."""
    if path.suffix.lower() == ".ipynb":
        pieces = of_notebook(text, path)
    else:
        pieces = of_markdown(text)
    return _chapter(path, pieces)


# ------------------------------------------------------------- tabs and rows

_MARK = re.compile(r"\A(?:%%tab|#\s*@tab)[ \t]+([^\n]*)\n?")
_RAISES_MARK = re.compile(
    r"^%%expect_exception\b.*\n?|^[ \t]*#\s*raises-exception[ \t]*(?:\n|\Z)"
    r"|[ \t]+#\s*raises-exception[ \t]*$",
    re.MULTILINE,
)
_CHOOSES_TABS = re.compile(r"^(?:%load_ext d2lbook|tab\.interact_select)", re.MULTILINE)
_CHOICE = re.compile(r"tab\.interact_select\((.*?)\)", re.DOTALL)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"^[ \t]*(```+|~~~+).*?^[ \t]*\1", re.MULTILINE | re.DOTALL)
_LIKE_A_NAME = 0.825  # of difflib: "Paddel" is like "paddle", and "tensors" is not a framework


def _chapter(path: Path, pieces: Sequence[Piece]) -> Chapter:
    """The chapter with the tabs of each cell, and with its rows."""
    names = _Names(path)
    pieces = [_tagged(piece) if isinstance(piece, Source) else piece for piece in pieces]
    code = "\n".join(piece.code for piece in pieces if isinstance(piece, Source))
    chosen = {name for choice in _CHOICE.findall(code) for name in names.listed(choice)}
    sources = [
        piece
        for piece in pieces
        if isinstance(piece, Source) and not _CHOOSES_TABS.search(piece.code)
    ]
    default = ALL_TABS
    if not chosen and any(_MARK.match(source.code) for source in sources):
        default = _default_tab(path, sources, names)
    # where cells have names, those of one tab have a mark, too
    cells = [_cell(source, ALL_TABS if source.name else default, names) for source in sources]
    numbered = iter(
        replace(cell, row=row) for cell, row in zip(cells, _rows(cells, sources), strict=True)
    )
    parts: list[Prose | Cell] = []
    for piece in pieces:
        if isinstance(piece, Passage):
            parts.append(Prose(piece.text, names.of_label(piece.label)))
        elif not _CHOOSES_TABS.search(piece.code):
            parts.append(next(numbered))
    named = {tab for cell in cells for tab in cell.tabs}
    if chosen:
        named &= chosen
    text = "\n".join(piece.text for piece in pieces if isinstance(piece, Passage))
    title = _HEADING.search(_FENCED.sub("", text))
    return Chapter(
        path,
        without_marks(title[1]) if title else path.stem,
        tuple(parts),
        tuple(name for name in registered() if name in named),
    )


class _Names:
    """The names that a chapter gives to tabs, as frameworks."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def listed(self, words: str) -> frozenset[str]:
        """The frameworks in a list, as in ``#@tab pytorch, jax``; `ALL_TABS` if it has ``all``."""
        names = re.findall(r"[\w-]+", words)
        if "all" in names:
            return ALL_TABS
        return frozenset(map(self._framework, names))

    def of_label(self, label: str) -> frozenset[str]:
        """The frameworks that a tab's label names, as in "TensorFlow 2"; none in "Linux" and "pip"."""
        framework = framework_named(label)
        if framework in registered():
            return frozenset({framework})
        words = re.findall(r"[A-Za-z_]+", label)
        named = [word for word in words if self._framework(word) in registered()]
        if len(named) > 1:
            named = [word for word in named if word.lower() != "keras"]  # "Keras (JAX)"
        if not named:
            self._framework(label)  # "Tensor-Flow"
        return frozenset(map(framework_named, named))

    def _framework(self, word: str) -> str:
        """The framework, or the word; a word that is like the name of a framework is an error."""
        name = framework_named(word)
        if name not in registered():
            options = [*registered(), "pytorch", "paddlepaddle"]
            for option in get_close_matches(name, options, 1, _LIKE_A_NAME):
                problem = f"{str(self._path)!r} has a tab {word!r}, which is not a framework"
                raise ArgumentError(f"{problem}; did you mean {option!r}?")
        return name


def _tagged(source: Source) -> Source:
    """The cell with Jupyter's tag in place of another mark that its error is the lesson."""
    code, marks = _RAISES_MARK.subn("", source.code)
    return source._replace(code=code, tags=(*source.tags, RAISES)) if marks else source


def _cell(source: Source, default: frozenset[str], names: _Names) -> Cell:
    code, tabs = source.code, default
    mark = _MARK.match(code)
    if mark:
        code = code[mark.end() :]
        tabs = names.listed(mark[1])
    elif source.label:
        tabs = names.of_label(source.label)
    else:
        frameworks = {framework_named(tag) for tag in source.tags} & set(registered())
        tabs = frozenset(frameworks) or default
    return Cell(code, tabs, source.name, source.heading, 0, source.tags)


def _rows(cells: Sequence[Cell], sources: Sequence[Source]) -> list[int]:
    """The row of each cell: a new one after text for all tabs, or if a tab has one already.

    The first cells of the tabs of a set are one row, and the second ones, and so on.
    """
    rows: list[int] = []
    row_of_name: dict[str, int] = {}
    first = 0  # row of the set of tabs
    newest = -1
    in_set: Counter[frozenset[str]] = Counter()  # cells of each tab of the set so far
    tabs_in_row: set[str] = set()
    for cell, source in zip(cells, sources, strict=True):
        if cell.name and cell.name in row_of_name:
            rows.append(row_of_name[cell.name])
            tabs_in_row |= cell.tabs
            continue
        is_in_set = bool(source.label and cell.tabs)
        is_new = source.follows_text or not cell.tabs or is_in_set != bool(in_set)
        if is_in_set:
            if is_new:
                first = newest + 1
                in_set.clear()
            row = first + in_set[cell.tabs]
            in_set[cell.tabs] += 1
        elif is_new or not tabs_in_row or tabs_in_row & cell.tabs:
            in_set.clear()
            tabs_in_row = set(cell.tabs)
            row = newest + 1
        else:
            tabs_in_row |= cell.tabs
            row = newest
        newest = max(newest, row)
        row_of_name.setdefault(cell.name, row)
        rows.append(row)
    return rows


def _default_tab(path: Path, sources: Sequence[Source], names: _Names) -> frozenset[str]:
    """The tab of cells without a mark, in a chapter whose other cells have one.

    It is the first tab that the course's ``config.ini`` lists, otherwise the
    framework that the first such cell imports.
    """
    for folder in path.resolve().parents:
        config = folder / "config.ini"
        if config.is_file():
            parser = configparser.ConfigParser(strict=False, interpolation=None)
            parser.read(config, encoding="utf-8")
            lists = [parser.get(section, "tabs", fallback="") for section in parser.sections()]
            if any(lists):
                return names.listed(next(filter(None, lists)).partition(",")[0])
    for source in sources:
        if not _MARK.match(source.code):
            frameworks = set(imported_by(source.code)) & set(registered())
            if frameworks:
                return frozenset(frameworks)
    return ALL_TABS
