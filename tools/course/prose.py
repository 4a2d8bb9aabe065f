"""Prose and code as HTML: markdown-it, Pygments, and formulas as MathML, which browsers show without a network."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin
from mdit_py_plugins.tasklists import tasklists_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from xdevice.tools.course.formats import without_marks

InlineState: TypeAlias = Any

_PYTHON = "ipython3"  # with commands of the shell, and magics
_SLIDE_MARKS = re.compile(r"[\[(](\*\*.+?\*\*)[\])]", re.DOTALL)  # of d2l: [**bold**]
_ONLY_ON_SLIDES = re.compile(r"\(~~.+?~~\)", re.DOTALL)
_ANCHOR = re.compile(r"\s\{[^}]*\}\s*$")
_BREAK = "\ue000"  # stands for a cell between two passages


def prose_as_html(texts: Sequence[str], folder: Path) -> list[str]:
    """The passages of one document in Markdown as HTML; ``folder`` is that of its pictures."""
    # hair spaces: between Chinese characters, ** before a ` would not be a mark
    marked = [_ONLY_ON_SLIDES.sub("", _SLIDE_MARKS.sub("\u200a\\1\u200a", text)) for text in texts]
    markdown = _markdown(folder)
    env: dict[str, Any] = {"folder": folder}
    passages = _split(markdown.parse(f"\n\n{_BREAK}\n\n".join(marked), env))
    if len(passages) != len(texts):  # one has a fence, or a comment, without an end
        return [str(markdown.render(text, env)) for text in marked]
    return [str(markdown.renderer.render(each, markdown.options, env)) for each in passages]


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each passage."""
    passages: list[list[Token]] = [[]]
    for token in tokens:
        if token.type == "inline" and token.content == _BREAK:
            passages[-1].pop()  # the beginning of the break's paragraph
            passages.append([])
        else:
            passages[-1].append(token)
    return [passages[0], *(passage[1:] for passage in passages[1:])]


def code_as_html(code: str, language: str = _PYTHON) -> str:
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        lexer = TextLexer()
    html = highlight(code.rstrip(), lexer, HtmlFormatter(nowrap=True))
    return f'<pre class="code">{html.rstrip()}</pre>'


def styles_of_code() -> str:
    """The rules for the colours of code, on a light and on a dark page."""
    light, dark = (
        HtmlFormatter(style=style).get_style_defs(".code") for style in ("default", "github-dark")
    )
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"


def data_url(mime_type: str, data: bytes) -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def _markdown(folder: Path) -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"highlight": _fence}).enable(["table", "strikethrough"])
    dollarmath_plugin(markdown, allow_digits=False)
    for plugin in (
        amsmath_plugin,
        deflist_plugin,
        footnote_plugin,
        myst_block_plugin,
        tasklists_plugin,
    ):
        plugin(markdown)
    markdown.inline.ruler.before("backticks", "role", _role)
    markdown.core.ruler.before("inline", "first_formulas", _guard_first_formulas)
    markdown.core.ruler.push("anchors", _without_anchors)
    markdown.core.ruler.push("labels", _number)
    rules: dict[str, Callable[..., str]] = {
        "role": _render_role,
        "table_open": _render_table,
        "math_inline": _render_formula,
        "image": lambda renderer, tokens, index, options, env: _picture(
            tokens[index], renderer.renderInline(tokens[index].children or (), options, env), folder
        ),
    }
    rules |= dict.fromkeys(["math_block", "math_block_label", "amsmath"], _render_equation)
    rules |= dict.fromkeys(
        ["html_inline", "html_block"],
        lambda _, tokens, index, *_rest: _safe(tokens[index].content, folder),
    )
    rules |= dict.fromkeys(["myst_target", "myst_line_comment", "myst_block_break"], lambda *_: "")
    for name, rule in rules.items():
        markdown.add_render_rule(name, rule)
    return markdown


def _fence(code: str, language: str, _attributes: str) -> str:
    name = language.strip("{}. ") or "text"
    return code_as_html(code, _PYTHON if name == "python" else name)


def _without_anchors(state: Any) -> None:
    """Leave out the anchors of headings: ``# Devices {#devices}``."""
    for opening, inline in zip(state.tokens, state.tokens[1:], strict=False):
        if opening.type == "heading_open" and inline.children:
            last = inline.children[-1]
            last.content = _ANCHOR.sub("", last.content)


# -------------------------------------------------------------------- formulas

_SIZE = re.compile(r"(\\[bB]igg?)[lrm](?![A-Za-z])")  # \bigl is a \big
_LATEX_LABEL = re.compile(r"\\label\{([^}]*)\}")
# The page numbers the equations that have labels.
_NUMBERING = re.compile(r"\\(?:begin|end)\{equation\*?\}|\\(?:nonumber|notag)\b")
_NUMBERED = re.compile(r"\{(align|gather|multline|flalign|eqnarray|alignat)(?:ed)?\}")
_NOT_CONVERTED = re.compile(r"\\|<mi>&</mi>")
_NOTHING = "\u2060"  # has no width
_MARKS = re.compile(r"[.,:;?!)\]]+")


def _formula(latex: str, display: str = "inline") -> str:
    """The formula as MathML; as its source, if it has what the converter does not know."""
    source = _LATEX_LABEL.sub("", _SIZE.sub(r"\1", latex))
    source = _NUMBERED.sub(r"{\1*}", _NUMBERING.sub("", source))
    try:
        mathml = convert(source.strip(), display=display)
    except Exception:
        mathml = "\\"
    if _NOT_CONVERTED.search(mathml):
        return f"<code>{escape(latex.strip())}</code>"
    return mathml


def _guard_first_formulas(state: Any) -> None:
    """Let a formula begin a paragraph that ends with a digit, which dollarmath takes for a price."""
    for token in state.tokens:
        if token.type == "inline" and token.content.startswith("$"):
            token.content = _NOTHING + token.content


def _render_formula(_: object, tokens: Sequence[Token], index: int, *_rest: object) -> str:
    """The formula, in one line with the full stop after it."""
    formula = _formula(tokens[index].content)
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if following and following.type == "text" and (marks := _MARKS.match(following.content)):
        following.content = following.content[marks.end() :]
        return f'<span class="together">{formula}{escape(marks[0])}</span>'
    return formula


def _render_equation(renderer: Any, tokens: Sequence[Token], index: int, *_rest: object) -> str:
    number = tokens[index].meta.get("number")
    words = f"<span>({number})</span>" if number else ""
    attributes = renderer.renderAttrs(tokens[index])
    formula = _formula(tokens[index].content, "block")
    return f'<div class="equation"{attributes}>{formula}{words}</div>\n'


# ------------------------------------------------------- labels and references

# A role of MyST or of d2l: {ref}`text <target>`, :numref:`target`.
_ROLE = re.compile(r"(?:\{([\w:-]+)\}|:([\w-]+):)`([^`]+)`")
_TARGET = re.compile(r"(.*?)\s*<([^<>]*)>", re.DOTALL)
_OF_A_BLOCK = ("label", "eqlabel", "caption", "width")
"""The roles of d2l that stand in a line of their own, after the block that they are about."""
_TAGS = ("sub", "sup", "kbd")
_FILES_OF_A_COURSE = ("config.ini", "_config.yml", "_toc.yml", "myst.yml", "conf.py", "mkdocs.yml")
_SECTION = re.compile(  # of MyST, then of d2l
    r"^\((?P<before>[\w:.-]+)\)=\n+#+ (?P<title>.+)|^#+ (?P<name>.+)\n:label:`(?P<after>[^`]+)`",
    re.MULTILINE,
)


def _role(state: InlineState, silent: bool) -> bool:
    match = _ROLE.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        token = state.push("role", "", 0)
        token.info, token.content = match[1] or match[2], match[3]
    state.pos = match.end()
    return True


class _Labels:
    """What the labels of a document name, and the words that refer to it."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: list[str] = []  # labels of MyST, which stand before their block
        self._block: Token | None = None
        self._element: Token | None = None
        self._kind = ""

    def begin(self, block: Token, kind: str, element: Token, labels: Iterable[str] = ()) -> None:
        """Take the labels that stand before the block and in it; ``element`` is its HTML's."""
        self._block, self._kind, self._element = block, kind, element
        for name in [*self._waiting, *labels]:
            self._add(name)
        self._waiting = []

    def wait(self, name: str) -> None:
        self._waiting.append(name)

    def note(self, role: str, content: str) -> None:
        """Note a role that is about the newest block."""
        if "label" in role:
            self._add(content)
        elif self._block is not None:
            self._block.meta[role] = content

    def _add(self, name: str) -> None:
        if self._block is None or self._element is None:
            return
        self._element.attrSet("id", name)
        if self._kind == "Section":
            self.words[name] = without_marks(self._block.content)
            return
        if "number" not in self._block.meta:
            self._counts[self._kind] += 1
            self._block.meta["number"] = self._counts[self._kind]
        number = self._block.meta["number"]
        self.words[name] = f"{self._kind} {number}" if self._kind else f"({number})"


def _number(state: Any) -> None:
    """Number the figures, tables and equations that have labels."""
    labels = _Labels()
    kept: list[Token] = []
    tokens = iter(state.tokens)
    for token in tokens:
        children = token.children or []
        if children and all(_is_about_a_block(child) for child in children):
            kept.pop()  # the beginning of the paragraph
            next(tokens)  # and its end
            for child in children:
                if child.type == "role":
                    labels.note(child.info, child.content)
            continue
        opening = kept[-1] if kept else token
        kept.append(token)
        if token.type == "myst_target":
            labels.wait(token.content)
        elif opening.type == "heading_open":
            labels.begin(token, "Section", opening)
        elif opening.type == "paragraph_open" and [child.type for child in children] == ["image"]:
            labels.begin(children[0], "Fig.", opening)
            closing = next(tokens)
            opening.tag = closing.tag = "figure"
            kept.append(closing)
        elif token.type == "table_open":
            labels.begin(token, "Table", token)
        elif token.type.startswith("math_block") or token.type == "amsmath":
            own = [token.info] if token.type == "math_block_label" else []
            labels.begin(token, "", token, [*own, *_LATEX_LABEL.findall(token.content)])
    state.tokens[:] = kept
    state.env["words"] = labels.words
    for token in kept:
        token.children = token.children and _with_words(token.children, labels.words)


def _with_words(children: Sequence[Token], words: dict[str, str]) -> list[Token]:
    """The tokens with the words of links that have none: ``[](#name)``."""
    kept: list[Token] = []
    for child in children:
        if child.type == "link_close" and kept[-1].type == "link_open":
            name = unquote(str(kept[-1].attrs["href"])).removeprefix("#")
            kept.append(Token("text", "", 0, content=words.get(name, name)))
        kept.append(child)
    return kept


def _is_about_a_block(token: Token) -> bool:
    return token.type == "softbreak" or (token.type == "role" and token.info in _OF_A_BLOCK)


def _render_role(
    _: object, tokens: Sequence[Token], index: int, _options: object, env: dict[str, Any]
) -> str:
    """What a role refers to, or its own words: there are no other pages here."""
    role, content = tokens[index].info, tokens[index].content
    if role == "math":
        return _formula(content)
    if role in _TAGS:
        return f"<{role}>{escape(content)}</{role}>"
    own = _TARGET.fullmatch(content)
    name = (own[2] if own else content).strip()
    target = env["words"].get(name)
    if target is None and role in ("numref", "ref"):
        if "sections" not in env:
            env["sections"] = _sections_of_the_course(env["folder"])
        target = env["sections"].get(name)
    if own and target:
        return escape(own[1].replace("%s", target.split(" ")[-1]))
    if own:
        return f"<em>{escape(own[1])}</em>"
    return escape(target) if target else f"<em>{escape(content)}</em>"


def _sections_of_the_course(folder: Path) -> dict[str, str]:
    """The titles of all sections of the chapter's course, by label."""
    for course in [folder, *folder.resolve().parents][:3]:
        if any((course / name).is_file() for name in _FILES_OF_A_COURSE):
            paths = [*course.glob("*.md"), *course.glob("*/*.md")]
            texts = (path.read_text(encoding="utf-8", errors="replace") for path in paths)
            found = [match for text in texts for match in _SECTION.finditer(text)]
            return {
                match["before"] or match["after"]: without_marks(match["title"] or match["name"])
                for match in found
            }
    return {}


def _caption(token: Token, kind: str, html: str) -> str:
    number = token.meta.get("number")
    return ": ".join(filter(None, [f"{kind} {number}" if number else "", html]))


def _render_table(renderer: Any, tokens: Sequence[Token], index: int, *_rest: object) -> str:
    caption = _caption(tokens[index], "Table", escape(tokens[index].meta.get("caption", "")))
    attributes = renderer.renderAttrs(tokens[index])
    return f"<table{attributes}>{f'<caption>{caption}</caption>' if caption else ''}\n"


# ------------------------------------------------------------ pictures and HTML


def _picture(token: Token, caption: str, folder: Path) -> str:
    """A picture, with its caption if it has a number."""
    width = token.meta.get("width", "")
    image = _image(str(token.attrs["src"]), token.content, width, folder)
    if "number" not in token.meta:
        return image
    shown = image if image.startswith("<img") else ""  # else the caption describes it
    return f"{shown}<figcaption>{_caption(token, 'Fig.', caption)}</figcaption>"


def _image(source: str, description: str, width: str, folder: Path) -> str:
    """A picture in a file as a part of the page, another as its description."""
    alt = escape(description)
    url = source if source.startswith("data:image/") else ""
    path = folder / unquote(source)
    mime_type = mimetypes.guess_type(path.name)[0] or ""
    if not url and mime_type.startswith("image/") and path.is_file():
        url = data_url(mime_type, path.read_bytes())
    if not url:
        return f"<em>{alt}</em>"
    size = re.fullmatch(r"(\d+(?:\.\d+)?)(px|pt|em|rem|%)?", width)
    style = f' style="width: {size[1]}{size[2] or "px"}"' if size else ""
    return f'<img alt="{alt}" src="{url}"{style}>'


_SAFE_TAGS = re.compile(
    "a|abbr|b|blockquote|br|center|code|d[dlt]|del|details|div|em|figcaption|figure|h[1-6r]|i|ins"
    "|kbd|li|mark|ol|p|pre|s|samp|small|span|strong|sub|summary|sup|table|t(?:body|d|foot|h|head|r)"
    "|u|ul"
)
_LEFT_OUT = re.compile(  # in silence; other words in <> are shown, as they may be no tags
    "article|audio|body|button|canvas|col|colgroup|embed|font|form|head|html|iframe|input|label"
    "|link|meta|object|option|section|select|source|style|script|svg|video"
)
_SAFE_ATTRIBUTES = frozenset({"align", "colspan", "href", "open", "rowspan", "title"})
_LINK = re.compile(r"(?:https?:|mailto:|#|[\w./-]+(?![\w./-]*:))", re.IGNORECASE)


def _safe(html: str, folder: Path) -> str:
    """The author's HTML without scripts, styles and comments, and with its pictures inside it."""
    reader = _SafeHtml(folder)
    reader.feed(html)
    reader.close()
    return "".join(reader.parts)


class _SafeHtml(HTMLParser):
    """Collects the tags and attributes that only format text."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._folder = folder

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            given = {name: value or "" for name, value in attrs}
            size, alt = given.get("width", ""), given.get("alt", "")
            self.parts.append(_image(given.get("src", ""), alt, size, self._folder))
        elif _SAFE_TAGS.fullmatch(tag):
            kept = [
                f' {name}="{escape(value or "")}"'
                for name, value in attrs
                if name in _SAFE_ATTRIBUTES and (name != "href" or _LINK.match(value or ""))
            ]
            self.parts.append(f"<{tag}{''.join(kept)}>")
        elif ("type", "checkbox") in attrs:
            checked = " checked" if "checked" in dict(attrs) else ""
            self.parts.append(f'<input type="checkbox" disabled{checked}>')
        elif not _LEFT_OUT.fullmatch(tag):
            self.parts.append(escape(self.get_starttag_text() or ""))

    def handle_endtag(self, tag: str) -> None:
        if _SAFE_TAGS.fullmatch(tag):
            self.parts.append(f"</{tag}>")
        elif not _LEFT_OUT.fullmatch(tag):
            self.parts.append(f"&lt;/{tag}&gt;")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:  # else it is a script or a style
            self.parts.append(escape(data, quote=False))
