"""Devices: counting, naming and choosing them, also among several GPUs."""

import itertools
import operator
import os
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from xdevice import (
    Device,
    device_of,
    empty_cache,
    memory_stats,
    scope,
    to_device,
    try_all_gpus,
    try_gpu,
    using,
)
from xdevice.errors import (
    DeviceNotFoundError,
    DeviceSpellingError,
    DeviceTypeError,
    VirtualDeviceError,
)
from xdevice.framework import choosing
from xdevice.hardware import questions as hardware
from xdevice.hardware.devices import as_device, cpu, gpu
from xdevice.hardware.questions import count, devices, num_gpus, properties, synchronize
from xdevice.hardware.virtual import virtual_gpus
from xdevice.tensors.creation import ones, tensor, zeros
from xdevice.tensors.exchange import to_numpy
from xdevice.testing import Native
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, raised


class Hardware(Promises):
    @needs("cpu")
    def test_the_cpu_is_always_there(self, backend: str) -> None:
        assert count("cpu") >= 1
        assert devices("cpu")[0] == cpu() in devices()

    def test_counting_agrees_with_listing(self, backend: str) -> None:
        for kind in ("cpu", "gpu", "tpu"):
            assert devices(kind) == [Device(kind, i) for i in range(count(kind))]
        assert num_gpus() == count("gpu") == count() == count("cuda")

    def test_missing_kinds_count_zero(self, backend: str) -> None:
        assert (count("quantum"), devices("quantum")) == (0, [])

    @pytest.mark.parametrize("kind", ["cuda:0", "gpu:0", "", "x y", "gpu()", "gpus", "cudaa"])
    @pytest.mark.parametrize("function", [count, devices])
    def test_a_malformed_kind_is_an_error(
        self, backend: str, kind: str, function: Callable[[str], object]
    ) -> None:
        raised(DeviceSpellingError)(function, kind)

    @needs("cpu")
    def test_try_gpu_falls_back_only_if_needed(self, backend: str) -> None:
        number = count("gpu")
        for index in range(number):
            assert try_gpu(index) == gpu(index)
        for index in (number, 10**6):
            assert try_gpu(index) == cpu()

    @needs("cpu")
    def test_try_all_gpus_is_never_empty(self, backend: str) -> None:
        assert try_all_gpus() == (devices("gpu") or [cpu()])

    @pytest.mark.parametrize(
        "index", [-1, 2**31, 10**30, 10**4400], ids=["-1", "2**31", "10**30", "10**4400"]
    )
    def test_try_gpu_rejects_impossible_indices(self, backend: str, index: int) -> None:
        raised(DeviceSpellingError)(try_gpu, index)

    @pytest.mark.parametrize("index", [1.0, True, "0", None])
    def test_try_gpu_rejects_non_integers(self, backend: str, index: Any) -> None:
        error = raised(DeviceTypeError, re.escape(repr(index)))(try_gpu, index)
        assert isinstance(error, TypeError)

    def test_devices_round_trip_through_native(self, backend: str) -> None:
        for device in devices():
            native = hardware.native(device)
            assert as_device(native) is device
            assert hardware.native(native) == hardware.native(str(device), backend) == native

    @needs("native_devices")
    def test_native_devices_are_understood(self, backend: str, native: Native) -> None:
        for native_device, spelling in native.native_devices():
            assert as_device(native_device) == Device(spelling)

    @needs("native_devices")
    def test_a_device_equals_its_native_device(self, backend: str, native: Native) -> None:
        pairs = [(hardware.native(device), str(device)) for device in devices()]
        for native_device, spelling in (*native.native_devices(), *pairs):
            device = Device(spelling)
            other_device = Device(device.kind, 63)
            assert device == native_device
            assert not operator.ne(device, native_device)
            assert other_device != native_device
            # With the operands swapped, the framework's own comparison decides
            # if it has one.
            if native_device.__eq__(device) is NotImplemented:
                assert native_device == device
                assert native_device != other_device

    @needs("creation.ones")
    def test_a_device_equals_its_spelling(self, backend: str) -> None:
        for device in devices():
            assert device == str(device)
            assert str(device) == device
            assert device not in ("gpu:x", "", f"{device.kind}:63")
            assert device_of(ones(1, device=device)) == str(device)

    @needs("creation.ones", "creation.zeros", "memory.empty_cache", "memory.memory_stats")
    def test_a_missing_device_error_lists_devices(self, backend: str) -> None:
        x = ones(2)
        missing = f"gpu:{count('gpu')}"
        check = raised(DeviceNotFoundError, rf"{backend}.*{home()}")

        def open_scope(device: str) -> None:
            with scope(device):
                pass

        for function in (hardware.native, properties, synchronize, memory_stats, empty_cache):
            check(function, missing)
        for device in (missing, "gpu:99", "cpu:99", "quantum"):
            for error in (
                check(zeros, 3, device=device),
                check(to_device, x, device),
                check(open_scope, device),
            ):
                assert isinstance(error, LookupError)

    @needs("cpu", "creation.zeros")
    def test_a_missing_gpu_error_names_try_gpu(self, backend: str) -> None:
        missing = count("gpu")
        # a framework without virtual GPUs says so where others have them
        hint = rf"use try_gpu\({missing}\) to fall back to the CPU|has no virtual GPUs"
        raised(DeviceNotFoundError, hint)(zeros, 1, device=gpu(missing))

    @needs("creation.zeros")
    @pytest.mark.parametrize("device", [0, 1.5, object(), [], "gpu:x", ""])
    def test_a_bad_device_name_is_an_error(self, backend: str, device: Any) -> None:
        raised(DeviceSpellingError)(zeros, 3, device=device)

    def test_properties_are_known_or_none(self, backend: str) -> None:
        for device in devices():
            facts = properties(device)
            assert isinstance(facts["name"], str)
            assert facts["name"]
            assert facts["total_memory"] is None or facts["total_memory"] > 0
            assert isinstance(facts["virtual"], bool)
            assert device.kind == "gpu" or not facts["virtual"]

    @needs("creation.ones", "memory.memory_stats")
    def test_queries_change_nothing(self, backend: str) -> None:
        environment = dict(os.environ)
        default = device_of(ones(3))
        devices()
        try_all_gpus()
        memory_stats(home())
        properties(home())
        assert dict(os.environ) == environment
        assert device_of(ones(3)) == default

    def test_the_build_names_its_version_and_compute(self, backend: str) -> None:
        build = choosing.backend().hardware.build()
        framework = choosing.backend().framework
        assert build["version"] == getattr(framework, "__version__", build["version"])
        assert build["compute"] in ("cpu", "cuda", "rocm", "mps", "xpu", "tpu")

    def test_devices_pickle_across_frameworks(self, backend: str) -> None:
        assert all(pickle.loads(pickle.dumps(device)) is device for device in devices())

    @needs("creation.ones", "memory.memory_stats")
    @pytest.mark.gpu(1)
    def test_a_real_gpu_holds_tensors(self, backend: str) -> None:
        x = ones((2, 3), device=try_gpu())
        assert device_of(x) == gpu()
        assert device_of(to_device(x, home())) == home()
        total = memory_stats("gpu").get("total")
        assert total is None or total > 2**30

    @needs("creation.ones")
    @pytest.mark.gpu(2)
    def test_two_real_gpus_hold_tensors_apart(self, backend: str) -> None:
        x = ones((2, 3), device="gpu:0")
        assert device_of(x) == gpu(0)
        assert device_of(to_device(x, "gpu:1")) == gpu(1)


@needs("creation.ones", "exchange.to_numpy", gpus=2)
class SeveralDevices(Promises):
    def test_gpus_are_counted_listed_and_chosen(self, backend: str) -> None:
        gpus = [gpu(i) for i in range(count("gpu"))]
        assert devices("gpu") == gpus == try_all_gpus()
        assert gpus[1] == try_gpu(1) == SECOND
        assert {home(), *gpus} <= set(devices())

    def test_all_gpus_say_if_they_are_virtual(self, backend: str) -> None:
        virtual = properties(FIRST)["virtual"]
        for device in devices("gpu"):
            assert properties(device)["virtual"] is virtual
            assert ("virtual" in properties(device)["name"]) is virtual
        assert str(SECOND) == "gpu:1"
        assert repr(SECOND) == "Device('gpu:1')"
        assert properties(home())["virtual"] is False

    @needs("virtual.enable")
    def test_virtual_gpus_are_fixed_per_process(self, backend: str) -> None:
        number = count("gpu")
        if properties(FIRST)["virtual"]:
            assert virtual_gpus(number) == devices("gpu")
            message = rf"virtual_gpus\({number + 1}\)"
            raised(VirtualDeviceError, message)(virtual_gpus, number + 1)
        else:
            raised(VirtualDeviceError)(virtual_gpus, number)
        assert count("gpu") == number

    def test_each_gpu_has_its_own_native_device(self, backend: str) -> None:
        native_devices = [hardware.native(device) for device in devices()]
        for first, second in itertools.combinations(native_devices, 2):
            assert first != second
        for device, native_device in zip(devices(), native_devices, strict=True):
            assert hardware.native(device) == native_device
            assert as_device(native_device) == device

    def test_a_gpu_out_of_range_error_lists_gpus(self, backend: str) -> None:
        x = ones(2, device=SECOND)
        raised(DeviceNotFoundError, ".*".join(map(str, devices())))(to_device, x, gpu(count("gpu")))
        assert device_of(x) == SECOND

    @needs("creation.zeros")
    def test_scopes_on_two_devices_nest(self, backend: str, native: Native) -> None:
        default = device_of(native.ones())
        with gpu(1):
            with scope("gpu:0"):
                assert device_of(native.ones()) == device_of(ones(2)) == FIRST
                assert device_of(ones(2, device=SECOND)) == SECOND
            assert device_of(native.ones()) == device_of(zeros(2)) == SECOND
            with home():
                assert device_of(native.ones()) == device_of(zeros(2)) == home()
            assert device_of(native.ones()) == SECOND
        assert device_of(native.ones()) == default

    def test_the_scope_of_a_thread_is_its_own(self, backend: str) -> None:
        def work() -> Device:
            with using(backend), SECOND:
                return device_of(ones(2))

        with FIRST, ThreadPoolExecutor(1) as pool:
            assert pool.submit(work).result() == SECOND
            assert device_of(ones(2)) == FIRST

    @needs("creation.tensor")
    def test_a_computation_stays_on_its_device(self, backend: str) -> None:
        for device in (FIRST, SECOND):
            x = tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
            with device:
                for result in (x + x, x * 2, x @ x, x[0, ...], x + 1):
                    assert device_of(result) == device
            assert to_numpy(x).tolist() == [[1, 2], [3, 4]]

    def test_synchronize_takes_any_devices(self, backend: str) -> None:
        x = ones((50, 50), device=SECOND)
        with SECOND:
            y = x @ x
        synchronize(SECOND)
        synchronize("gpu:0", hardware.native(SECOND))
        synchronize()
        assert to_numpy(y).sum() == 50**3
