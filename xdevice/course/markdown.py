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

from xdevice.course.chapters import Source

_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)
_D2L = re.compile(r"\{\.python\s+\.input([^}]*)\}")
_MYST = re.compile(r"\{code-cell\}\s*(?:i?python3?\b|$)")
_PLAIN = re.compile(r"(?:\{\.?)?(?:python3?|py|ipython3?)\b", re.IGNORECASE)
_DIRECTIVE = re.compile(r"\{[\w:-]+\}\s*(.*)")
_NAME = re.compile(r"#([\w-]+)")
_TAB_ITEM = re.compile(r"^\s*(?::{3,}|`{3,})\{tab-item\}\s*(.+?)\s*$")
_TAB_LABEL = re.compile(r'^\s*===!?\+?\s+"(.+?)"\s*$')  # of Material for MkDocs
_CLOSES = re.compile(r"^\s*:{3,}\s*$")
_OPTIONS = re.compile(r"\A(?:---\n(.*?)^---\n|((?::[\w-]+:[^\n]*\n)+))", re.MULTILINE | re.DOTALL)
_TAGS = re.compile(r"tags:?\s*(?:\[(.*?)\]|((?:\n\s*- .*)+)|([^\n]*))", re.DOTALL)


class _Fence(NamedTuple):
    kind: str  # "d2l", "myst", "plain", or "" for anything else
    source: Source


class _Text:
    """The text between two fences: the last heading, the tab that it opens, what it says."""

    def __init__(self) -> None:
        self.heading = ""
        self.tab = ""
        self.is_for_all = False
        self._in_tab = False  # between :begin_tab: and :end_tab:

    def read(self, lines: list[str]) -> None:
        for line in lines:
            self._read_line(line)

    def _read_line(self, line: str) -> None:
        label = _TAB_ITEM.match(line) or _TAB_LABEL.match(line)
        if label:
            self.tab = label[1]
        elif _CLOSES.match(line):
            self.tab = ""
        elif line.startswith(":begin_tab:"):
            self._in_tab = True
        elif line.startswith(":end_tab:"):
            self._in_tab = False
        elif line.startswith("#"):
            self.heading = line.lstrip("#").strip()
            self.is_for_all = True
        elif line.strip() and not line.lstrip().startswith(":") and not self._in_tab:
            self.is_for_all = True


def cells_in_markdown(text: str) -> list[Source]:
    """The cells in the order of the file."""
    text = _FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
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
        if token.type == "code_block":  # the content of a tab of Material for MkDocs
            if context.tab:
                yield from _fences(token.content, context)
            context.tab = ""
            continue
        kind = _kind(token)
        if kind:
            yield _Fence(kind, _source(kind, token, context))
            context.is_for_all = False
        elif directive := _DIRECTIVE.match(token.info):
            if token.info.startswith("{tab-item}"):
                context.tab = directive[1].strip()
            yield from _fences(token.content, context)
            if token.info.startswith("{tab-item}"):
                context.tab = ""
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
