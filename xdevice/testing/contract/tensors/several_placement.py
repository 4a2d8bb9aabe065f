"""Tensors, trees and models on several GPUs, real or virtual: told apart, moved, and never aliased."""

from typing import Any

import numpy as np
import pytest

from xdevice import check_same_device, cpu, device_of, devices_of, is_same_device, to_device, to_numpy
from xdevice.errors import CopyNeededError, MixedDeviceError
from xdevice.framework import choosing
from xdevice.hardware import devices as hardware
from xdevice.tensors.creation import full, ones, tensor
from xdevice.testing import Native
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, at_home, home, needs, same_values, values
from xdevice.testing.contract.tensors.trees import shape_of, trees

WAYS = [(a, b) for a in (cpu(), FIRST, SECOND) for b in (cpu(), FIRST, SECOND) if a is not b]
EACH_WAY = pytest.mark.parametrize(("source", "target"), WAYS, ids=[f"{a}-{b}" for a, b in WAYS])


@needs("creation.ones", "exchange.to_numpy", gpus=2)
class SeveralPlacements(Promises):
    @EACH_WAY
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool"])
    def test_a_move_keeps_values_and_dtype(self, backend: str, source: Any, target: Any, dtype: str) -> None:
        for shape in ((), (0,), (2, 3)):
            x = tensor(np.ones(shape, dtype), device=source)
            moved = to_device(x, target)
            assert (device_of(x), device_of(moved)) == (source, target)
            assert type(moved) is type(x)
            assert to_numpy(moved).dtype == np.dtype(dtype)
            assert same_values(x, moved)

    @EACH_WAY
    @needs("address")
    def test_each_device_has_memory_of_its_own(self, backend: str, native: Native, source: Any, target: Any) -> None:
        x = ones((64,), device=source)
        moved = to_device(x, target)
        copied = to_device(moved, target, copy=True)
        assert device_of(copied) == target
        assert len({native.address(tensor) for tensor in (x, moved, copied)}) == 3

    @EACH_WAY
    @needs("write")
    def test_writes_stay_on_their_device(self, backend: str, native: Native, source: Any, target: Any) -> None:
        x = ones((64,), device=source)
        moved = to_device(x, target)
        native.write(x, 3)
        assert to_numpy(moved).sum() == 64
        native.write(moved, 2)
        assert [to_numpy(tensor).sum() for tensor in (x, moved)] == [3 * 64, 2 * 64]
        assert (device_of(x), device_of(moved)) == (source, target)

    def test_already_on_the_gpu_is_returned(self, backend: str) -> None:
        x = ones(3, device=SECOND)
        for spelling in (SECOND, "gpu:1", "CUDA:1", "/device:GPU:1", hardware.native(SECOND)):
            assert to_device(x, spelling) is to_device(x, spelling, copy=False) is x
        tree = {"x": x, "y": [x, 1]}
        assert to_device(tree, SECOND) is tree

    @EACH_WAY
    def test_copy_false_across_devices_is_an_error(self, backend: str, source: Any, target: Any) -> None:
        x = ones(3, device=source)
        with pytest.raises(CopyNeededError):
            to_device([x], target, copy=False)
        assert device_of(x) == source

    @needs("gradient")
    def test_gradients_flow_across_two_devices(self, backend: str, native: Native) -> None:
        def around(x: Any) -> Any:
            return to_device(to_device(to_device(x, FIRST), SECOND), home())

        assert at_home(lambda: native.gradient(around)) == [2.0, 2.0, 2.0]

    @needs("cpu")
    def test_devices_of_lists_several(self, backend: str) -> None:
        x, y, z = (ones(2, device=device) for device in (FIRST, SECOND, cpu()))
        assert devices_of({"x": x, "all": [y, (z,)]}) == {FIRST, SECOND, cpu()}
        assert not any(is_same_device(*pair) for pair in ((x, y), (x, z), ([x, x], {"y": y})))
        assert is_same_device(y, [y], SECOND, "gpu:1", hardware.native(SECOND))
        assert check_same_device(y, {"y": y}) is SECOND

    def test_mixed_devices_error_names_paths(self, backend: str) -> None:
        x, y = ones(2, device=FIRST), ones(2, device=SECOND)
        with pytest.raises(MixedDeviceError, match=r"gpu:0: argument 0\['a'\]\[1\].*gpu:1: argument 1") as error:
            check_same_device({"a": [None, x]}, y)
        assert error.value.devices == {FIRST, SECOND}
        with pytest.raises(MixedDeviceError, match=r"gpu:0: \['x'\].*gpu:1: \['y'\]\[0\]"):
            device_of({"x": x, "y": [y]})

    @pytest.mark.parametrize("which", range(17))
    def test_every_kind_of_tree_moves(self, backend: str, which: int) -> None:
        tree = trees(ones((2, 3), device=FIRST))[which]
        moved = to_device(tree, SECOND)
        assert (device_of(tree), device_of(moved)) == (FIRST, SECOND)
        assert type(moved) is type(tree)
        assert shape_of(moved) == shape_of(tree)

    @needs("creation.full")
    def test_a_spread_tree_is_gathered(self, backend: str) -> None:
        x, y, z = (full((2,), float(i), device=device) for i, device in enumerate((FIRST, SECOND, home())))
        tree: Any = {"x": x, "again": [x, {"y": y}], "z": (z, "text")}
        moved = to_device(tree, SECOND)
        assert check_same_device(moved) is SECOND
        assert moved["again"][1]["y"] is y
        assert moved["x"] is moved["again"][0]
        assert values([moved["x"], moved["z"][0]]) == [[0, 0], [2, 2]]
        assert devices_of(tree) == {FIRST, SECOND, home()}

    @needs("parameter")
    def test_a_parameter_moves_with_its_values(self, backend: str, native: Native) -> None:
        parameter = at_home(native.parameter)
        before = values(parameter)
        for device in (FIRST, SECOND, home()):
            moved = to_device(parameter, device)
            assert (device_of(moved), values(moved)) == (device, before)

    @needs("model")
    def test_a_model_moves_whole_and_back(self, backend: str, native: Native, model: Any) -> None:
        before = values(list(native.parameters(model)))
        for device in (FIRST, SECOND, home()):
            model = to_device(model, device)
            assert devices_of(model) == {device}
            assert {device_of(tensor) for _, tensor in choosing.backend().models.tensors_of(model)} == {device}
            assert values(list(native.parameters(model))) == before

    @needs("model", "output")
    def test_keep_restores_a_moved_model(self, backend: str, native: Native, model: Any) -> None:
        models, numbers = choosing.backend().models, values(list(native.parameters(model)))
        for source, target in ((home(), FIRST), (FIRST, SECOND), (SECOND, home())):
            to_device(model, source)
            before, put_back = dict(models.tensors_of(model)), models.keep(model)
            to_device(model, target)
            put_back()
            after = dict(models.tensors_of(model))
            assert devices_of(model) == {source}
            assert before.keys() == after.keys() and all(after[name] is before[name] for name in before)
            assert values(list(native.parameters(model))) == numbers
        with SECOND:
            assert device_of(native.output(model, ones((4, 3)))) == SECOND  # it computes where it was put back

    @needs("model", "output")
    def test_a_model_computes_where_it_is(self, backend: str, native: Native, model: Any) -> None:
        data = np.arange(12, dtype="float32").reshape(4, 3)
        with home():
            expected = to_numpy(native.output(model, tensor(data)))
        for device in (FIRST, SECOND):
            model = to_device(model, device)
            with device:
                made = native.output(model, tensor(data))
            assert device_of(made) == device
            assert np.allclose(to_numpy(made), expected, atol=1e-5)

    @needs("model")
    def test_a_copied_model_stays_in_place(self, backend: str, native: Native, model: Any) -> None:
        here = to_device(model, FIRST)
        moved = to_device(to_device(here, FIRST, copy=True), SECOND)
        assert (device_of(here), device_of(moved)) == (FIRST, SECOND)
