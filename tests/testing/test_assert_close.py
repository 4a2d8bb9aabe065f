"""`assert_close`: each difference is an error that names it, and equal things pass."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import xdevice
from xdevice.testing import assert_close
from xdevice.testing.closeness import Expectation, expecting


@dataclass
class Fit:
    slope: object
    label: str


Pair = namedtuple("Pair", "low high")


def said(actual, expected, **options):
    """The lines of the error, without the first."""
    with pytest.raises(AssertionError) as caught:
        assert_close(actual, expected, **options)
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("actual is not as expected")
    return [line.strip() for line in lines]


F32 = np.asarray([1.0, 2.0], dtype="float32")
F64 = np.asarray([1.0, 2.0])

EQUAL = {
    "tensors": (F64, F64.copy()),
    "within the tolerance": (F64, F64 + 1e-8),
    "a number": (np.asarray(0.5), 0.5),
    "a scalar of NumPy": (np.float64(0.5), np.asarray(0.5)),
    "lists of numbers": (F32 / 3, [1 / 3, 2 / 3]),
    "nan": (np.asarray([np.nan, np.inf]), np.asarray([np.nan, np.inf])),
    "numbers of Python": ([1, 2.0, True], [1.0, 2, 1]),
    "containers": ({"a": [F64, None], "b": "x"}, {"b": "x", "a": (F64, None)}),
    "a dataclass": (Fit(F64, "x"), Fit(F64.copy(), "x")),
    "a namedtuple": (Pair(F64, 2), Pair(F64, 2)),
    "complex": (np.asarray([1j]), np.asarray([1j + 1e-9])),
    "large integers": (np.asarray([2**62 + 1]), np.asarray([2**62 + 1])),
    "nothing": (np.ones((0, 3)), np.ones((0, 3))),
    "text": (np.asarray(["a"]), np.asarray(["a"])),
}


@pytest.mark.parametrize(("actual", "expected"), EQUAL.values(), ids=EQUAL)
def test_equal_things_pass(actual, expected):
    assert_close(actual, expected)


TOLERANCE = "tolerance: rtol=1e-07, atol=1e-07 (float64)"
EXACT = "tolerance: rtol=0, atol=0 (int64)"
DIFFERENT = {
    "a value": (
        (np.asarray([[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.5, 4.25]]),
        ["values: 2 of 4 differ, the first at [1, 0]: 3.0, expected 3.5",
         "largest difference: 0.5 at [1, 0]", TOLERANCE],
    ),
    "a number": (
        (np.asarray(1.0), 2.0),
        ["values: 1 of 1 differ, in the only one: 1.0, expected 2.0", "largest difference: 1",
         TOLERANCE],
    ),
    "numbers of Python": (
        (1.0, 2.0),
        ["values: 1 of 1 differ, in the only one: 1.0, expected 2.0", "largest difference: 1",
         TOLERANCE],
    ),
    "infinities": (
        (np.asarray([np.inf]), [-np.inf]),
        ["values: 1 of 1 differ, the first at [0]: inf, expected -inf", TOLERANCE],
    ),
    "a finite number and infinity": (
        (np.asarray([1.0]), [np.inf]),
        ["values: 1 of 1 differ, the first at [0]: 1.0, expected inf", TOLERANCE],
    ),
    "nan and a number": (
        (np.asarray([np.nan]), [1.0]),
        ["values: 1 of 1 differ, the first at [0]: nan, expected 1.0", TOLERANCE],
    ),
    "large integers": (
        (np.asarray([2**62 + 1]), np.asarray([2**62])),
        [f"values: 1 of 1 differ, the first at [0]: {2**62 + 1}, expected {2**62}", EXACT],
    ),
    "bools": (
        (np.asarray([True]), [False]),
        ["values: 1 of 1 differ, the first at [0]: True, expected False",
         "tolerance: rtol=0, atol=0 (bool)"],
    ),
    "a shape": ((F64, np.ones((2, 1))), ["shape: (2,), expected (2, 1)"]),
    "a dtype": ((F32, F64), ["dtype: float32, expected float64"]),
    "a dtype and a value": (
        (F32, F64 + [0, 0.5]),
        ["dtype: float32, expected float64",
         "values: 1 of 2 differ, the first at [1]: 2.0, expected 2.5",
         "largest difference: 0.5 at [1]",
         "tolerance: rtol=1.3e-06, atol=1e-05 (float32)"],
    ),
    "a number for a tensor": (
        (2.0, np.asarray(2.0)), ["framework: float, expected numpy"],
    ),
    "text for a tensor": (
        ("x", F64), ["object: actual is 'x', of str, and not a tensor"],
    ),
    "a part": (
        ({"a": [F64, F64]}, {"a": [F64, F32]}), ["at ['a'][1]:", "dtype: float64, expected float32"],
    ),
    "missing parts": (
        ({"a": 1, "c": 1}, {"a": 1, "b": 2}), ["parts missing: ['b']", "parts not expected: ['c']"],
    ),
    "a field": ((Fit(1.0, "x"), Fit(1.0, "y")), ["at .label:", "object: 'x', expected 'y'"]),
    "classes": ((Fit, Pair), [f"object: {Fit!r}, expected {Pair!r}"]),
}  # fmt: skip


@pytest.mark.parametrize(("given", "lines"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_is_named(given, lines):
    assert said(*given) == lines


def test_each_check_can_be_left_out():
    assert_close(F32, F64, check_dtype=False)
    assert_close(np.ones((2, 2)), 1.0, check_shape=False)
    assert_close(2.0, np.asarray(2.0), check_backend=False)
    assert said(np.ones((2, 2)), [1.0, 1.0, 1.0], check_shape=False) == [
        "shape: (2, 2) cannot be broadcast with (3,)"
    ]
    assert said(np.asarray([np.nan]), np.asarray([np.nan]), equal_nan=False)[0].startswith("values")


def test_a_given_tolerance_replaces_that_of_the_dtype():
    assert_close(F64, F64 + 0.1, atol=0.2)
    assert_close(F64, F64 * 1.1, rtol=0.2)
    assert said(F64, F64 + 1e-9, rtol=0)[-1] == "tolerance: rtol=0, atol=0 (float64)"
    assert said(F64 * 1e-9, F64 * 2e-9, rtol=1e-3)[-1] == "tolerance: rtol=0.001, atol=0 (float64)"
    assert_close(F64, F64 * (1 + 1e-8), atol=0)
    assert_close(np.asarray([3]), np.asarray([4]), atol=1)


@pytest.mark.parametrize(
    ("dtype", "near", "far"), [("float16", 1e-3, 4e-3), ("float32", 1e-6, 1e-4)]
)
def test_tolerances_depend_on_the_dtype(dtype, near, far):
    one = np.ones(3, dtype=dtype)
    assert_close(one, one + np.asarray(near, dtype))
    assert f"({dtype})" in said(one, one + np.asarray(far, dtype))[-1]


def test_the_message_is_put_first():
    with pytest.raises(AssertionError, match=r"^the loss: actual is not as expected\n"):
        assert_close(1.0, 2.0, err_msg="the loss")


def test_reading_values_is_not_a_copy():
    with xdevice.using("numpy"), xdevice.watch_transfers() as report:
        assert_close(F64, F64)
    assert not list(report)


def test_plain_numbers_stand_for_tensors_of_the_tests_dtype():
    check = expecting(Expectation(dtype="float32"))
    check(F32, [1, 2])
    check(np.asarray([1, 0]), [1, 0])  # indices
    check(F64, [1, 2], check_dtype=False)
    with pytest.raises(AssertionError, match="dtype: float64, expected float32"):
        check(F64, [1, 2])
