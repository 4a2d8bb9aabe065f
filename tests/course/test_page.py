"""The HTML page of a chapter."""

import re
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from xdevice.tools.course.compare import rows_of
from xdevice.tools.course.page import page
from xdevice.tools.course.prose import prose_as_html
from xdevice.tools.course.read import Cell, Chapter, Prose, chapter_from
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.course.values import Curve, Picture
from xdevice.tools.launcher.children import Child

PICTURE = Picture("image/svg+xml", "<svg/>")


def html_of(outcomes, parts=None, review=False, **changes):
    """The page of a chapter with one cell, and its outcome under each framework."""
    cell = Cell("x + y")
    chapter = Chapter(Path("chapter.md"), "Devices", parts or (cell,), tuple(outcomes))
    chapter = replace(chapter, **changes)
    runs = [
        TabRun(tab, 0, chapter.cells, (outcome,), Child(tab, []), "1.0")
        for tab, outcome in outcomes.items()
    ]
    return page(chapter, runs, rows_of(runs), "on 2 virtual GPUs", review)


def test_the_page_says_under_what_it_was_run():
    html = html_of({"torch": Outcome("ok", "1")})
    assert "<footer>Run under PyTorch 1.0, on 2 virtual GPUs.</footer>" in html


def test_the_page_has_the_title_once_the_prose_in_its_place_and_the_error_that_is_the_lesson():
    parts = (
        Prose(
            "# [**Two** `devices`] {#two}\n:label:`two`\n\nBefore <b>bold</b> List<int><!-- y -->"
        ),
        Cell("x + y", tags=("raises-exception",)),
        Prose("## After\n", frozenset({"torch"})),
        Prose("JAX", frozenset({"jax"})),
    )
    html = html_of({"torch": Outcome("ok", error="RuntimeError: on two <cpu>")}, parts)
    places = [
        html.index(text)
        for text in (
            '<h1 id="two">[<strong>Two</strong> <code>devices</code>]</h1>',
            "Before <b>bold</b> List&lt;int&gt;</p>",
            '<span class="n">y</span>',
            "RuntimeError: on two &lt;cpu&gt;",
            "<h2>After</h2>",
        )
    ]
    assert places == sorted(places)
    assert (html.count("<h1"), "JAX" in html) == (1, False)


@pytest.mark.parametrize(
    ("other", "number"),
    [("tensor(3.0000)", 1), ("tensor(3.0001)", 1), ("3.0", 2), ("tensor(4.)", 2)],
)
def test_an_output_is_shown_once_if_all_tabs_agree(other, number):
    html = html_of({"torch": Outcome("ok", "tensor(3.0000)"), "jax": Outcome("ok", other)})
    assert html.count('<pre class="output">') == number
    assert html.count('<label for="tab-jax">') == number - 1
    assert html.count('<pre class="code">') == 1


def test_a_cell_that_only_some_tabs_have_is_in_their_panels():
    cells = (Cell("1", frozenset({"jax"})), Cell("2", row=1))
    chapter = Chapter(Path("chapter.md"), "Devices", cells, ("torch", "jax"))
    runs = [
        TabRun("torch", 0, cells[1:], (Outcome("ok"),), Child("torch", [])),
        TabRun("jax", 0, cells, (Outcome("ok"),) * 2, Child("jax", [])),
    ]
    html = page(chapter, runs, rows_of(runs))
    assert re.findall(r'class="panel (\w+)"', html) == ["jax"]


def test_pictures_are_beside_one_another_or_one_for_all():
    outcomes = {
        "torch": Outcome("ok", pictures=(PICTURE,)),
        "jax": Outcome("ok", pictures=(PICTURE,), curves=(Curve("loss", (0.0,), (1.0,)),)),
    }
    (grid,) = re.findall(r'<div class="pictures">(.*?)</div>', html_of(outcomes))
    assert re.findall("<figcaption>(.*?)</figcaption>", grid) == ["PyTorch", "JAX"]
    assert html_of(dict.fromkeys(outcomes, outcomes["jax"])).count("<figure>") == 1


@pytest.mark.parametrize(
    ("tag", "shown"), [("", 1), ("hide-input", 1), ("remove_input", 0), ("remove-cell", 0)]
)
def test_tags_of_jupyter_book_hide_code_from_readers(tag, shown):
    parts = (Cell("1 + 1", tags=(tag,)),)
    html = html_of({"torch": Outcome("ok", "2")}, parts)
    assert html.count('<pre class="code">') == shown
    assert html.count("<details>") == tag.count("hide")
    assert html_of({"torch": Outcome("ok", "2")}, parts, review=True).count('class="code"') == 1


def test_verdicts_are_for_authors():
    outcomes = {"torch": Outcome("ok", "1", log="a warning"), "jax": Outcome("ok", "2")}
    assert not re.search("<aside|other numbers|a warning", html_of(outcomes))
    reviewed = html_of(outcomes, review=True)
    assert '<aside class="numbers"><strong>1. other numbers</strong>' in reviewed
    assert "a warning" in reviewed


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("$x_i$ is small", "<msub><mi>x</mi><mi>i</mi></msub>"),
        ("$$\\begin{aligned}a &= b\\end{aligned}$$", "<mtable"),
        ("\\begin{align}a &= b\\end{align}", "<mtable"),
        ("$\\nonsense{x}$", "<code>\\nonsense{x}</code>"),
        ("as in :numref:`sec_gpu`", "as in <em>sec_gpu</em>"),
        (":numref:`sec_far`, {ref}`near`", "Far, Near"),
        ("{ref}`the chapter <gpu>`", "<em>the chapter</em>"),
        ("的[**`x`加**]。(~~slide~~)", "<strong><code>x</code>加</strong>\u200a。</p>"),
        ("```python\n!ls\nimport x\n```", '<span class="kn">import</span>'),
        ("$n$ is 3", "<mi>n</mi>"),
        ("is $n$).", "</math>).</span>"),
        ("a<br>b <img src='a.svg' width=9>", '<br>b <img alt="" src="data:'),
        ("<a href='javascript:x()' onclick='x()'>a</a>", "<a>a</a>"),
        ("<div>\n<script>x()</script>\n<b>a</b></div>", "<div>\n\n<b>a</b></div>"),
        ("- [x] done", '<input type="checkbox" disabled checked>'),
        ("![a picture](there_is_none.png)", "<em>a picture</em>"),
        ("![a picture](a.svg)", '<img alt="a picture" src="data:image/svg+xml;base64,PHN2Zy8+">'),
    ],
)
def test_prose(text, html, tmp_path):
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "config.ini").touch()
    (tmp_path / "other.md").write_text("# [**Far**]\n:label:`sec_far`\n\n(near)=\n## Near\n")
    assert html in prose_as_html([text], tmp_path)[0]


def test_figures_tables_and_equations_are_numbered_across_passages():
    text = """
        (here)=
        # A plan

        See
        :numref:`machine`, {eq}`sum`, {ref}`here`, [](#here), [^1] and {numref}`Figure %s <machine>`.

        ```{code-cell}
        1
        ```

        ```{figure} there_is_none.png
        ---
        name: machine
        ---
        Two $n$.
        ```

        $$ a $$ (sum)

        | a |
        |---|
        | b |
        :Letters
        :label:`letters`

        [^1]: A note, see :numref:`letters`.
    """
    chapter = chapter_from(textwrap.dedent(text), Path("chapter.md"))
    proses = [part.text for part in chapter.parts if isinstance(part, Prose)]
    first, second = prose_as_html(proses, Path())
    assert 'See\nFig. 1, (1), A plan, <a href="#here">A plan</a>, <sup' in first
    assert '<h1 id="here">' in first
    assert "Figure 1.</p>" in first
    assert '<figure id="machine"><figcaption>Fig. 1: Two <span' in second
    assert "<span>(1)</span>" in second
    assert '<table id="letters"><caption>Table 1: Letters</caption>' in second
    assert "A note, see Table 1." in second
