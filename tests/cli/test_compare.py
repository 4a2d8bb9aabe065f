"""Where outputs differ: pure functions on texts."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdevice.tools.cli.comparing import Differ, Same, compare
from xdevice.tools.course.texts import with_devices_spelled_alike
from xdevice.tools.launcher.texts import printable

WORDS = st.sampled_from(
    ["a", "b", "loss 0.5", "loss 0.500001", "loss 0.6", "step 3", "", "  x", "nan", "1e400"]
)
TEXTS = st.lists(WORDS, max_size=12).map(lambda lines: "".join(line + "\n" for line in lines))
OUTPUTS = st.dictionaries(st.sampled_from(["torch", "jax", "numpy", "paddle"]), TEXTS, min_size=1)


def lines_of(name, view):
    """What one of them printed, read back from the unified view."""
    for part in view:
        if isinstance(part, Same):
            yield part.line
        else:
            (mine,) = [lines for names, lines in part.groups if name in names]
            yield from mine


@given(OUTPUTS)
def test_the_view_holds_every_output(outputs):
    view = compare(outputs, tolerance=0)
    for name, text in outputs.items():
        shown = [" ".join(line.split()) for line in lines_of(name, view)]
        assert shown == [" ".join(line.split()) for line in text.split("\n")[:-1]]


@given(OUTPUTS)
def test_groups_differ_and_hold_each_name_once(outputs):
    for part in compare(outputs):
        if isinstance(part, Differ):
            names = [name for group, _ in part.groups for name in group]
            assert sorted(names) == sorted(outputs)
            assert len({lines for _, lines in part.groups}) == len(part.groups) > 1


@given(TEXTS)
def test_equal_outputs_have_no_differences(text):
    view = compare({"torch": text, "jax": text, "numpy": text})
    assert all(isinstance(part, Same) and not part.close for part in view)
    assert [part.line for part in view] == text.split("\n")[:-1]


@given(st.lists(WORDS, max_size=8), WORDS.filter(bool), st.integers(0, 8))
def test_one_more_line_is_one_difference(lines, extra, at):
    extra += " more"
    view = compare(
        {"a": "\n".join([*lines, "end"]), "b": "\n".join([*lines[:at], extra, *lines[at:], "end"])}
    )
    assert [part for part in view if isinstance(part, Differ)] == [
        Differ(((("a",), ()), (("b",), (extra,))))
    ]


def agree(a, b, **options):
    return not any(isinstance(part, Differ) for part in compare({"a": a, "b": b}, **options))


@given(st.floats(-1e300, 1e300), st.floats(-0.9e-5, 0.9e-5))
def test_numbers_within_the_tolerance_are_equal(number, relative):
    assert agree(f"loss {number!r}", f"loss {number * (1 + relative)!r}")


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_the_tolerance_is_that_of_isclose(a, b):
    assert agree(f"loss {a!r}", f"loss {b!r}") == math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-8)


@given(st.integers(), st.integers())
def test_whole_numbers_are_compared_exactly(a, b):
    assert agree(f"step {a}", f"step {b}") == (a == b)


@pytest.mark.parametrize(("a", "b"), [
    ("[0.1  0.2]", "[0.1 0.2]"),
    ("[1. 2.]", "[1.0 2.0]"),
    ("x = 1e-05", "x = 0.00001"),
    ("3", "3.0"),
    ("nan", "nan"),
    ("1" * 5000, "1" * 5000),
    ("0.3333333333", "0.33333334"),
    ("1e-12", "0.0"),
    ("at 1.0: 9e-9", "at 1.0: 0.0"),
    ("loss 0.5, 1.23 s, 20 ms a step", "loss 0.5, 45.6 s, 1.5 s a step"),
])  # fmt: skip
def test_two_spellings_of_one_number(a, b):
    assert agree(a, b)


@pytest.mark.parametrize(("a", "b"), [
    ("float32", "float64"),
    ("2.13.0", "2.13.1"),
    ("100000", "100001"),
    ("0.5", "0.5001"),
    ("1.0", "-1.0"),
    ("at 1.0: 1.1e-8", "at 1.0: 0.0"),
    ("cpu", "cpu:0"),
    ("a 1", "1 a"),
    ("1 2", "12"),
    ("3 samples", "4 samples"),
])  # fmt: skip
def test_what_differs_differs(a, b):
    assert not agree(a, b)


def test_nearly_equal_lines_are_marked():
    assert compare({"a": "x 0.5", "b": "x 0.5000001"}) == [Same("x 0.5", close=True)]


def test_those_that_agree_are_grouped():
    (part,) = compare({"torch": "a", "jax": "b", "numpy": "a"})
    assert part == Differ(((("torch", "numpy"), ("a",)), (("jax",), ("b",))))


def test_differing_lines_are_paired():
    common, first, second = compare({"a": "x\n1\nq", "b": "x\n2\nr"})
    assert common == Same("x")
    assert first == Differ(((("a",), ("1",)), (("b",), ("2",))))
    assert second == Differ(((("a",), ("q",)), (("b",), ("r",))))


def test_no_output_differs_from_some():
    assert compare({"a": "", "b": "x"}) == [Differ(((("a",), ()), (("b",), ("x",))))]
    assert compare({}) == []
    assert compare({"a": ""}) == []


@pytest.mark.parametrize("spelling", [
    "gpu:1", "cuda:1", "/GPU:1", "/device:GPU:1", "/job:localhost/replica:0/task:0/device:GPU:1", "gpu(1)",
    "Place(gpu:1)", "CudaDevice(id=1)",
])  # fmt: skip
@pytest.mark.parametrize(
    "around", ["on {}", "[{}]", "({})", "'{}'", "{}, {}", "device={}", "print({})", "{}."]
)
def test_device_spellings_are_normalized(spelling, around):
    assert with_devices_spelled_alike(around.replace("{}", spelling)) == around.replace(
        "{}", "gpu:1"
    )


@pytest.mark.parametrize("text", [
    "hello", "the mean is 0.5", "tpu-like", "a/b/c.py:12", "x:1", "f(x)", "(()", "Linear(in=3)", "/", "", "http://cpu.org",
])  # fmt: skip
def test_what_names_no_device_is_left_alone(text):
    assert with_devices_spelled_alike(text) == text


@given(st.text())
def test_any_text_can_be_printed(text):
    once = with_devices_spelled_alike(text)
    assert with_devices_spelled_alike(once) == once
    assert all(c in "\t\n" or not (ord(c) < 32 or 127 <= ord(c) < 160) for c in printable(text))


def test_printable_is_what_a_terminal_leaves():
    assert (
        printable("\x1b[1;31mred\x1b[0m\n 10%\r 90%\r100%\r\nbell\a\x00\n") == "red\n100%\nbell␇␀\n"
    )
    assert printable("\x1b]0;title\x07x") == "x"


@pytest.mark.parametrize("line", ["loss {:.6f}", "same", "{0}", "step {0:.0f} of 9"])
def test_thousands_of_lines_are_compared(line):
    outputs = {
        n: "\n".join(line.format(i * 1.000001**k) for i in range(2000))
        for k, n in enumerate("abcdef")
    }
    began = time.process_time()
    compare(outputs)
    assert (
        time.process_time() - began < 20
    )  # not a timing: the square of the lines would take minutes
