"""What only NumPy does."""

import numpy as np
import pytest

import xdevice


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("numpy"):
        yield


def test_a_mask_is_never_lost():
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    with pytest.raises(xdevice.ArgumentTypeError, match=r"would be lost; give x.filled\(0\)"):
        xdevice.tensor(masked)
    with pytest.raises(xdevice.ArgumentTypeError, match="the mask of a masked array would be lost"):
        xdevice.all_reduce([masked, masked])
    assert xdevice.tensor(masked.filled(0)).tolist() == [1.0, 0.0]


def test_what_is_not_of_numbers_is_refused_by_name(tmp_path):
    kinds = [
        np.zeros(4, [("a", "f4")]),
        np.zeros(4, "M8[D]"),
        np.array(list("abcd")),
        np.array([None] * 4),
    ]
    for x in kinds:
        with pytest.raises(
            xdevice.ArgumentTypeError, match="neither integers nor floating-point numbers"
        ):
            xdevice.all_reduce([x, x])
        with pytest.raises(xdevice.NotSupportedError, match="'x'"):
            xdevice.save({"x": x}, tmp_path / "file")
        with pytest.raises(xdevice.ArgumentError, match="is not a numeric dtype"):
            xdevice.tensor(x)
        assert [len(part) for part in xdevice.split_batch(x, ["cpu", "cpu"])] == [2, 2]


def test_a_mask_is_not_lost(tmp_path):
    masked = np.ma.masked_array(np.ones(4), [0, 1, 0, 0])
    for ask in (
        lambda: xdevice.all_reduce([masked]),
        lambda: xdevice.save({"x": masked}, tmp_path / "file"),
        lambda: xdevice.tensor([masked]),
        lambda: xdevice.tensor(masked),
    ):
        with pytest.raises(xdevice.ArgumentTypeError, match="mask"):
            ask()
    assert [part.mask.tolist() for part in xdevice.split_batch(masked, ["cpu"] * 2)] == [
        [False, True],
        [False, False],
    ]


def test_a_dtype_without_byte_order_is_refused():
    with pytest.raises(xdevice.ArgumentError, match="is not a numeric dtype"):
        xdevice.tensor(np.array(["a"], np.dtypes.StringDType()))
