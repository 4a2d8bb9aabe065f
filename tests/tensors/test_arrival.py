"""What is known of a framework's tensors, and that they are where they were to be."""

import numpy as np
import pytest

import xdevice
from xdevice.framework.ownership import check_arrival
from xdevice.tensors.moving import move_tensors


def test_a_tensor_that_is_not_where_it_was_to_be_is_an_error():
    owner, x = xdevice.backend("numpy"), np.zeros(2)
    assert check_arrival(x, owner, xdevice.cpu()) is x
    with pytest.raises(xdevice.MisplacedError, match="gpu:1"):
        check_arrival(x, owner, xdevice.gpu(1))


@pytest.mark.parametrize("tensors", [[np.zeros(2)], [np.zeros(2), np.zeros(3)]])
def test_an_adapter_that_does_not_move_is_found_out(tensors, monkeypatch):
    owner = xdevice.backend("numpy")
    functions = vars(owner.placement)
    monkeypatch.setitem(functions, "move", lambda tensor, *_: tensor)
    monkeypatch.setitem(functions, "move_many", lambda tensors, *_: tensors)
    assert len(move_tensors(tensors, owner, xdevice.cpu(), False)) == len(tensors)
    with pytest.raises(xdevice.MisplacedError, match="gpu:1"):
        move_tensors(tensors, owner, xdevice.gpu(1), False)
