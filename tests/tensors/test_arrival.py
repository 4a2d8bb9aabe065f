"""What is known of a framework's tensors, and that they are where they were to be."""

import numpy as np
import pytest

import xdevice
from xdevice.framework.ownership import check_arrival


def test_a_tensor_that_is_not_where_it_was_to_be_is_an_error():
    owner, x = xdevice.backend("numpy"), np.zeros(2)
    assert check_arrival(x, owner, xdevice.cpu()) is x
    with pytest.raises(xdevice.MisplacedError, match="gpu:1"):
        check_arrival(x, owner, xdevice.gpu(1))
