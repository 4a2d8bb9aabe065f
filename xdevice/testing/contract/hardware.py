"""What devices there are: counting, naming and choosing them."""

from __future__ import annotations

import operator
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import xdevice
from xdevice import Device
from xdevice.testing.contract.promises import Promises, needs

if TYPE_CHECKING:
    from xdevice.testing.native import Native


class Hardware(Promises):
    """Counting, naming and choosing devices."""

    def test_the_cpu_is_always_there(self, backend: str) -> None:
        assert xdevice.count("cpu") >= 1
        assert xdevice.cpu() in xdevice.devices()
        assert xdevice.devices("cpu")[0] == xdevice.cpu()

    def test_counting_agrees_with_listing(self, backend: str) -> None:
        for kind in ("cpu", "gpu", "tpu"):
            assert xdevice.devices(kind) == [Device(kind, i) for i in range(xdevice.count(kind))]
        assert xdevice.num_gpus() == xdevice.count("gpu") == xdevice.count() == xdevice.count("cuda")

    def test_a_kind_that_is_not_there_counts_zero(self, backend: str) -> None:
        assert xdevice.count("quantum") == 0
        assert xdevice.devices("quantum") == []

    @pytest.mark.parametrize("kind", ["cuda:0", "gpu:0", "", "x y", "gpu()"])
    def test_a_kind_is_a_word(self, backend: str, kind: Any) -> None:
        for ask in (xdevice.count, xdevice.devices):
            with pytest.raises(xdevice.DeviceSpellingError):
                ask(kind)

    def test_try_gpu_falls_back_to_the_cpu_and_only_then(self, backend: str) -> None:
        there = xdevice.count("gpu")
        for i in range(there):
            assert xdevice.try_gpu(i) == xdevice.gpu(i)
        assert xdevice.try_gpu(there) == xdevice.cpu()
        assert xdevice.try_gpu(10**6) == xdevice.cpu()

    def test_try_all_gpus_is_never_empty(self, backend: str) -> None:
        assert xdevice.try_all_gpus() == (xdevice.devices("gpu") or [xdevice.cpu()])

    @pytest.mark.parametrize("index", [-1, 2**31, 10**30, 10**4400], ids=["-1", "2**31", "10**30", "10**4400"])
    def test_try_gpu_rejects_an_impossible_index(self, backend: str, index: Any) -> None:
        with pytest.raises(xdevice.DeviceSpellingError):
            xdevice.try_gpu(index)

    @pytest.mark.parametrize("index", [1.0, True, "0", None])
    def test_try_gpu_rejects_what_is_not_an_integer(self, backend: str, index: Any) -> None:
        with pytest.raises(xdevice.DeviceTypeError) as error:
            xdevice.try_gpu(index)
        assert isinstance(error.value, TypeError)
        assert repr(index) in str(error.value)

    def test_every_device_round_trips_through_its_native_one(self, backend: str) -> None:
        for device in xdevice.devices():
            native = xdevice.native(device)
            assert xdevice.as_device(native) is device
            assert xdevice.native(native) == native
            assert xdevice.native(str(device), backend) == native

    @needs("native_devices")
    def test_native_devices_are_understood(self, backend: str, native: Native) -> None:
        for given, expected in native.native_devices():
            assert xdevice.as_device(given) == Device(expected)

    @needs("native_devices")
    def test_a_device_equals_the_native_device_that_it_names(self, backend: str, native: Native) -> None:
        given = [*native.native_devices(), *((xdevice.native(d), str(d)) for d in xdevice.devices())]
        for one, expected in given:
            here, elsewhere = Device(expected), Device(Device(expected).kind, 63)
            assert here == one and not operator.ne(here, one)
            assert elsewhere != one
            if one.__eq__(here) is NotImplemented:  # else the framework has the only say
                assert one == here and one != elsewhere

    def test_a_device_equals_the_string_that_names_it(self, backend: str) -> None:
        for device in xdevice.devices():
            assert device == str(device) and str(device) == device
            assert device not in ("gpu:x", "", f"{device.kind}:63")
            assert xdevice.device_of(xdevice.ones(1, device=device)) == str(device)

    def test_a_missing_device_cannot_be_used_and_the_error_lists_what_exists(self, backend: str) -> None:
        missing = f"gpu:{xdevice.count('gpu')}"
        x = xdevice.ones(2)
        for use in (
            lambda: xdevice.native(missing),
            lambda: xdevice.properties(missing),
            lambda: xdevice.synchronize(missing),
            lambda: xdevice.memory_stats(missing),
            lambda: xdevice.empty_cache(missing),
            lambda: xdevice.zeros(3, device=missing),
            lambda: xdevice.to_device(x, missing),
            lambda: xdevice.scope(missing).__enter__(),
            lambda: xdevice.to_device(x, "gpu:99"),
            lambda: xdevice.to_device(x, "cpu:99"),
            lambda: xdevice.to_device(x, "quantum"),
        ):
            with pytest.raises(xdevice.DeviceNotFoundError) as error:
                use()
            assert isinstance(error.value, LookupError)
            assert backend in str(error.value)
            assert "cpu:0" in str(error.value)

    def test_an_error_for_a_missing_gpu_names_the_function_that_falls_back(self, backend: str) -> None:
        missing = xdevice.count("gpu")
        with pytest.raises(xdevice.DeviceNotFoundError, match=rf"use try_gpu\({missing}\) to fall back to the CPU"):
            xdevice.zeros(1, device=xdevice.gpu(missing))

    @pytest.mark.parametrize("nonsense", [0, 1.5, None, object(), [], "gpu:x", ""])
    def test_what_does_not_name_a_device_is_an_error(self, backend: str, nonsense: Any) -> None:
        with pytest.raises(xdevice.DeviceSpellingError):
            xdevice.zeros(3, device=nonsense if nonsense is not None else 0)

    def test_properties_are_known_or_none(self, backend: str) -> None:
        for device in xdevice.devices():
            found = xdevice.properties(device)
            assert isinstance(found["name"], str) and found["name"]
            assert found["total_memory"] is None or found["total_memory"] > 0
            assert found["virtual"] is False or (found["virtual"] is True and device.kind == "gpu")

    def test_asking_what_there_is_changes_nothing(self, backend: str) -> None:
        before = dict(os.environ)
        x = xdevice.ones(3)
        _ = xdevice.devices(), xdevice.try_all_gpus(), xdevice.memory_stats("cpu"), xdevice.properties("cpu")
        assert dict(os.environ) == before
        assert xdevice.device_of(xdevice.ones(3)) == xdevice.device_of(x)

    def test_the_build_is_told(self, backend: str) -> None:
        build, framework = xdevice.backend().hardware.build(), xdevice.backend().framework
        assert build["version"] == getattr(framework, "__version__", build["version"])
        assert build["compute"] in ("cpu", "cuda", "rocm", "mps", "xpu", "tpu")

    def test_a_device_is_the_same_in_another_process_and_framework(self, backend: str) -> None:
        for device in xdevice.devices():
            assert pickle.loads(pickle.dumps(device)) is device

    @pytest.mark.gpu(1)
    def test_a_real_gpu_holds_tensors(self, backend: str) -> None:
        x = xdevice.ones((2, 3), device=xdevice.try_gpu())
        assert xdevice.device_of(x) == xdevice.gpu()
        assert xdevice.device_of(xdevice.to_device(x, "cpu")) == xdevice.cpu()
        total = xdevice.memory_stats("gpu").get("total")
        assert total is None or total > 2**30

    @pytest.mark.gpu(2)
    def test_two_real_gpus_hold_tensors_apart(self, backend: str) -> None:
        x = xdevice.ones((2, 3), device="gpu:0")
        z = xdevice.to_device(x, "gpu:1")
        assert (xdevice.device_of(x), xdevice.device_of(z)) == (xdevice.gpu(0), xdevice.gpu(1))
