"""Models: where they are, moving and copying them."""

import pytest

from xdevice import DeviceNotFoundError, UnknownPlacementError, device_of, devices_of, to_device
from xdevice.framework import choosing
from xdevice.testing.contract.promises import Promises, all_need, at_home, home, needs, same_values
from xdevice.testing.native import Native


@all_need("model")
class Models(Promises):
    def test_a_model_is_where_its_tensors_are(self, backend: str, native: Native) -> None:
        model = at_home(native.model)
        assert device_of(model) == home()
        assert device_of({"net": model, "lr": 0.1}) == home()
        assert all(device_of(p) == home() for p in native.parameters(model))
        named = dict(choosing.backend().models.tensors_of(model))
        assert len(named) >= 6, "a dense layer's two and a batch norm's four"

    def test_a_model_already_there_is_returned(self, backend: str, native: Native) -> None:
        model = at_home(native.model)
        before = native.parameters(model)
        assert to_device(model, home()) is model
        assert to_device([model], home())[0] is model
        assert all(a is b for a, b in zip(before, native.parameters(model), strict=True))

    def test_a_model_stays_if_the_device_is_missing(self, backend: str, native: Native) -> None:
        model = at_home(native.model)
        before = native.parameters(model)
        with pytest.raises(DeviceNotFoundError):
            to_device({"data": at_home(native.ones), "net": model}, "gpu:99")
        assert device_of(model) == home()
        assert all(a is b for a, b in zip(before, native.parameters(model), strict=True))

    @needs("exchange.to_numpy")
    def test_a_copied_model_has_own_parameters(self, backend: str, native: Native) -> None:
        model = at_home(native.model)
        copied = to_device(model, home(), copy=True)
        assert copied is not model
        for a, b in zip(native.parameters(model), native.parameters(copied), strict=True):
            assert a is not b
            assert same_values(a, b)

    def test_a_copied_tree_keeps_model_and_parameters(self, backend: str, native: Native) -> None:
        model = at_home(native.model)
        copied = to_device({"net": model, "parameters": native.parameters(model)}, home(), copy=True)
        for inside, listed in zip(native.parameters(copied["net"]), copied["parameters"], strict=True):
            assert inside is listed

    @needs("unbuilt_model")
    def test_an_unbuilt_model_has_no_device(self, backend: str, native: Native) -> None:
        model = at_home(native.unbuilt_model)
        for ask in (device_of, devices_of, lambda m: to_device(m, home())):
            with pytest.raises(UnknownPlacementError):
                ask(model)
