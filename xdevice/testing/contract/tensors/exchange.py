"""Out of the framework."""

from typing import Any

import numpy as np
import pytest

from xdevice import NotATensorError, convert, device_of, ones, to_numpy
from xdevice.testing.contract.promises import Promises, all_need, home, needs
from xdevice.testing.native import Native


@all_need("exchange.to_numpy")
class Exchange(Promises):
    def test_to_numpy_returns_host_values(self, backend: str, x: Any) -> None:
        array = to_numpy(x)
        assert type(array) is np.ndarray
        assert array.ravel().tolist() == [1, 1, 1, 1, 1, 1]

    def test_to_numpy_shares_no_memory(self, backend: str, x: Any) -> None:
        array = to_numpy(x)
        array[:] = 5
        assert to_numpy(x).ravel().tolist() == [1, 1, 1, 1, 1, 1]

    @needs("creation.ones")
    @pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
    def test_every_shape_survives(self, backend: str, shape: Any) -> None:
        assert to_numpy(ones(shape)).shape == shape

    @needs("parameter")
    def test_parameters_read_back_without_gradient(self, backend: str, native: Native) -> None:
        assert to_numpy(native.parameter()).shape == (2, 3)

    @pytest.mark.parametrize("nothing", [[1, 2], "text", None, 3.0])
    def test_what_is_no_tensor_is_an_error(self, backend: str, nothing: Any) -> None:
        with pytest.raises(NotATensorError):
            to_numpy(nothing)

    @needs("creation.dtype", "creation.ones", "creation.tensor")
    @pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
    def test_a_tensor_round_trips_through_numpy(self, backend: str, shape: Any) -> None:
        x = ones(shape, dtype="float32", device=home())
        array = convert(x, "numpy", device="cpu")
        assert type(array) is np.ndarray
        back = convert(array, backend, device=home(), copy=True)
        assert type(back) is type(x)
        assert device_of(back) == home()
        assert to_numpy(back).dtype == "float32"
        assert to_numpy(back).tolist() == np.ones(shape).tolist()
        assert convert(x, backend) is x
