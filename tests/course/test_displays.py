"""What is kept of the values that a cell displays: text, pictures and curves."""

import pytest

from xdevice.tools.course.values import pictures_of, text_of, without_terminal_codes


def displayed(**data):
    forms = {"text": "text/plain", "markdown": "text/markdown", "html": "text/html"}
    return {
        "output_type": "display_data",
        "data": {forms.get(name, name): value for name, value in data.items()},
    }


@pytest.mark.parametrize(("data", "says"), [
    ({"text": "3"}, "3"),
    ({"text": "   a\n0  1", "html": "<table><tr><td>1</td></tr></table>"}, "   a\n0  1"),
    ({"text": "<IPython.core.display.Markdown object>", "markdown": "**bold**"}, "**bold**"),
    ({"text": "<IPython.core.display.Math object>", "text/latex": "$x^2$"}, "$x^2$"),
    (
        {
            "text": "<IPython.core.display.HTML object>",
            "html": "<style>p {}</style><p>one\n <b>two</b></p><table><tr><td>3\n</td><td>4</td></tr></table>",
        },
        "one two\n3 4",
    ),
    ({"text": "<IPython.core.display.Video object>", "html": "<video></video>"},
     "<IPython.core.display.Video object>"),
    ({"application/vnd.plotly.v1+json": {}}, "(figure of Plotly, not shown)"),
    ({"application/vnd.bokehjs_exec.v0+json": "", "text": ""}, "(figure of Bokeh, not shown)"),
    ({"application/vnd.vegalite.v5+json": "", "text": "<Chart>"}, "(figure of Vega, not shown)"),
    (  # of tqdm.notebook, as it was at first
        {"application/vnd.jupyter.widget-view+json": "", "text": "  0%|          | 0/50 [00:00<?, ?it/s]"},
        "",
    ),
    ({"application/vnd.jupyter.widget-view+json": "", "text": "IntSlider(value=7)"}, "IntSlider(value=7)"),
])  # fmt: skip
def test_a_value_is_shown_in_the_form_that_says_most(data, says):
    assert text_of([displayed(**data)]) == says


def test_an_animated_gif_is_a_picture():
    output = displayed(**{"image/gif": "R0lGODlh", "text": "<IPython.core.display.Image object>"})
    assert [picture.mime_type for picture in pictures_of(output)] == ["image/gif"]
    assert text_of([output]) == ""


@pytest.mark.parametrize("written", [
    "\x1b[1;31mred\x1b[0m", "\x1b[2K\x1b[1Ared", "\x1b[?25lred\x1b[?25h",
    "\x1b]8;;https://example.com\x1b\\red\x1b]8;;\x1b\\", "\x1b]0;title\x07red",
])  # fmt: skip
def test_what_a_terminal_does_not_show_is_left_out(written):
    assert without_terminal_codes(written) == "red"
