"""What a notebook shows of a device and of times: HTML in the notebook's own colours, read by a screen reader."""

from xml.etree import ElementTree

import xdevice


def test_a_device_is_its_name_and_says_no_more_where_it_is_not_virtual():
    assert xdevice.cpu()._repr_html_() == "<code>cpu:0</code>"


def test_times_are_a_table_with_a_caption_and_headings():
    with xdevice.using("numpy"):
        timer = xdevice.Timer()
    timer.times = [0.5, 1.5]
    table = ElementTree.fromstring(timer._repr_html_())
    assert table.find("caption").text == "Timer"
    assert [(th.get("scope"), th.text) for th in table.iter("th")] == [
        ("col", "turn"), ("col", "seconds"), ("row", "1"), ("row", "2"), ("row", "average"), ("row", "sum"),
    ]  # fmt: skip
    assert [td.text for td in table.iter("td")] == ["0.5", "1.5", "1", "2"]
    assert repr(timer) == "<Timer: 2 turns, 2 s in all, 1 s on average>"


def test_a_label_is_text_and_not_html(capsys):
    with xdevice.using("numpy"), xdevice.Benchmark("a < b & c") as block:
        assert (
            ElementTree.fromstring(block._repr_html_()).find(".//td").text == "–"
        )  # not ended yet
    assert ElementTree.fromstring(block._repr_html_()).find("tbody/tr/th").text == "a < b & c"
    assert repr(block).startswith("<Benchmark 'a < b & c': ")
    assert "style" not in block._repr_html_()
    assert "color" not in block._repr_html_()
