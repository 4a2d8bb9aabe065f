"""A chapter: its cells, the frameworks (tabs) that each cell is for, and the rows of cells."""

from __future__ import annotations

import ast
import configparser
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from xdevice.errors import ArgumentError
from xdevice.framework.adapters import registered
from xdevice.framework.installing import framework_named

_MARK = re.compile(r"\A(?:%%tab|#\s*@tab)[ \t]+([^\n]*)\n?")
_CHOOSES_TABS = re.compile(r"^(?:%load_ext d2lbook|tab\.interact_select)", re.MULTILINE)
_CHOICE = re.compile(r"tab\.interact_select\((.*?)\)", re.DOTALL)
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\w+)|import[ \t]+([\w., \t]+))"
)

_KERAS_BACKEND = re.compile(r"""KERAS_BACKEND["']?\]?\s*=\s*["']?(\w+)""")
_COMMAND = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
"""A line of IPython's own: a magic or a command of the shell."""

EVERY: frozenset[str] = frozenset()
"""The tabs of a cell that runs under every framework."""


class Cell(NamedTuple):
    """A cell of code, as it is in the file."""

    code: str
    tabs: frozenset[str] = EVERY  # frameworks; names that are not frameworks stay as they are
    name: str = ""
    heading: str = ""
    row: int = 0  # cells of different tabs that stand for each other have the same
    tags: tuple[str, ...] = ()  # Jupyter's: raises-exception, skip-execution


class Source(NamedTuple):
    """A cell as a reader of one format finds it."""

    code: str
    name: str = ""
    tab: str = ""  # the label of the tab in which it stands
    heading: str = ""
    follows_text: bool = False  # text that is for all tabs stands between it and the last cell
    tags: tuple[str, ...] = ()


class Chapter(NamedTuple):
    path: Path
    cells: list[Cell]
    tabs: list[str]  # the frameworks; empty if all cells are for all

    def cells_of(self, tab: str) -> list[Cell]:
        return [cell for cell in self.cells if not cell.tabs or tab in cell.tabs]

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


def chapter_of(path: Path, sources: Sequence[Source]) -> Chapter:
    """The chapter with the tabs of each cell, and with its rows."""
    chosen: list[str] = []
    for source in sources:
        if choice := _CHOICE.search(source.code):
            chosen = [framework_named(name) for name in re.findall(r"[\w-]+", choice[1])]
    default = EVERY
    if not chosen and any(_MARK.match(source.code) for source in sources):
        default = _default_tab(path, sources)
    cells: list[Cell] = []
    for source in sources:
        if not _CHOOSES_TABS.search(source.code):
            # where cells have names, those of one tab have a mark, too
            cells.append(_cell(source, EVERY if source.name else default))
    cells = [cell._replace(row=row) for cell, row in zip(cells, _rows(cells, sources), strict=True)]
    named = {tab for cell in cells for tab in cell.tabs}
    if chosen:
        named &= set(chosen)
    return Chapter(path, cells, [*(name for name in registered() if name in named)])


def _cell(source: Source, default: frozenset[str]) -> Cell:
    mark = _MARK.match(source.code)
    code = source.code
    tabs = default
    if mark:
        tabs = _tabs(mark[1].split(","))
        code = code[mark.end() :]
    elif source.tab:
        tabs = _tabs_of_label(source.tab)
    else:
        frameworks = {framework_named(tag) for tag in source.tags} & set(registered())
        tabs = frozenset(frameworks) or default
    return Cell(code, tabs, source.name, source.heading, 0, source.tags)


def _tabs(words: Iterable[str]) -> frozenset[str]:
    names = {word.strip() for word in words}
    if "all" in names:
        return EVERY
    return frozenset(map(framework_named, names))


def _tabs_of_label(label: str) -> frozenset[str]:
    """The frameworks that a tab's label names, as in "TensorFlow 2"; none in "Linux" and "pip"."""
    whole = framework_named(label)
    if whole in registered():
        return frozenset({whole})
    words = re.findall(r"[a-z_]+", label.lower())
    named = [word for word in words if framework_named(word) in registered()]
    if len(named) > 1:
        named = [word for word in named if word != "keras"]  # "Keras (JAX)"
    return frozenset(map(framework_named, named))


def _rows(cells: Sequence[Cell], sources: Sequence[Source]) -> list[int]:
    """The row of each cell: a new one after text for all tabs, or if a tab has one already.

    The first cells of the tabs of a set are one row, and the second ones, and so on.
    """
    sources_of_cells = [source for source in sources if not _CHOOSES_TABS.search(source.code)]
    rows: list[int] = []
    row_of_name: dict[str, int] = {}
    first = 0  # row of the set of tabs
    newest = -1
    in_set: Counter[frozenset[str]] = Counter()  # cells of each tab of the set so far
    tabs_in_row: set[str] = set()
    for cell, source in zip(cells, sources_of_cells, strict=True):
        if cell.name and cell.name in row_of_name:
            rows.append(row_of_name[cell.name])
            tabs_in_row |= cell.tabs
            continue
        is_in_set = bool(source.tab and cell.tabs)
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


def _default_tab(path: Path, sources: Sequence[Source]) -> frozenset[str]:
    """The tab of cells without a mark, in a chapter whose other cells have one.

    It is the first tab that the course's ``config.ini`` lists, otherwise the
    framework that the first such cell imports.
    """
    for folder in path.resolve().parents:
        config = folder / "config.ini"
        if config.is_file():
            parser = configparser.ConfigParser(strict=False, interpolation=None)
            parser.read(config, encoding="utf-8")
            tabs = _option(parser, "tabs")
            if tabs:
                return _tabs(tabs.split(",")[:1])
    for source in sources:
        if not _MARK.match(source.code):
            frameworks = set(imported_by(source.code)) & set(registered())
            if frameworks:
                return frozenset(frameworks)
    return EVERY


def _option(parser: configparser.ConfigParser, option: str) -> str:
    """The value of an option in whichever section has it."""
    for section in parser.sections():
        if parser.has_option(section, option):
            return parser.get(section, option)
    return ""


def imported_by(code: str) -> list[str]:
    """The packages that a cell imports; ``from d2l import torch`` imports both."""
    names: list[str] = []
    for line in code.splitlines():
        statement = _IMPORT.match(line)
        if statement is None:
            continue
        if statement[1]:
            names += [statement[1].partition(".")[0], statement[2]]
        else:
            modules = statement[3].split(",")
            names += [re.split(r"[.\s]", module.strip())[0] for module in modules]
    return [name for name in dict.fromkeys(names) if name]


def tabs_to_run(chapter: Chapter, names: Collection[str]) -> list[str]:
    """The frameworks that ``--tab`` names; a name that the chapter does not have is an error."""
    tabs: list[str] = []
    for name in names:
        framework = framework_named(name)
        if framework not in registered():
            names = ", ".join(chapter.tabs or registered())
            raise ArgumentError(f"{name!r} is not a tab or a framework; there are {names}")
        if chapter.tabs and framework not in chapter.tabs:
            listed = ", ".join(chapter.tabs)
            raise ArgumentError(f"{str(chapter.path)!r} has no tab {name!r}; it has {listed}")
        tabs.append(framework)
    return list(dict.fromkeys(tabs))


def parsed(code: str) -> ast.AST:
    """The cell's syntax; that of an empty one if it is not Python."""
    try:
        return ast.parse(_COMMAND.sub(r"\1pass", code))
    except SyntaxError:
        return ast.Module([], [])
