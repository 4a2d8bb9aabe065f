"""The prose and the code of a file, in its order: Markdown and Jupyter notebooks, before tabs are known.

Markdown is that of d2l, of MyST, or plain: if a file has cells of d2l, only
those are cells; otherwise those of MyST; otherwise all fences with Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from xdevice.errors import ArgumentError

if TYPE_CHECKING:
    from markdown_it.token import Token


class Source(NamedTuple):
    """A cell as it is found in one of the formats."""

    code: str
    name: str = ""
    label: str = ""  # of the tab in which it stands
    heading: str = ""
    follows_text: bool = False  # text that is for all tabs stands between it and the last cell
    tags: tuple[str, ...] = ()


class Passage(NamedTuple):
    """Prose as it is found in one of the formats."""

    text: str
    label: str = ""


Piece: TypeAlias = Source | Passage


_HEADING_MARKS = re.compile(r"[\[(]?\*\*[\])]?|`|\s\{[^}]*\}\s*$")  # [**d2l's**], {#anchor}


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
_ADMONITIONS = re.compile(  # of docutils
    "attention|caution|danger|error|hint|important|note|seealso|tip|warning"
)
_BOXES = re.compile("admonition|dropdown|card|sidebar|topic")  # with a title of their own
_STATEMENTS = re.compile(  # of sphinx-exercise and sphinx-proof
    "exercise|solution|theorem|lemma|definition|proof|example|remark|algorithm|corollary"
)
_PICTURES = ("figure", "image")
_CODE = ("code", "code-block", "sourcecode")
_LISTS_OF_PAGES = ("contents", "toctree", "tableofcontents", "bibliography", "index")
_COLON_PICTURE = re.compile(
    r"^([ \t]*):{3,}([ \t]*\{(?:figure|image)\}.*?^)\1:{3,}[ \t]*$", re.MULTILINE | re.DOTALL
)
_TAB_DIRECTIVES = ("tab-item", "tab", "group-tab")  # of sphinx-design, -inline-tabs and -tabs
_OPENS = re.compile(r"^\s*:{3,}\s*(?=[{\w])(?:\{([\w:-]+)\})?\s*(.*?)\s*$")
_CLOSES = re.compile(r"^\s*:{3,}\s*$")
_BEGINS_TAB = re.compile(r"^:begin_tab:`?([^`]*)")  # of d2l: prose for some tabs
# Of Material for MkDocs: the content of a tab, or of an admonition, is indented.
_ABOUT_A_BLOCK = re.compile(r"^:(?:label|eqlabel|width):`[^`]+`\s*$")  # of d2l, below the block
_CAPTION = re.compile(r"^:(?![\w-]+:)(\w[^`]*)$")  # of d2l, below a table
_OPTION = re.compile(r"^\s*:[\w-]+:(?!`)")  # of a directive; :numref:`x` is prose
_TAB_LABEL = re.compile(r'^\s*===[!+]*\s+"(.+?)"\s*$')
_ADMONITION = re.compile(r'^\s*(?:!!!|\?\?\?\+?)\s+(\w[^"]*?)\s*(?:"(.*)")?\s*$')
_NO_BLANK_LINE = re.compile(  # between its first line and its content
    r'^([ \t]*(?:===[!+]*[ \t]+"|!!![ \t]+\w|\?\?\?\+?[ \t]+\w).*)\n(?=[ \t]+\S)', re.MULTILINE
)
_OPTIONS = re.compile(r"\A(?:---\n(.*?)^---\n|((?::[\w-]+:[^\n]*\n)+))", re.MULTILINE | re.DOTALL)
_ONE_OPTION = re.compile(r"^:?([\w-]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_TAGS = re.compile(r"tags:?\s*(?:\[(.*?)\]|((?:\n\s*- .*)+)|([^\n]*))", re.DOTALL)


def of_markdown(text: str) -> list[Piece]:
    """The prose and the cells in the order of the file."""
    front = _FRONT_MATTER.match(text)
    text = _NO_BLANK_LINE.sub(r"\1\n\n", text[front.end() :] if front else text)
    text = _COLON_PICTURE.sub(r"\1```\2\1```", text)
    pieces = list(_pieces(text, _Context()))
    kinds = {piece.kind for piece in pieces if isinstance(piece, _Fence)}
    kind = next((kind for kind in ("d2l", "myst") if kind in kinds), "plain")
    ordered: list[Piece] = []
    title = re.search(r"^title:[^\n]*", front[0], re.MULTILINE) if front else None
    if title:
        ordered.append(Passage("# " + title[0].partition(":")[2].strip(" \"'")))
    for piece in pieces:
        if isinstance(piece, Passage):
            ordered.append(piece)
        else:
            ordered.append(piece.source if piece.kind == kind else piece.passage)
    return ordered


class _Fence(NamedTuple):
    """A fence with Python, which is a cell if the file's cells are of its kind."""

    kind: str  # "d2l", "myst" or "plain"
    source: Source
    passage: Passage


class _Context:
    """What the text so far says of the next fence: the heading, the tab, and the prose before it."""

    def __init__(self) -> None:
        self.heading = ""
        self.is_for_all = False
        self.opens_block = False  # an indented block follows, of Material for MkDocs
        self._label = ""  # of the tab that the block is
        self._title = ""  # of the admonition that it is
        self._directives: list[str] = []  # and blocks that are open: the label if one is a tab
        self._boxes: list[bool] = []  # whether each of them is an admonition
        self._d2l_label = ""  # between :begin_tab: and :end_tab:
        self._lines: list[tuple[str, str]] = []  # of prose, each after its label

    @property
    def label(self) -> str:
        """The label of the tab in which the text stands."""
        return next(filter(None, reversed(self._directives)), "")

    def open(self, directive: str, argument: str) -> None:
        self._directives.append(argument if directive in _TAB_DIRECTIVES else "")
        title, text = "", ""
        if _BOXES.fullmatch(directive):
            title = argument
        elif _ADMONITIONS.fullmatch(directive):
            title, text = directive.capitalize(), argument
        elif _STATEMENTS.fullmatch(directive):
            is_label = directive == "solution"
            title = " ".join(filter(None, [directive.capitalize(), argument * (not is_label)]))
        self._boxes.append(bool(title))
        self._add_title(title)
        if text:
            self.add(text)

    def close(self) -> None:
        if self._directives:
            self._directives.pop()
            self._boxes.pop()
            self.add("")

    def enter_block(self) -> None:
        self._directives.append(self._label)
        self._boxes.append(not self._label)
        self._add_title(self._title)
        self._forget_block()

    def _forget_block(self) -> None:
        self.opens_block = False
        self._label = self._title = ""

    def add(self, *lines: str) -> None:
        """Add lines as prose, whatever they say; those of an admonition are a quotation."""
        for line in lines:
            quoted = f"{'> ' * sum(self._boxes)}{line}"
            self._lines.append((self._d2l_label or self.label, quoted))

    def add_picture(self, path: str, content: str) -> None:
        """Add a figure of MyST as d2l writes it: its caption stands for its description."""
        options = dict(_ONE_OPTION.findall(_first(_OPTIONS, content)))
        caption = " ".join(_OPTIONS.sub("", content, count=1).split())
        self.add("", f"![{caption or options.get('alt', '')}]({path})", "")
        if caption or "name" in options:
            self.add(f":label:`{options.get('name', path)}`")
        if "width" in options:
            self.add(f":width:`{options['width']}`")
        self.add("")

    def _add_title(self, title: str) -> None:
        """Add the title of an admonition, which is prose here."""
        if title:
            self.add("", f"**{title}**", "")

    def passages(self) -> Iterator[Passage]:
        """The prose since the last fence."""
        for label, lines in groupby(self._lines, key=lambda pair: pair[0]):
            text = "\n".join(line for _, line in lines).strip("\n")
            if text.strip():
                yield Passage(text, label)
        self._lines = []

    def read(self, line: str) -> None:
        if not line.strip():
            self.add(line)
            return
        label = _TAB_LABEL.match(line)
        admonition = _ADMONITION.match(line)
        if admonition:
            title = admonition[2]
            self._title = admonition[1].capitalize() if title is None else title
        if label or admonition:
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
        elif _ABOUT_A_BLOCK.match(line):
            self.add("", line, "")
        elif caption := _CAPTION.match(line):
            self.add("", f":caption:`{caption[1]}`", "")
        elif not _OPTION.match(line):
            self.is_for_all = self.is_for_all or not (self._d2l_label or self.label)
            self.add(line)


def _pieces(text: str, context: _Context) -> Iterator[Passage | _Fence]:
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
            yield _Fence(kind, _source(kind, token, context), Passage(raw, context.label))
            context.is_for_all = False
        elif token.type == "fence" and (directive := _DIRECTIVE.match(token.info)):
            yield from _of_directive(directive[1], directive[2].strip(), token, context)
        else:
            context.add(*lines[start:end])
    for line in lines[position:]:
        context.read(line)
    yield from context.passages()


def _of_directive(
    name: str, argument: str, token: Token, context: _Context
) -> Iterator[Passage | _Fence]:
    """The pieces in a directive of MyST; what it shows itself is added as prose."""
    body = _OPTIONS.sub("", token.content, count=1)
    if name == "math":
        label = dict(_ONE_OPTION.findall(_first(_OPTIONS, token.content))).get("label", "")
        context.add("", "$$", *body.splitlines(), f"$$ ({label})" if label else "$$", "")
    elif name in _PICTURES:
        context.add_picture(argument, token.content)
    elif name in _CODE:
        context.add(f"{token.markup}{argument}", *body.splitlines(), token.markup)
    elif name == "list-table":
        context.add("", *_table(body), "", *([f":caption:`{argument}`", ""] if argument else ()))
    elif name not in _LISTS_OF_PAGES:
        context.open(name, argument)
        yield from _pieces(body, context)
        context.close()


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.match(text)
    return match[0] if match else ""


def _table(text: str) -> Iterator[str]:
    """The table that a list of lists is."""
    for number, row in enumerate(re.split(r"^\* -", text, flags=re.MULTILINE)[1:]):
        cells = [" ".join(cell.split()) for cell in re.split(r"^  -", row, flags=re.MULTILINE)]
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield "|---" * len(cells) + "|"


def _kind(token: Token) -> str:
    info = token.info.strip()
    for kind, pattern in (("d2l", _D2L), ("myst", _MYST), ("plain", _PLAIN)):
        if pattern.match(info):
            return kind
    return ""


def _source(kind: str, token: Token, context: _Context) -> Source:
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
    return Source(code, name, context.label, context.heading, context.is_for_all, tags)


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


def of_notebook(text: str, path: Path) -> list[Piece]:
    """The prose and the cells in the order of the notebook, each cell under its last heading."""
    notebook = _notebook(text, path)
    language = _language(notebook.get("metadata") or {})
    if not _PYTHON.match(language):
        raise ArgumentError(f"{str(path)!r} is written in {language}, and only Python can be run")
    pieces: list[Piece] = []
    heading = ""
    follows_text = False
    for cell in notebook["cells"]:
        source = "".join(cell.get("source") or "")
        if cell.get("cell_type") == "markdown":
            headings = [line for line in source.splitlines() if line.startswith("#")]
            if headings:
                heading = headings[-1].lstrip("#").strip()
            follows_text = True
            pieces.append(Passage(_with_attachments(source, cell.get("attachments") or {})))
        elif cell.get("cell_type") == "code" and source.strip():
            tags = tuple((cell.get("metadata") or {}).get("tags") or ())
            pieces.append(Source(source, "", "", heading, follows_text, tags))
            follows_text = False
    return pieces


def _with_attachments(source: str, attachments: dict[str, dict[str, str]]) -> str:
    """The Markdown of a cell with the pictures that were pasted into it."""
    for name, bundle in attachments.items():
        for mime_type, data in bundle.items():
            url = f"data:{mime_type};base64,{''.join(data.split())}"
            source = source.replace(f"(attachment:{name})", f"({url})")
    return source


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
