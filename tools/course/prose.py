"""Prose and code as HTML: markdown-it, Pygments, and formulas as MathML, which browsers show without a network."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

Token: TypeAlias = Any
InlineState: TypeAlias = Any

_PYTHON = "ipython3"  # with commands of the shell, and magics
_SLIDE_MARKS = re.compile(r"[\[(](\*\*.+?\*\*)[\])]", re.DOTALL)  # of d2l: [**bold**]
_ONLY_ON_SLIDES = re.compile(r"\(~~.+?~~\)", re.DOTALL)
_ANCHOR = re.compile(r"\s\{[^}]*\}\s*$")
# A role of MyST or of d2l: {ref}`text <target>`, :numref:`target`.
_ROLE = re.compile(r"(?:\{([\w:-]+)\}|:([\w-]+):)`([^`]+)`")
_TARGET = re.compile(r"\s*<[^<>]*>$")
_SIZE = re.compile(r"(\\[bB]igg?)[lrm](?![A-Za-z])")  # \bigl is a \big
_NOT_CONVERTED = re.compile(r"\\|<mi>&</mi>")


def prose_as_html(text: str, folder: Path) -> str:
    """The Markdown as HTML; HTML in it is text. ``folder`` is that of its pictures."""
    # hair spaces: between Chinese characters, ** before a ` would not be a mark
    text = _ONLY_ON_SLIDES.sub("", _SLIDE_MARKS.sub("\u200a\\1\u200a", text))
    return str(_markdown(folder).render(text))


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
    options = {"html": False, "highlight": _fence}
    markdown = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    dollarmath_plugin(markdown, renderer=_formula, allow_digits=False)
    amsmath_plugin(markdown, renderer=partial(_formula, options={"display_mode": True}))
    markdown.inline.ruler.before("backticks", "role", _role)
    markdown.core.ruler.push("anchors", _without_anchors)
    markdown.add_render_rule("role", _render_role)
    markdown.add_render_rule("image", _picture_in(folder))
    return markdown


def _fence(code: str, language: str, _attributes: str) -> str:
    name = language.strip("{}. ") or "text"
    return code_as_html(code, _PYTHON if name == "python" else name)


def _formula(latex: str, options: dict[str, bool]) -> str:
    """The formula as MathML; as its source, if it has what the converter does not know."""
    is_block = options.get("display_mode", False)
    source = _SIZE.sub(r"\1", latex.strip().replace("{aligned}", "{align*}"))
    try:
        mathml = convert(source, display="block" if is_block else "inline")
    except Exception:
        mathml = "\\"
    if _NOT_CONVERTED.search(mathml):
        return f"<code>{escape(latex.strip())}</code>"
    return mathml


def _role(state: InlineState, silent: bool) -> bool:
    match = _ROLE.match(state.src, state.pos)
    if match is None:
        return False
    if not silent:
        token = state.push("role", "", 0)
        token.info, token.content = match[1] or match[2], match[3]
    state.pos = match.end()
    return True


def _render_role(_: object, tokens: Sequence[Token], index: int, *_rest: object) -> str:
    """What a role refers to, in the chapter's own words, or as its name: there are no other pages here."""
    token = tokens[index]
    if token.info == "math":
        return _formula(token.content, {})
    return f"<em>{escape(_TARGET.sub('', token.content))}</em>"


def _without_anchors(state: Any) -> None:
    """Leave out the anchors of headings: ``# Devices {#devices}``."""
    for opening, inline in zip(state.tokens, state.tokens[1:], strict=False):
        if opening.type == "heading_open" and inline.children:
            last = inline.children[-1]
            last.content = _ANCHOR.sub("", last.content)


def _picture_in(folder: Path) -> Callable[..., str]:
    """The rule for pictures: those in files become part of the page, and others their description."""

    def render(_: object, tokens: Sequence[Token], index: int, *_rest: object) -> str:
        alt = escape(tokens[index].content)
        path = folder / unquote(str(tokens[index].attrs["src"]))
        mime_type = mimetypes.guess_type(path.name)[0] or ""
        if not mime_type.startswith("image/") or not path.is_file():
            return f"<em>{alt}</em>"
        return f'<img alt="{alt}" src="{data_url(mime_type, path.read_bytes())}">'

    return render
