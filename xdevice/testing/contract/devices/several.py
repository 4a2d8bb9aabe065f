"""Several GPUs, real or virtual: devices of their own, with memory of their own."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from xdevice import empty_cache, memory_stats, scope, to_numpy, try_all_gpus, try_gpu, using
from xdevice.errors import DeviceNotFoundError, VirtualDeviceError
from xdevice.hardware import devices as hardware
from xdevice.hardware.devices import as_device, count, synchronize
from xdevice.hardware.virtual import virtual_gpus
from xdevice.tensors.creation import arange, full, ones, rand, randn, seed, tensor, zeros
from xdevice.tensors.placement import device_of, to_device
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, all_need, all_on_several, home, needs
from xdevice.testing.contract.tensors.creation import FACTORIES
from xdevice.testing.native import Native
from xdevice.testing.own_process import huge_allocation


@all_on_several
@all_need("creation.ones", "exchange.to_numpy")
class SeveralDevices(Promises):
    def test_gpus_are_counted_listed_and_tried(self, backend: str) -> None:
        n = count("gpu")
        assert n >= 2
        gpus = [hardware.gpu(i) for i in range(n)]
        assert hardware.devices("gpu") == gpus == try_all_gpus()
        assert try_gpu(1) == SECOND
        assert {home(), *gpus} <= set(hardware.devices())

    def test_all_gpus_say_if_they_are_virtual(self, backend: str) -> None:
        found = [hardware.properties(gpu) for gpu in hardware.devices("gpu")]
        virtual = found[0]["virtual"]
        assert all(properties["virtual"] is virtual for properties in found)
        assert all(("virtual" in properties["name"]) is virtual for properties in found)
        assert repr(SECOND) == ("<virtual Device('gpu:1')>" if virtual else "Device('gpu:1')")
        assert str(SECOND) == "gpu:1"
        assert hardware.properties(home())["virtual"] is False

    @needs("virtual.enable")
    def test_virtual_gpus_are_fixed_per_process(self, backend: str) -> None:
        n = count("gpu")
        if hardware.properties(FIRST)["virtual"]:
            assert virtual_gpus(n) == hardware.devices("gpu")
            with pytest.raises(VirtualDeviceError, match=f"virtual_gpus\\({n + 1}\\)"):
                virtual_gpus(n + 1)
        else:
            with pytest.raises(VirtualDeviceError):
                virtual_gpus(n)
        assert count("gpu") == n

    def test_each_gpu_has_its_own_native_device(self, backend: str) -> None:
        devices = hardware.devices()
        natives = [hardware.native(device) for device in devices]
        assert all(a == b if i == j else a != b for i, a in enumerate(natives) for j, b in enumerate(natives))
        assert [as_device(native) for native in natives] == devices

    def test_a_gpu_pickles_as_itself(self, backend: str) -> None:
        assert pickle.loads(pickle.dumps(SECOND)) is SECOND

    def test_a_gpu_out_of_range_error_lists_gpus(self, backend: str) -> None:
        missing = hardware.gpu(count("gpu"))
        x = ones(2, device=SECOND)
        with pytest.raises(DeviceNotFoundError, match=".*".join(map(str, hardware.devices()))):
            to_device(x, missing)
        assert device_of(x) == SECOND

    @needs("creation.{name}")
    @pytest.mark.parametrize("name", FACTORIES)
    def test_factories_make_on_each_device(self, backend: str, native: Native, name: str) -> None:
        for device in (home(), FIRST, SECOND, "cuda:1", "/GPU:0", hardware.native(SECOND)):
            made = FACTORIES[name](device=device)
            assert device_of(made) == as_device(device)
            assert type(made) is type(native.ones())

    @needs("creation.arange", "creation.full", "creation.tensor", "creation.zeros")
    def test_values_are_equal_on_each_device(self, backend: str) -> None:
        for device in (FIRST, SECOND):
            assert to_numpy(zeros((2, 2), device=device)).tolist() == [[0, 0], [0, 0]]
            assert to_numpy(full((2,), 2.5, device=device)).tolist() == [2.5, 2.5]
            assert to_numpy(arange(4, device=device)).tolist() == [0, 1, 2, 3]
            assert to_numpy(tensor([[1, 2], [3, 4]], device=device)).tolist() == [[1, 2], [3, 4]]
            assert to_numpy(tensor(np.arange(6.0)[::-2], device=device)).tolist() == [5, 3, 1]

    @needs("creation.zeros")
    def test_scopes_on_two_devices_nest(self, backend: str, native: Native) -> None:
        before = device_of(native.ones())
        with hardware.gpu(1):
            with scope("gpu:0"):
                assert {device_of(native.ones()), device_of(ones(2))} == {FIRST}
                assert device_of(ones(2, device=SECOND)) == SECOND
            assert {device_of(native.ones()), device_of(zeros(2))} == {SECOND}
            with home():
                assert {device_of(native.ones()), device_of(zeros(2))} == {home()}
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
                for made in (x + x, x * 2, x @ x, x[0], x + 1):
                    assert device_of(made) == device
            assert to_numpy(x).tolist() == [[1, 2], [3, 4]]

    @needs("creation.seed", "creation.rand", "creation.randn")
    def test_a_seed_covers_every_device(self, backend: str) -> None:
        def drawn() -> list[Any]:
            seed(7)
            makers, devices = (rand, randn), (home(), FIRST, SECOND)
            return [to_numpy(make((50,), device=device)) for device in devices for make in makers]

        first, again = drawn(), drawn()
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert all(len(set(values.tolist())) > 40 for values in first)

    def test_synchronize_takes_any_devices(self, backend: str) -> None:
        x = ones((50, 50), device=SECOND)
        with SECOND:
            y = x @ x
        synchronize(SECOND)
        synchronize("gpu:0", hardware.native(SECOND))
        synchronize()
        assert to_numpy(y).sum() == 50**3

    def test_a_huge_gpu_allocation_is_out_of_memory(self, backend: str) -> None:
        assert huge_allocation(backend, str(SECOND)) == "out of memory"

    @needs("memory.empty_cache", "memory.memory_stats")
    def test_memory_is_told_of_each_device(self, backend: str) -> None:
        gc.collect()
        before: Any = {device: memory_stats(device) for device in (FIRST, SECOND)}
        x = ones((2**20,), dtype="float32", device=SECOND)
        synchronize()
        for device, taken in ((FIRST, 0), (SECOND, 4 * 2**20)):
            stats: Any = memory_stats(device)
            assert set(stats) - {"holders"} == {"total", "free", "allocated", "reserved", "peak"}
            assert stats["free"] is None or stats["total"] is None or 0 < stats["free"] <= stats["total"]
            now, then = stats["allocated"], before[device]["allocated"]
            if now is not None and then is not None:
                assert abs(now - then - taken) < 2**20
        empty_cache(SECOND)
        assert to_numpy(x).sum() == 2**20
