"""The HTML page of a chapter."""

from pathlib import Path

from xdevice.tools.course.chapters import Chapter
from xdevice.tools.course.page import page


def test_the_page_says_what_stood_for_gpus():
    chapter = Chapter(Path("chapter.md"), [], [])

    assert "<p>Run on 2 virtual GPUs.</p>" in page(chapter, [], [], "on 2 virtual GPUs")
    assert "GPU" not in page(chapter, [], [])
