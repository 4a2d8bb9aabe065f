"""Where tensors and models are, and moving them."""

import contextlib
import re
from typing import Any

import numpy as np
import pytest

from xdevice import (
    DeviceNotFoundError,
    check_same_device,
    cpu,
    devices,
    devices_of,
    gpu,
    is_same_device,
    to_numpy,
    using,
)
from xdevice.errors import ArgumentError, CopyNeededError, MixedDeviceError, NotATensorError, UnknownPlacementError
from xdevice.framework import choosing
from xdevice.hardware import devices as hardware
from xdevice.tensors.creation import ones
from xdevice.tensors.placement import device_of, to_device
from xdevice.testing import Native
from xdevice.testing.contract.promises import Promises, at_home, home, needs, same_values


class Placement(Promises):
    def test_device_of_follows_the_native_default(self, backend: str, native: Native) -> None:
        x = native.ones()
        assert device_of(x) in devices()
        assert devices_of(x) == {device_of(x)}

    @needs("owned", "exchange.to_numpy")
    def test_every_tensor_class_is_owned(self, backend: str, native: Native) -> None:
        from xdevice.framework.ownership import ownership_of

        for tensor in at_home(native.owned):
            owned = ownership_of(type(tensor))
            assert owned is not None and (owned.backend, owned.role) == (backend, "tensor"), type(tensor)
            assert device_of(tensor) == home()
            assert to_device(tensor, home()) is tensor
            assert "key" in str(getattr(tensor, "dtype", "")) or isinstance(to_numpy(tensor), np.ndarray)

    def test_device_of_follows_the_tensor(self, backend: str, x: Any) -> None:
        here = home()
        with using("numpy"):
            assert device_of(x) == here
            assert type(to_device(x, here, copy=True)) is type(x)

    def test_is_same_device_takes_trees_and_devices(self, backend: str, x: Any, native: Native, spelling: str) -> None:
        y = at_home(native.ones)
        assert is_same_device(x, y)
        assert is_same_device(x, {"y": [y]}, home(), spelling, hardware.native(home()))
        assert not is_same_device(x, "gpu:1")
        assert is_same_device(x)
        assert check_same_device(x, y) is home()

    @needs("cpu")
    def test_two_frameworks_can_share_a_device(self, backend: str, x: Any) -> None:
        assert is_same_device(x, np.ones(3))
        assert device_of({"theirs": x, "ours": np.ones(3)}) == cpu()
        moved = to_device({"theirs": x, "ours": np.ones(3)}, cpu(), copy=True)
        assert [type(each) for each in moved.values()] == [type(x), np.ndarray]

    def test_mixed_devices_error_names_arguments(self, backend: str, x: Any) -> None:
        with pytest.raises(MixedDeviceError, match=rf"{home()}: argument 0\['a'\]\[1\].*gpu:1: argument 1") as error:
            check_same_device({"a": [None, x]}, "gpu:1")
        assert isinstance(error.value, RuntimeError)
        assert error.value.devices == {home(), gpu(1)}

    @pytest.mark.parametrize("nothing", ["text", 3, 2.5, None, b"bytes", object(), int])
    def test_only_tensors_models_and_trees_move(self, backend: str, nothing: Any) -> None:
        with pytest.raises(NotATensorError):
            to_device(nothing, home())

    @pytest.mark.parametrize("ask", [is_same_device, check_same_device])
    def test_comparing_nothing_is_an_error(self, ask: Any) -> None:
        with pytest.raises(NotATensorError, match="nothing was given"):
            ask()

    @needs("symbolic", "creation.ones", "exchange.to_numpy")
    def test_a_symbolic_tensor_has_no_device(self, backend: str, native: Native) -> None:
        asked: list[Any] = []

        def ask(symbol: Any) -> None:
            for question in (
                *(lambda s: device_of(s).kind, lambda s: device_of(s) == home(), lambda s: {device_of(s)}, devices_of),
                *(lambda s: is_same_device(s, s), lambda s: to_device(s, home()), lambda s: to_device([s], home())),
                to_numpy,
            ):
                with pytest.raises(UnknownPlacementError):
                    question(symbol)
                asked.append(question)
            with contextlib.suppress(UnknownPlacementError):  # where there is an answer, it says that it is not known
                answer = device_of(symbol)
                assert "known when" in repr(answer) and not re.search(r"[cg]pu", f"{answer!r} {answer}")
                assert tuple(ones(2, device=answer).shape) == (2,)
                assert to_device(symbol, answer) is symbol

        at_home(lambda: native.symbolic(ask))
        assert len(asked) >= 8

    @needs("exchange.to_numpy")
    def test_asking_changes_nothing(self, backend: str, x: Any) -> None:
        before = to_numpy(x)
        _ = device_of(x), devices_of([x]), is_same_device(x, x)
        assert np.array_equal(to_numpy(x), before)

    def test_a_tensor_already_there_is_returned(self, backend: str, x: Any, spelling: str) -> None:
        for device in (spelling, home(), hardware.native(home(), backend)):
            assert to_device(x, device) is to_device(x, device, copy=False) is x

    @needs("address", "exchange.to_numpy")
    def test_a_forced_copy_shares_no_memory(self, backend: str, native: Native, x: Any) -> None:
        y = to_device(x, home(), copy=True)
        assert y is not x
        assert type(y) is type(x)
        assert native.address(y) != native.address(x)
        assert same_values(x, y)

    def test_copy_must_be_true_false_or_none(self, backend: str, x: Any) -> None:
        with pytest.raises(ArgumentError, match="'maybe'"):
            to_device(x, home(), copy="maybe")  # type: ignore[arg-type]  # what is given is the point

    @needs("gradient")
    @pytest.mark.parametrize("forced", [None, True])
    def test_gradients_flow_through_a_move(self, backend: str, native: Native, forced: Any) -> None:
        gradient = at_home(lambda: native.gradient(lambda x: to_device(x, home(), copy=forced)))
        assert gradient == [2.0, 2.0, 2.0]

    @needs("parameter")
    @pytest.mark.parametrize("frozen", [False, True])
    def test_a_parameter_already_there_is_returned(self, backend: str, native: Native, frozen: Any) -> None:
        parameter = at_home(lambda: native.parameter(frozen))
        assert to_device(parameter, home()) is to_device([parameter], home())[0] is parameter
        assert native.is_frozen(parameter) is frozen

    def test_copy_false_is_checked_before_the_device(self, backend: str, x: Any) -> None:
        with pytest.raises(CopyNeededError) as error:
            to_device(x, "gpu:99", copy=False)
        assert isinstance(error.value, ValueError)


@needs("model")
class Models(Promises):
    def test_a_model_is_where_its_tensors_are(self, backend: str, native: Native, model: Any) -> None:
        assert device_of(model) == home()
        assert device_of({"net": model, "lr": 0.1}) == home()
        assert all(device_of(p) == home() for p in native.parameters(model))
        named = dict(choosing.backend().models.tensors_of(model))
        assert len(named) >= 6, "a dense layer's two and a batch norm's four"

    def test_a_model_already_there_is_returned(self, backend: str, native: Native, model: Any) -> None:
        before = native.parameters(model)
        assert to_device(model, home()) is to_device([model], home())[0] is model
        assert all(a is b for a, b in zip(before, native.parameters(model), strict=True))

    def test_a_model_stays_if_the_device_is_missing(self, backend: str, native: Native, model: Any) -> None:
        before = native.parameters(model)
        with pytest.raises(DeviceNotFoundError):
            to_device({"data": at_home(native.ones), "net": model}, "gpu:99")
        assert device_of(model) == home()
        assert all(a is b for a, b in zip(before, native.parameters(model), strict=True))

    @needs("exchange.to_numpy")
    def test_a_copied_model_has_own_parameters(self, backend: str, native: Native, model: Any) -> None:
        copied = to_device(model, home(), copy=True)
        assert copied is not model
        pairs = zip(native.parameters(model), native.parameters(copied), strict=True)
        assert all(a is not b and same_values(a, b) for a, b in pairs)

    def test_a_copied_tree_keeps_model_and_parameters(self, backend: str, native: Native, model: Any) -> None:
        copied = to_device({"net": model, "parameters": native.parameters(model)}, home(), copy=True)
        pairs = zip(native.parameters(copied["net"]), copied["parameters"], strict=True)
        assert all(inside is listed for inside, listed in pairs)

    @needs("unbuilt_model")
    def test_an_unbuilt_model_has_no_device(self, backend: str, native: Native) -> None:
        unbuilt = at_home(native.unbuilt_model)
        for ask in (device_of, devices_of, lambda m: to_device(m, home())):
            with pytest.raises(UnknownPlacementError):
                ask(unbuilt)
