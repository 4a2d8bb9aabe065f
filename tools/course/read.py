"""Read a chapter: its title, its prose and its cells, and the frameworks (tabs) that each cell is for.

Markdown is that of d2l, of MyST, or plain: if a file has cells of d2l, only
those are cells; otherwise those of MyST; otherwise all fences with Python.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from xdevice.errors import ArgumentError
from xdevice.framework.adapters import registered
from xdevice.framework.installing import framework_named
from xdevice.tools.course.failures import imported_by, parsed

if TYPE_CHECKING:
    from markdown_it.token import Token

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
        pieces = _of_notebook(text, path)
    else:
        pieces = _of_markdown(text)
    return _chapter(path, pieces)


class _Source(NamedTuple):
    """A cell as it is found in one of the formats."""

    code: str
    name: str = ""
    label: str = ""  # of the tab in which it stands
    heading: str = ""
    follows_text: bool = False  # text that is for all tabs stands between it and the last cell
    tags: tuple[str, ...] = ()


class _Passage(NamedTuple):
    """Prose as it is found in one of the formats."""

    text: str
    label: str = ""


_Piece: TypeAlias = _Source | _Passage


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
_HEADING_MARKS = re.compile(r"[\[(]?\*\*[\])]?|`|\s\{[^}]*\}\s*$")  # [**d2l's**], {#anchor}
_LIKE_A_NAME = 0.825  # of difflib: "Paddel" is like "paddle", and "tensors" is not a framework


def _chapter(path: Path, pieces: Sequence[_Piece]) -> Chapter:
    """The chapter with the tabs of each cell, and with its rows."""
    names = _Names(path)
    pieces = [_tagged(piece) if isinstance(piece, _Source) else piece for piece in pieces]
    code = "\n".join(piece.code for piece in pieces if isinstance(piece, _Source))
    chosen = {name for choice in _CHOICE.findall(code) for name in names.listed(choice)}
    sources = [
        piece
        for piece in pieces
        if isinstance(piece, _Source) and not _CHOOSES_TABS.search(piece.code)
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
        if isinstance(piece, _Passage):
            parts.append(Prose(piece.text, names.of_label(piece.label)))
        elif not _CHOOSES_TABS.search(piece.code):
            parts.append(next(numbered))
    named = {tab for cell in cells for tab in cell.tabs}
    if chosen:
        named &= chosen
    text = "\n".join(piece.text for piece in pieces if isinstance(piece, _Passage))
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


def _tagged(source: _Source) -> _Source:
    """The cell with Jupyter's tag in place of another mark that its error is the lesson."""
    code, marks = _RAISES_MARK.subn("", source.code)
    return source._replace(code=code, tags=(*source.tags, RAISES)) if marks else source


def _cell(source: _Source, default: frozenset[str], names: _Names) -> Cell:
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


def _rows(cells: Sequence[Cell], sources: Sequence[_Source]) -> list[int]:
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


def _default_tab(path: Path, sources: Sequence[_Source], names: _Names) -> frozenset[str]:
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


def without_marks(heading: str) -> str:
    """A heading without the marks of d2l and of anchors."""
    return _HEADING_MARKS.sub("", heading).strip()


# ------------------------------------------------------------------- Markdown

_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)
_D2L = re.compile(r"\{\.python\s+\.input([^}]*)\}")
_MYST = re.compile(r"\{code-cell\}\s*(?:i?python3?\b|$)")
_PLAIN = re.compile(r"(?:\{\s*\.?)?(?:python3?|py|ipython3?)\b", re.IGNORECASE)
_DIRECTIVE = re.compile(r"\{([\w:-]+)\}\s*(.*)")
_NAME = re.compile(r"#([\w-]+)")
_TAB_DIRECTIVES = ("tab-item", "tab", "group-tab")  # of sphinx-design, -inline-tabs and -tabs
_OPENS = re.compile(r"^\s*:{3,}\s*(?=[{\w])(?:\{([\w:-]+)\})?\s*(.*?)\s*$")
_CLOSES = re.compile(r"^\s*:{3,}\s*$")
_BEGINS_TAB = re.compile(r"^:begin_tab:`?([^`]*)")  # of d2l: prose for some tabs
# Of Material for MkDocs: the content of a tab, or of an admonition, is indented.
_TAB_LABEL = re.compile(r'^\s*===[!+]*\s+"(.+?)"\s*$')
_ADMONITION = re.compile(r"^\s*(?:!!!|\?\?\?\+?)\s+\w")
_NO_BLANK_LINE = re.compile(  # between its first line and its content
    r'^([ \t]*(?:===[!+]*[ \t]+"|!!![ \t]+\w|\?\?\?\+?[ \t]+\w).*)\n(?=[ \t]+\S)', re.MULTILINE
)
_OPTIONS = re.compile(r"\A(?:---\n(.*?)^---\n|((?::[\w-]+:[^\n]*\n)+))", re.MULTILINE | re.DOTALL)
_TAGS = re.compile(r"tags:?\s*(?:\[(.*?)\]|((?:\n\s*- .*)+)|([^\n]*))", re.DOTALL)


def _of_markdown(text: str) -> list[_Piece]:
    """The prose and the cells in the order of the file."""
    front = _FRONT_MATTER.match(text)
    text = _NO_BLANK_LINE.sub(r"\1\n\n", text[front.end() :] if front else text)
    pieces = list(_pieces(text, _Context()))
    kinds = {piece.kind for piece in pieces if isinstance(piece, _Fence)}
    kind = next((kind for kind in ("d2l", "myst") if kind in kinds), "plain")
    ordered: list[_Piece] = []
    title = re.search(r"^title:[^\n]*", front[0], re.MULTILINE) if front else None
    if title:
        ordered.append(_Passage("# " + title[0].partition(":")[2].strip(" \"'")))
    for piece in pieces:
        if isinstance(piece, _Passage):
            ordered.append(piece)
        else:
            ordered.append(piece.source if piece.kind == kind else piece.passage)
    return ordered


class _Fence(NamedTuple):
    """A fence with Python, which is a cell if the file's cells are of its kind."""

    kind: str  # "d2l", "myst" or "plain"
    source: _Source
    passage: _Passage


class _Context:
    """What the text so far says of the next fence: the heading, the tab, and the prose before it."""

    def __init__(self) -> None:
        self.heading = ""
        self.is_for_all = False
        self.opens_block = False  # an indented block follows, of Material for MkDocs
        self._label = ""  # of the tab that the block is
        self._directives: list[str] = []  # and blocks that are open: the label if one is a tab
        self._d2l_label = ""  # between :begin_tab: and :end_tab:
        self._lines: list[tuple[str, str]] = []  # of prose, each after its label

    @property
    def label(self) -> str:
        """The label of the tab in which the text stands."""
        return next(filter(None, reversed(self._directives)), "")

    def open(self, directive: str, argument: str) -> None:
        self._directives.append(argument if directive in _TAB_DIRECTIVES else "")

    def close(self) -> None:
        if self._directives:
            self._directives.pop()

    def enter_block(self) -> None:
        self._directives.append(self._label)
        self._forget_block()

    def _forget_block(self) -> None:
        self.opens_block = False
        self._label = ""

    def add(self, line: str) -> None:
        """Add a line as prose, whatever it says."""
        self._lines.append((self._d2l_label or self.label, line))

    def passages(self) -> Iterator[_Passage]:
        """The prose since the last fence."""
        for label, lines in groupby(self._lines, key=lambda pair: pair[0]):
            text = "\n".join(line for _, line in lines).strip("\n")
            if text.strip():
                yield _Passage(text, label)
        self._lines = []

    def read(self, line: str) -> None:
        if not line.strip():
            self.add(line)
            return
        label = _TAB_LABEL.match(line)
        if label or _ADMONITION.match(line):
            self.opens_block = True
            self._label = label[1] if label else ""
            return
        if not line[0].isspace():
            self._forget_block()
        if directive := _OPENS.match(line):
            self.open(directive[1] or "", directive[2])
        elif _CLOSES.match(line):
            self.close()
        elif begins := _BEGINS_TAB.match(line):
            self._d2l_label = begins[1] or "toc"
        elif line.startswith(":end_tab:"):
            self._d2l_label = ""
        elif line.startswith("#"):
            self.heading = without_marks(line.lstrip("#"))
            self.is_for_all = True
            self.add(line)
        elif not line.lstrip().startswith(":"):
            self.is_for_all = self.is_for_all or not (self._d2l_label or self.label)
            self.add(line)


def _pieces(text: str, context: _Context) -> Iterator[_Passage | _Fence]:
    """The prose, and all fences with Python; those inside directives and tabs, too."""
    from markdown_it import MarkdownIt

    lines = text.splitlines()
    position = 0
    for token in MarkdownIt("commonmark").parse(text):
        if token.map is None or token.type not in ("fence", "code_block"):
            continue
        start, end = token.map
        for line in lines[position:start]:
            context.read(line)
        position = end
        if token.type == "code_block" and context.opens_block:
            context.enter_block()
            yield from _pieces(token.content, context)
            context.close()
        elif token.type == "fence" and (kind := _kind(token)):
            yield from context.passages()
            raw = "\n".join(lines[start:end])
            yield _Fence(kind, _source(kind, token, context), _Passage(raw, context.label))
            context.is_for_all = False
        elif token.type == "fence" and (directive := _DIRECTIVE.match(token.info)):
            context.open(directive[1], directive[2].strip())
            yield from _pieces(token.content, context)
            context.close()
        else:
            for line in lines[start:end]:
                context.add(line)
    for line in lines[position:]:
        context.read(line)
    yield from context.passages()


def _kind(token: Token) -> str:
    info = token.info.strip()
    for kind, pattern in (("d2l", _D2L), ("myst", _MYST), ("plain", _PLAIN)):
        if pattern.match(info):
            return kind
    return ""


def _source(kind: str, token: Token, context: _Context) -> _Source:
    name = ""
    tags: tuple[str, ...] = ()
    code = token.content
    if kind == "d2l" and (match := _NAME.search(token.info)):
        name = match[1]
    elif kind == "myst" and (options := _OPTIONS.match(code)):
        code = code[options.end() :]
        if match := _TAGS.search(options[0]):
            listed = " ".join(filter(None, match.groups())).replace("- ", " ")
            tags = tuple(re.findall(r"[\w:-]+", listed))
    return _Source(code, name, context.label, context.heading, context.is_for_all, tags)


# ------------------------------------------------------------------ notebooks

# Kernels whose notebooks name no language, until they are saved with the kernel running.
_LANGUAGES = (
    (re.compile(r"ir\d*$"), "R"),
    (re.compile(r"julia"), "Julia"),
    (re.compile(r"bash$"), "Bash"),
    (re.compile(r"xcpp"), "C++"),
    (re.compile(r"\.net-csharp$"), "C#"),
)
_PYTHON = re.compile(r"(?:i?python)[\d.]*$", re.IGNORECASE)


def _of_notebook(text: str, path: Path) -> list[_Piece]:
    """The prose and the cells in the order of the notebook, each cell under its last heading."""
    notebook = _notebook(text, path)
    language = _language(notebook.get("metadata") or {})
    if not _PYTHON.match(language):
        raise ArgumentError(f"{str(path)!r} is written in {language}, and only Python can be run")
    pieces: list[_Piece] = []
    heading = ""
    follows_text = False
    for cell in notebook["cells"]:
        source = "".join(cell.get("source") or "")
        if cell.get("cell_type") == "markdown":
            headings = [line for line in source.splitlines() if line.startswith("#")]
            if headings:
                heading = headings[-1].lstrip("#").strip()
            follows_text = True
            pieces.append(_Passage(source))
        elif cell.get("cell_type") == "code" and source.strip():
            tags = tuple((cell.get("metadata") or {}).get("tags") or ())
            pieces.append(_Source(source, "", "", heading, follows_text, tags))
            follows_text = False
    return pieces


def _notebook(text: str, path: Path) -> dict[str, Any]:
    try:
        notebook = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{str(path)!r} is not a Jupyter notebook: it is not JSON") from error
    if isinstance(notebook, dict) and "worksheets" in notebook:
        problem = f"{str(path)!r} is a Jupyter notebook of the format 3"
        raise ArgumentError(f"{problem}; jupyter nbconvert --to notebook --inplace updates it")
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        reason = "it has no list of cells"
        raise ArgumentError(f"{str(path)!r} is not a Jupyter notebook: {reason}")
    return dict(notebook)


def _language(metadata: dict[str, Any]) -> str:
    """The language of the cells; kernels say it in two places, and some in one."""
    kernel = metadata.get("kernelspec") or {}
    language = metadata.get("language_info") or {}
    name = kernel.get("language") or language.get("name")
    if name:
        return str(name)
    kernel_name = str(kernel.get("name") or "")
    return next(
        (language for pattern, language in _LANGUAGES if pattern.match(kernel_name)), "python"
    )
