"""Properties of the comparison of texts, whatever cells print."""

import math
from decimal import Decimal

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from xdevice.tools.course.texts import CAUSES, difference, normalized
from xdevice.tools.course.values import series_of, t_test

NUMBERS = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.decimals(
        allow_nan=False, allow_infinity=False, places=4, min_value=-(10**6), max_value=10**6
    ).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds("{}.{}E{:+d}".format, st.integers(1, 9), st.integers(0, 99), st.integers(-500, 500)),
    st.builds("{}e{}".format, st.integers(-9, 9), st.integers(300, 999_999_999)),
    st.sampled_from(["nan", "inf", "-inf", "0", "-0.0", "1,024", "0.9999", "1.0"]),
)
WORDS = st.sampled_from(
    [
        "loss",
        "#",
        "s",
        "ms",
        "MiB",
        "KB",
        "(",
        ")",
        ",",
        ":",
        "±",
        "loops each",
        "step/s",
        "x1",
        "tensor([",
    ]
)
ADDRESSES = st.sampled_from(
    ["0x7f00aa11bb22", "0x55aabbccdd00", "{'a', 'b'}", "{'b', 'a'}", "tmpabcd1234"]
)
PRINTED = st.lists(st.one_of(NUMBERS, WORDS, ADDRESSES), max_size=8).map(" ".join)
TEMPLATES = st.lists(WORDS, min_size=1, max_size=5)


def filled(words, numbers):
    """Words and numbers in turn."""
    return " ".join(part for pair in zip(words, numbers, strict=True) for part in pair)


@st.composite
def pairs_with_the_same_words(draw):
    words = draw(TEMPLATES)
    numbers = st.lists(NUMBERS, min_size=len(words), max_size=len(words))
    first = draw(numbers)
    second = [draw(st.one_of(st.just(number), NUMBERS)) for number in first]
    return words, first, second


@given(PRINTED, PRINTED)
@example("1:02:03", "1:2:3")
@example("# 1", "1 #")
@example("1 MiB", "-1 MiB")
@example("3 s", "1 min 2 s")
def test_a_difference_has_the_same_cause_in_both_directions(first, second):
    there, back = difference(first, second), difference(second, first)
    assert there.cause == back.cause
    if there.cause in ("digits", "numbers"):
        assert there.amount == back.amount


@given(st.text(), st.text())
@example("1 \0 2", "1 2 \0")
def test_any_two_texts_can_be_compared(first, second):
    assert difference(first, second).cause in CAUSES
    assert difference(first, first).cause == "same"


@given(pairs_with_the_same_words())
@example((["loss"], ["140737488355328"], ["123456789012345"]))
@example((["loss"], ["1.5E+400"], ["2.5E+401"]))
@example((["loss"], ["1e308"], ["1.0000000000000000001e308"]))
@example((["loss"], ["1e999999999"], ["-1e999999999"]))
@example((["loss"], ["nan"], ["-inf"]))
@example((["loss"], ["nan"], ["0.6"]))
def test_texts_are_the_same_only_if_each_number_is_equal(pair):
    words, first, second = pair
    numbers = [[Decimal(each.replace(",", "")) for each in numbers] for numbers in (first, second)]
    are_equal = all(a == b or str(a) == str(b) for a, b in zip(*numbers, strict=True))
    assert (difference(filled(words, first), filled(words, second)).cause == "same") == are_equal


@given(PRINTED)
def test_what_is_normalized_stays_as_it_is(text):
    assert normalized(normalized(text)) == normalized(text)


def test_the_processes_of_nvidia_smi_do_not_count():
    row = "|  0   N/A  N/A    {}      C   {}    300MiB |\n| {}   {}   {}   200MiB  |"
    first = row.format(101, "/a/python", 1, 101, "/a/python")
    assert difference(first, row.format(2022, "python3", 1, 2022, "python3")).cause == "same"
    assert difference(first, row.format(101, "/a/python", 0, 101, "/a/python")).cause == "numbers"


@given(st.integers(10**11, 10**18), st.integers(10**11, 10**18))
def test_an_integer_is_never_an_address(first, second):
    assume(first != second)
    assert difference(f"id {first}", f"id {second}").cause == "numbers"
    assert difference(f"at {first:#x}", f"at {second:#x}").cause == "same"


@pytest.mark.parametrize(("first", "second", "cause"), [
    ("3.0 MiB", "-2.0 MiB", "numbers"),
    ("0 MiB", "2 MiB", "numbers"),
    ("1e400 MiB", "1e-400 MiB", "memory"),
    ("1.5E+400", "2.5E+401", "numbers"),
    ("1.5E+400", "1.5001E+400", "digits"),
    ("1e308", "2e308", "numbers"),
    ("1.5e+308", "1.5e-308", "numbers"),
    ("0x0 0x7f00aa11bb22", "0x0 0x0", "text"),
])  # fmt: skip
def test_no_number_is_too_large_or_of_the_wrong_sign(first, second, cause):
    assert difference(first, second).cause == difference(second, first).cause == cause


@given(st.lists(NUMBERS, min_size=4, max_size=4))
@example(["1.5E+400", "2.5E+401", "1.7E+308", "1e999999999"])
@example(["0", "0", "0.0000", "1.1625585682019291e-232"])
def test_seeds_can_be_judged_whatever_the_numbers(numbers):
    runs = [series_of(f"loss {number}", ()) for number in numbers]
    test = t_test(runs[:2], runs[2:])
    assert not math.isnan(test.t)
