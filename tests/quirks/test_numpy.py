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
