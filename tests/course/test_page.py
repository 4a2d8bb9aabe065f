"""The HTML page of a chapter."""

from pathlib import Path

from xdevice.tools.course.page import page
from xdevice.tools.course.read import Chapter


def test_the_page_says_what_stood_for_gpus():
    chapter = Chapter(Path("chapter.md"), "Devices", (), ())

    assert "<p>Run on 2 virtual GPUs.</p>" in page(chapter, [], [], "on 2 virtual GPUs")
    assert "GPU" not in page(chapter, [], [])
