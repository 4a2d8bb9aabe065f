"""Out of the framework: the promises under every framework."""

import numpy as np
import pytest

import xdevice


def test_to_numpy_gives_the_values_on_the_host(backend, native):
    array = xdevice.to_numpy(native.ones())
    assert type(array) is np.ndarray
    assert array.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_the_array_is_ours_to_write_and_the_tensor_keeps_its_values(backend, native):
    x = native.ones()
    array = xdevice.to_numpy(x)
    array[:] = 5
    assert xdevice.to_numpy(x).tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
def test_every_shape_survives(backend, shape):
    assert xdevice.to_numpy(xdevice.ones(shape)).shape == shape


@pytest.mark.needs("parameter")
def test_a_parameter_is_read_back_without_its_gradient(backend, native):
    assert xdevice.to_numpy(native.parameter()).shape == (2, 3)


@pytest.mark.parametrize("nothing", [[1, 2], "text", None, 3.0])
def test_what_is_no_tensor_is_an_error(backend, nothing):
    with pytest.raises(xdevice.NotATensorError):
        xdevice.to_numpy(nothing)
