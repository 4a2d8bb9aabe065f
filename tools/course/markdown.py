"""The cells of a chapter in Markdown: of d2l, MyST, or plain.

markdown-it-py finds the fences. Which of them are cells depends on the file:
if it has cells of d2l, only those; otherwise those of MyST; otherwise all
fences with Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from xdevice.tools.course.chapters import Source

_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)
_D2L = re.compile(r"\{\.python\s+\.input([^}]*)\}")
_MYST = re.compile(r"\{code-cell\}\s*(?:i?python3?\b|$)")
_PLAIN = re.compile(r"(?:\{\s*\.?)?(?:python3?|py|ipython3?)\b", re.IGNORECASE)
_DIRECTIVE = re.compile(r"\{([\w:-]+)\}\s*(.*)")
_NAME = re.compile(r"#([\w-]+)")
_TAB_DIRECTIVES = ("tab-item", "tab", "group-tab")  # of sphinx-design, -inline-tabs and -tabs
_OPENS = re.compile(r"^\s*:{3,}\s*(?=[{\w])(?:\{([\w:-]+)\})?\s*(.*?)\s*$")
_CLOSES = re.compile(r"^\s*:{3,}\s*$")
# Of Material for MkDocs: the content of a tab, or of an admonition, is indented.
_TAB_LABEL = re.compile(r'^\s*===[!+]*\s+"(.+?)"\s*$')
_ADMONITION = re.compile(r"^\s*(?:!!!|\?\?\?\+?)\s+\w")
_NO_BLANK_LINE = re.compile(  # between its first line and its content
    r'^([ \t]*(?:===[!+]*[ \t]+"|!!![ \t]+\w|\?\?\?\+?[ \t]+\w).*)\n(?=[ \t]+\S)', re.MULTILINE
)
_MARKS = re.compile(r"[\[(]?\*\*[\])]?|`|\s\{[^}]*\}\s*$")  # in headings: [**d2l's**], {#anchor}
_OPTIONS = re.compile(r"\A(?:---\n(.*?)^---\n|((?::[\w-]+:[^\n]*\n)+))", re.MULTILINE | re.DOTALL)
_TAGS = re.compile(r"tags:?\s*(?:\[(.*?)\]|((?:\n\s*- .*)+)|([^\n]*))", re.DOTALL)


class _Fence(NamedTuple):
    kind: str  # "d2l", "myst", "plain", or "" for anything else
    source: Source


class _Text:
    """The text between two fences: the last heading, the tab that it opens, what it says."""

    def __init__(self) -> None:
        self.heading = ""
        self.is_for_all = False
        self.opens_block = False  # an indented block follows, of Material for MkDocs
        self._label = ""  # of the tab that the block is
        self._directives: list[str] = []  # and blocks that are open: the label if one is a tab
        self._in_tab = False  # between :begin_tab: and :end_tab:

    @property
    def tab(self) -> str:
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

    def read(self, lines: list[str]) -> None:
        for line in filter(str.strip, lines):
            self._read_line(line)

    def _read_line(self, line: str) -> None:
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
        elif line.startswith(":begin_tab:"):
            self._in_tab = True
        elif line.startswith(":end_tab:"):
            self._in_tab = False
        elif line.startswith("#"):
            self.heading = _MARKS.sub("", line.lstrip("#")).strip()
            self.is_for_all = True
        elif not line.lstrip().startswith(":") and not self._in_tab and not self.tab:
            self.is_for_all = True


def cells_in_markdown(text: str) -> list[Source]:
    """The cells in the order of the file."""
    text = _FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
    text = _NO_BLANK_LINE.sub(r"\1\n\n", text)
    fences = list(_fences(text, _Text()))
    for kind in ("d2l", "myst"):
        if any(fence.kind == kind for fence in fences):
            return [fence.source for fence in fences if fence.kind == kind]
    return [fence.source for fence in fences if fence.kind == "plain"]


def _fences(text: str, context: _Text) -> Iterator[_Fence]:
    """All fences with Python; those inside directives and tabs, too."""
    lines = text.splitlines()
    position = 0
    for token in MarkdownIt("commonmark").parse(text):
        if token.map is None or token.type not in ("fence", "code_block"):
            continue
        start, end = token.map
        context.read(lines[position:start])
        position = end
        if token.type == "code_block":
            if context.opens_block:
                context.enter_block()
                yield from _fences(token.content, context)
                context.close()
            continue
        kind = _kind(token)
        if kind:
            yield _Fence(kind, _source(kind, token, context))
            context.is_for_all = False
        elif directive := _DIRECTIVE.match(token.info):
            context.open(directive[1], directive[2].strip())
            yield from _fences(token.content, context)
            context.close()
    context.read(lines[position:])


def _kind(token: Token) -> str:
    info = token.info.strip()
    if _D2L.match(info):
        return "d2l"
    if _MYST.match(info):
        return "myst"
    if _PLAIN.match(info):
        return "plain"
    return ""


def _source(kind: str, token: Token, context: _Text) -> Source:
    name = ""
    tags: tuple[str, ...] = ()
    code = token.content
    if kind == "d2l":
        name_match = _NAME.search(token.info)
        if name_match:
            name = name_match[1]
    elif kind == "myst":
        options = _OPTIONS.match(code)
        if options:
            code = code[options.end() :]
            tags = _tags(options[0])
    return Source(code, name, context.tab, context.heading, context.is_for_all, tags)


def _tags(options: str) -> tuple[str, ...]:
    """The tags among the options of a cell of MyST."""
    match = _TAGS.search(options)
    if match is None:
        return ()
    return tuple(re.findall(r"[\w:-]+", " ".join(filter(None, match.groups())).replace("- ", " ")))
