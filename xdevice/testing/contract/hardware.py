"""What devices there are: counting, naming and choosing them; several GPUs, real or virtual, apart from one another."""

import operator
import os
import pickle
import re
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
from xdevice.hardware import devices as hardware
from xdevice.hardware.devices import (
    as_device,
    count,
    cpu,
    devices,
    gpu,
    num_gpus,
    properties,
    synchronize,
)
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
    @pytest.mark.parametrize("ask", [count, devices])
    def test_a_kind_is_a_word(self, backend: str, kind: Any, ask: Any) -> None:
        raised(DeviceSpellingError)(ask, kind)

    @needs("cpu")
    def test_try_gpu_falls_back_only_if_needed(self, backend: str) -> None:
        there = count("gpu")
        assert [try_gpu(i) for i in (*range(there), there, 10**6)] == [
            *map(gpu, range(there)),
            cpu(),
            cpu(),
        ]

    @needs("cpu")
    def test_try_all_gpus_is_never_empty(self, backend: str) -> None:
        assert try_all_gpus() == (devices("gpu") or [cpu()])

    @pytest.mark.parametrize(
        "index", [-1, 2**31, 10**30, 10**4400], ids=["-1", "2**31", "10**30", "10**4400"]
    )
    def test_try_gpu_rejects_impossible_indices(self, backend: str, index: Any) -> None:
        raised(DeviceSpellingError)(try_gpu, index)

    @pytest.mark.parametrize("index", [1.0, True, "0", None])
    def test_try_gpu_rejects_non_integers(self, backend: str, index: Any) -> None:
        assert isinstance(
            raised(DeviceTypeError, re.escape(repr(index)))(try_gpu, index), TypeError
        )

    def test_devices_round_trip_through_native(self, backend: str) -> None:
        for device in devices():
            native = hardware.native(device)
            assert as_device(native) is device
            assert hardware.native(native) == hardware.native(str(device), backend) == native

    @needs("native_devices")
    def test_native_devices_are_understood(self, backend: str, native: Native) -> None:
        assert all(
            as_device(given) == Device(expected) for given, expected in native.native_devices()
        )

    @needs("native_devices")
    def test_a_device_equals_its_native_device(self, backend: str, native: Native) -> None:
        for one, expected in (
            *native.native_devices(),
            *((hardware.native(d), str(d)) for d in devices()),
        ):
            here, elsewhere = Device(expected), Device(Device(expected).kind, 63)
            assert here == one
            assert not operator.ne(here, one)
            assert elsewhere != one
            if one.__eq__(here) is NotImplemented:  # else the framework has the only say
                assert one == here
                assert one != elsewhere

    @needs("creation.ones")
    def test_a_device_equals_its_spelling(self, backend: str) -> None:
        for device in devices():
            assert device == str(device)
            assert str(device) == device
            assert device not in ("gpu:x", "", f"{device.kind}:63")
            assert device_of(ones(1, device=device)) == str(device)

    @needs("creation.ones", "creation.zeros", "memory.empty_cache", "memory.memory_stats")
    def test_a_missing_device_error_lists_devices(self, backend: str) -> None:
        missing, x = f"gpu:{count('gpu')}", ones(2)
        for use in (hardware.native, properties, synchronize, memory_stats, empty_cache):
            raised(DeviceNotFoundError, rf"{backend}.*{home()}")(use, missing)
        for device in (missing, "gpu:99", "cpu:99", "quantum"):
            for place in (
                lambda d: zeros(3, device=d),
                lambda d: to_device(x, d),
                lambda d: scope(d).__enter__(),
            ):
                assert isinstance(
                    raised(DeviceNotFoundError, rf"{backend}.*{home()}")(place, device), LookupError
                )

    @needs("cpu", "creation.zeros")
    def test_a_missing_gpu_error_names_try_gpu(self, backend: str) -> None:
        missing = count("gpu")
        raised(DeviceNotFoundError, rf"use try_gpu\({missing}\) to fall back to the CPU")(
            zeros, 1, device=gpu(missing)
        )

    @needs("creation.zeros")
    @pytest.mark.parametrize("nonsense", [0, 1.5, object(), [], "gpu:x", ""])
    def test_a_bad_device_name_is_an_error(self, backend: str, nonsense: Any) -> None:
        raised(DeviceSpellingError)(zeros, 3, device=nonsense)

    def test_properties_are_known_or_none(self, backend: str) -> None:
        for device, found in zip(devices(), map(properties, devices()), strict=True):
            assert isinstance(found["name"], str)
            assert found["name"]
            assert found["total_memory"] is None or found["total_memory"] > 0
            assert found["virtual"] is False or (found["virtual"] is True and device.kind == "gpu")

    @needs("creation.ones", "memory.memory_stats")
    def test_queries_change_nothing(self, backend: str) -> None:
        before = dict(os.environ)
        default = device_of(ones(3))
        _ = devices(), try_all_gpus(), memory_stats(home()), properties(home())
        assert (dict(os.environ), device_of(ones(3))) == (before, default)

    def test_the_build_is_told(self, backend: str) -> None:
        build, framework = choosing.backend().hardware.build(), choosing.backend().framework
        assert build["version"] == getattr(framework, "__version__", build["version"])
        assert build["compute"] in ("cpu", "cuda", "rocm", "mps", "xpu", "tpu")

    def test_devices_pickle_across_frameworks(self, backend: str) -> None:
        assert all(pickle.loads(pickle.dumps(device)) is device for device in devices())

    @needs("creation.ones", "memory.memory_stats")
    @pytest.mark.gpu(1)
    def test_a_real_gpu_holds_tensors(self, backend: str) -> None:
        x = ones((2, 3), device=try_gpu())
        assert (device_of(x), device_of(to_device(x, home()))) == (gpu(), home())
        total = memory_stats("gpu").get("total")
        assert total is None or total > 2**30

    @needs("creation.ones")
    @pytest.mark.gpu(2)
    def test_two_real_gpus_hold_tensors_apart(self, backend: str) -> None:
        x = ones((2, 3), device="gpu:0")
        assert (device_of(x), device_of(to_device(x, "gpu:1"))) == (gpu(0), gpu(1))


@needs("creation.ones", "exchange.to_numpy", gpus=2)
class SeveralDevices(Promises):
    def test_gpus_are_counted_listed_and_tried(self, backend: str) -> None:
        gpus = [gpu(i) for i in range(count("gpu"))]
        assert devices("gpu") == gpus == try_all_gpus()
        assert gpus[1] == try_gpu(1) == SECOND
        assert {home(), *gpus} <= set(devices())

    def test_all_gpus_say_if_they_are_virtual(self, backend: str) -> None:
        found = [properties(gpu) for gpu in devices("gpu")]
        virtual = found[0]["virtual"]
        assert all(
            each["virtual"] is virtual and ("virtual" in each["name"]) is virtual for each in found
        )
        assert (repr(SECOND), str(SECOND)) == (
            "<virtual Device('gpu:1')>" if virtual else "Device('gpu:1')",
            "gpu:1",
        )
        assert properties(home())["virtual"] is False

    @needs("virtual.enable")
    def test_virtual_gpus_are_fixed_per_process(self, backend: str) -> None:
        n, virtual = count("gpu"), properties(FIRST)["virtual"]
        if virtual:
            assert virtual_gpus(n) == devices("gpu")
        raised(VirtualDeviceError, f"virtual_gpus\\({n + 1}\\)" if virtual else None)(
            virtual_gpus, n + virtual
        )
        assert count("gpu") == n

    def test_each_gpu_has_its_own_native_device(self, backend: str) -> None:
        natives = [hardware.native(device) for device in devices()]
        assert all(
            a == b if i == j else a != b
            for i, a in enumerate(natives)
            for j, b in enumerate(natives)
        )
        assert [as_device(native) for native in natives] == devices()

    def test_a_gpu_out_of_range_error_lists_gpus(self, backend: str) -> None:
        x = ones(2, device=SECOND)
        raised(DeviceNotFoundError, ".*".join(map(str, devices())))(to_device, x, gpu(count("gpu")))
        assert device_of(x) == SECOND

    @needs("creation.zeros")
    def test_scopes_on_two_devices_nest(self, backend: str, native: Native) -> None:
        before = device_of(native.ones())
        with gpu(1):
            with scope("gpu:0"):
                assert device_of(native.ones()) == device_of(ones(2)) == FIRST
                assert device_of(ones(2, device=SECOND)) == SECOND
            assert device_of(native.ones()) == device_of(zeros(2)) == SECOND
            with home():
                assert device_of(native.ones()) == device_of(zeros(2)) == home()
            assert device_of(native.ones()) == SECOND
        assert device_of(native.ones()) == before

    def test_the_scope_of_a_thread_is_its_own(self, backend: str) -> None:
        def work() -> Any:
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
                assert {device_of(made) for made in (x + x, x * 2, x @ x, x[0], x + 1)} == {device}
            assert to_numpy(x).tolist() == [[1, 2], [3, 4]]

    def test_synchronize_takes_any_devices(self, backend: str) -> None:
        x = ones((50, 50), device=SECOND)
        with SECOND:
            y = x @ x
        for given in ([SECOND], ["gpu:0", hardware.native(SECOND)], []):
            synchronize(*given)
        assert to_numpy(y).sum() == 50**3
