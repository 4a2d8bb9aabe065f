"""The HTML page of a chapter."""

from pathlib import Path

from xdevice.tools.course.compare import rows_of
from xdevice.tools.course.page import page
from xdevice.tools.course.read import Cell, Chapter, Prose
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.launcher.children import Child


def test_the_page_says_what_stood_for_gpus():
    chapter = Chapter(Path("chapter.md"), "Devices", (), ())

    assert "<p>Run on 2 virtual GPUs.</p>" in page(chapter, [], [], "on 2 virtual GPUs")
    assert "GPU" not in page(chapter, [], [])


def test_the_page_has_the_title_once_the_prose_in_its_place_and_the_error_that_is_the_lesson():
    cell = Cell("x + y", tags=("raises-exception",))
    parts = (
        Prose("# Two *devices*\n\nBefore <b>"),
        cell,
        Prose("## After\n", frozenset({"torch"})),
        Prose("JAX", frozenset({"jax"})),
    )
    outcomes = (Outcome("ok", error="RuntimeError: on two devices <cpu>"),)
    run = TabRun("torch", 0, (cell,), outcomes, Child("torch", []))
    chapter = Chapter(Path("chapter.md"), "Two *devices*", parts, ("torch", "jax"))
    html = page(chapter, [run], rows_of([run]))
    places = [
        html.index(text)
        for text in (
            "<h1>Two *devices*</h1>",
            "Before &lt;b&gt;",
            "x + y",
            "RuntimeError: on two devices &lt;cpu&gt;",
            "<h2>After</h2>",
        )
    ]
    assert places == sorted(places)
    assert (html.count("<h1>"), "JAX" in html) == (1, False)
