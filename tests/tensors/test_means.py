"""Means over devices: that of equal numbers is that number."""

import numpy as np
import pytest

import xdevice


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_mean_of_equals_is_exact(n, dtype):
    random = np.random.default_rng(0)
    numbers = (random.standard_normal(2000) * 10 ** random.uniform(-4, 4, 2000)).astype(dtype)
    tiny = np.array(
        [np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max, 0.0, -0.0, np.inf], dtype
    )
    for x in (numbers, tiny if dtype == "float16" else tiny[[0, 2, 3, 4]]):
        for found in xdevice.all_reduce([x] * n, op="mean"):
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, x)


def test_the_mean_of_unequal_numbers_is_theirs_and_nan_wins():
    a, b, c = np.array([1.0, np.nan, 3.0]), np.array([2.0, 1.0, np.inf]), np.array([6.0, 2.0, 1.0])
    for found in xdevice.all_reduce([a, b, c], op="mean"):
        np.testing.assert_array_equal(found, [3.0, np.nan, np.inf])
    complex_numbers = xdevice.all_reduce([a[:1] * 1j, b[:1] * 1j, c[:1] * 1j], op="mean")
    np.testing.assert_allclose(complex_numbers[0], [3j])
