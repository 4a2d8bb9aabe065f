"""Where tensors and models are, and moving them; on several GPUs, real or virtual, they are never aliased."""

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
    using,
)
from xdevice.errors import (
    ArgumentError,
    CopyNeededError,
    MixedDeviceError,
    NotATensorError,
    UnknownPlacementError,
)
from xdevice.framework import choosing
from xdevice.framework.ownership import ownership_of
from xdevice.hardware import devices as hardware
from xdevice.tensors.creation import full, ones, tensor
from xdevice.tensors.exchange import to_numpy
from xdevice.tensors.placement import device_of, to_device
from xdevice.testing import Native
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    at_home,
    home,
    needs,
    raised,
    same_values,
    values,
)
from xdevice.testing.contract.trees import shape_of, trees

WAYS = [(a, b) for a in (cpu(), FIRST, SECOND) for b in (cpu(), FIRST, SECOND) if a is not b]
EACH_WAY = pytest.mark.parametrize(("source", "target"), WAYS, ids=[f"{a}-{b}" for a, b in WAYS])
QUESTIONS: list[Any] = [devices_of, to_numpy, lambda x: device_of(x).kind, lambda x: {device_of(x)}]
QUESTIONS.extend([lambda x: device_of(x) == home(), lambda x: is_same_device(x, x)])
QUESTIONS.extend([lambda x: to_device(x, home()), lambda x: to_device([x], home())])


class Placement(Promises):
    def test_device_of_follows_the_native_default(self, backend: str, native: Native) -> None:
        x = native.ones()
        assert devices_of(x) == {device_of(x)} <= {*devices()}

    @needs("owned", "exchange.to_numpy")
    def test_every_tensor_class_is_owned(self, backend: str, native: Native) -> None:
        for x in at_home(native.owned):
            owned = ownership_of(type(x))
            assert owned is not None, type(x)
            assert (owned.backend, owned.role) == (backend, "tensor"), type(x)
            assert device_of(x) == home()
            assert to_device(x, home()) is x
            assert "key" in str(getattr(x, "dtype", "")) or isinstance(to_numpy(x), np.ndarray)

    def test_device_of_follows_the_tensor(self, backend: str, x: Any) -> None:
        here = home()
        with using("numpy"):
            assert (device_of(x), type(to_device(x, here, copy=True))) == (here, type(x))

    def test_is_same_device_takes_trees_and_devices(
        self, backend: str, x: Any, native: Native, spelling: str
    ) -> None:
        y = at_home(native.ones)
        for same in ([x], [x, y], [x, {"y": [y]}, home(), spelling, hardware.native(home())]):
            assert is_same_device(*same)
            assert check_same_device(*same) is home()
        assert not is_same_device(x, "gpu:1")

    @needs("cpu")
    def test_two_frameworks_can_share_a_device(self, backend: str, x: Any) -> None:
        assert is_same_device(x, np.ones(3))
        assert device_of({"theirs": x, "ours": np.ones(3)}) == cpu()
        assert [type(each) for each in to_device([x, np.ones(3)], cpu(), copy=True)] == [
            type(x),
            np.ndarray,
        ]

    def test_mixed_devices_error_names_arguments(self, backend: str, x: Any) -> None:
        with pytest.raises(
            MixedDeviceError, match=rf"{home()}: argument 0\['a'\]\[1\].*gpu:1: argument 1"
        ) as error:
            check_same_device({"a": [None, x]}, "gpu:1")
        assert isinstance(error.value, RuntimeError)
        assert error.value.devices == {home(), gpu(1)}

    @pytest.mark.parametrize("nothing", ["text", 3, 2.5, None, b"bytes", object(), int])
    def test_only_tensors_models_and_trees_move(self, backend: str, nothing: Any) -> None:
        raised(NotATensorError)(to_device, nothing, home())

    @pytest.mark.parametrize("ask", [is_same_device, check_same_device])
    def test_comparing_nothing_is_an_error(self, ask: Any) -> None:
        raised(NotATensorError, "nothing was given")(ask)

    @needs("symbolic", "creation.ones", "exchange.to_numpy")
    def test_a_symbolic_tensor_has_no_device(self, backend: str, native: Native) -> None:
        asked: list[Any] = []

        def ask(symbol: Any) -> None:
            for question in QUESTIONS:
                raised(UnknownPlacementError)(question, symbol)
                asked.append(question)
            with contextlib.suppress(
                UnknownPlacementError
            ):  # where there is an answer, it says that it is not known
                answer = device_of(symbol)
                assert "known when" in repr(answer)
                assert not re.search(r"[cg]pu", f"{answer!r} {answer}")
                assert tuple(ones(2, device=answer).shape) == (2,)
                assert to_device(symbol, answer) is symbol

        at_home(lambda: native.symbolic(ask))
        assert len(asked) >= 8

    @needs("exchange.to_numpy")
    def test_asking_changes_nothing(self, backend: str, x: Any) -> None:
        before = values(x)
        _ = device_of(x), devices_of([x]), is_same_device(x, x)
        assert values(x) == before

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
        raised(ArgumentError, "'maybe'")(to_device, x, home(), copy="maybe")

    @needs("gradient")
    @pytest.mark.parametrize("forced", [None, True])
    def test_gradients_flow_through_a_move(self, backend: str, native: Native, forced: Any) -> None:
        assert at_home(lambda: native.gradient(lambda x: to_device(x, home(), copy=forced))) == [
            2.0,
            2.0,
            2.0,
        ]

    @needs("parameter")
    @pytest.mark.parametrize("frozen", [False, True])
    def test_a_parameter_already_there_is_returned(
        self, backend: str, native: Native, frozen: Any
    ) -> None:
        parameter = at_home(lambda: native.parameter(frozen))
        assert to_device(parameter, home()) is to_device([parameter], home())[0] is parameter
        assert native.is_frozen(parameter) is frozen

    def test_copy_false_is_checked_before_the_device(self, backend: str, x: Any) -> None:
        assert isinstance(raised(CopyNeededError)(to_device, x, "gpu:99", copy=False), ValueError)


@needs("model")
class Models(Promises):
    def test_a_model_is_where_its_tensors_are(
        self, backend: str, native: Native, model: Any
    ) -> None:
        for where in (model, {"net": model, "lr": 0.1}, *native.parameters(model)):
            assert device_of(where) == home()
        named = dict(choosing.backend().models.tensors_of(model))
        assert len(named) >= 6, "a dense layer's two and a batch norm's four"

    def test_a_model_already_there_is_returned(
        self, backend: str, native: Native, model: Any
    ) -> None:
        before = native.parameters(model)
        assert to_device(model, home()) is to_device([model], home())[0] is model
        assert all(a is b for a, b in zip(before, native.parameters(model), strict=True))

    def test_a_model_stays_if_the_device_is_missing(
        self, backend: str, native: Native, model: Any
    ) -> None:
        before = native.parameters(model)
        raised(DeviceNotFoundError)(
            to_device, {"data": at_home(native.ones), "net": model}, "gpu:99"
        )
        assert device_of(model) == home()
        assert all(a is b for a, b in zip(before, native.parameters(model), strict=True))

    @needs("exchange.to_numpy")
    def test_a_copied_model_has_own_parameters(
        self, backend: str, native: Native, model: Any
    ) -> None:
        copied = to_device(model, home(), copy=True)
        pairs = [
            (model, copied),
            *zip(native.parameters(model), native.parameters(copied), strict=True),
        ]
        assert all(a is not b for a, b in pairs)
        assert all(same_values(a, b) for a, b in pairs[1:])

    def test_a_copied_tree_keeps_model_and_parameters(
        self, backend: str, native: Native, model: Any
    ) -> None:
        copied = to_device(
            {"net": model, "parameters": native.parameters(model)}, home(), copy=True
        )
        pairs = zip(native.parameters(copied["net"]), copied["parameters"], strict=True)
        assert all(inside is listed for inside, listed in pairs)

    @needs("unbuilt_model")
    def test_an_unbuilt_model_has_no_device(self, backend: str, native: Native) -> None:
        unbuilt = at_home(native.unbuilt_model)
        for ask in (device_of, devices_of, lambda m: to_device(m, home())):
            raised(UnknownPlacementError)(ask, unbuilt)


@needs("creation.ones", "exchange.to_numpy", gpus=2)
class SeveralPlacements(Promises):
    @EACH_WAY
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool"])
    def test_a_move_keeps_values_and_dtype(
        self, backend: str, source: Any, target: Any, dtype: str
    ) -> None:
        for shape in ((), (0,), (2, 3)):
            x = tensor(np.ones(shape, dtype), device=source)
            moved = to_device(x, target)
            assert (device_of(x), device_of(moved), type(moved)) == (source, target, type(x))
            assert to_numpy(moved).dtype == np.dtype(dtype)
            assert same_values(x, moved)

    @EACH_WAY
    @needs("address")
    def test_each_device_has_memory_of_its_own(
        self, backend: str, native: Native, source: Any, target: Any
    ) -> None:
        x = ones((64,), device=source)
        moved = to_device(x, target)
        copied = to_device(moved, target, copy=True)
        assert device_of(copied) == target
        assert len({native.address(each) for each in (x, moved, copied)}) == 3

    @EACH_WAY
    @needs("write")
    def test_writes_stay_on_their_device(
        self, backend: str, native: Native, source: Any, target: Any
    ) -> None:
        x = ones((64,), device=source)
        moved = to_device(x, target)
        native.write(x, 3)
        assert to_numpy(moved).sum() == 64
        native.write(moved, 2)
        assert [(to_numpy(each).sum(), device_of(each)) for each in (x, moved)] == [
            (3 * 64, source),
            (2 * 64, target),
        ]

    def test_already_on_the_gpu_is_returned(self, backend: str) -> None:
        x = ones(3, device=SECOND)
        for spelling in (SECOND, "gpu:1", "CUDA:1", "/device:GPU:1", hardware.native(SECOND)):
            assert to_device(x, spelling) is to_device(x, spelling, copy=False) is x
        tree = {"x": x, "y": [x, 1]}
        assert to_device(tree, SECOND) is tree

    @EACH_WAY
    def test_copy_false_across_devices_is_an_error(
        self, backend: str, source: Any, target: Any
    ) -> None:
        x = ones(3, device=source)
        raised(CopyNeededError)(to_device, [x], target, copy=False)
        assert device_of(x) == source

    @needs("gradient")
    def test_gradients_flow_across_two_devices(self, backend: str, native: Native) -> None:
        moved = at_home(
            lambda: native.gradient(
                lambda x: to_device(to_device(to_device(x, FIRST), SECOND), home())
            )
        )
        assert moved == [2.0, 2.0, 2.0]

    @needs("cpu")
    def test_devices_of_lists_several(self, backend: str) -> None:
        x, y, z = (ones(2, device=device) for device in (FIRST, SECOND, cpu()))
        assert devices_of({"x": x, "all": [y, (z,)]}) == {FIRST, SECOND, cpu()}
        assert not any(is_same_device(*pair) for pair in ((x, y), (x, z), ([x, x], {"y": y})))
        assert is_same_device(y, [y], SECOND, "gpu:1", hardware.native(SECOND))
        assert check_same_device(y, {"y": y}) is SECOND

    def test_mixed_devices_error_names_paths(self, backend: str) -> None:
        x, y = ones(2, device=FIRST), ones(2, device=SECOND)
        with pytest.raises(
            MixedDeviceError, match=r"gpu:0: argument 0\['a'\]\[1\].*gpu:1: argument 1"
        ) as error:
            check_same_device({"a": [None, x]}, y)
        assert error.value.devices == {FIRST, SECOND}
        raised(MixedDeviceError, r"gpu:0: \['x'\].*gpu:1: \['y'\]\[0\]")(
            device_of, {"x": x, "y": [y]}
        )

    @pytest.mark.parametrize("which", range(17))
    def test_every_kind_of_tree_moves(self, backend: str, which: int) -> None:
        tree = trees(ones((2, 3), device=FIRST))[which]
        moved = to_device(tree, SECOND)
        assert (device_of(tree), device_of(moved), type(moved)) == (FIRST, SECOND, type(tree))
        assert shape_of(moved) == shape_of(tree)

    @needs("creation.full")
    def test_a_spread_tree_is_gathered(self, backend: str) -> None:
        x, y, z = (
            full((2,), float(i), device=device) for i, device in enumerate((FIRST, SECOND, home()))
        )
        tree: Any = {"x": x, "again": [x, {"y": y}], "z": (z, "text")}
        moved = to_device(tree, SECOND)
        assert check_same_device(moved) is SECOND
        assert moved["x"] is moved["again"][0]
        assert moved["again"][1]["y"] is y
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
            assert {
                device_of(tensor) for _, tensor in choosing.backend().models.tensors_of(model)
            } == {device}
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
            assert before.keys() == after.keys()
            assert all(after[name] is before[name] for name in before)
            assert values(list(native.parameters(model))) == numbers
        with SECOND:
            assert (
                device_of(native.output(model, ones((4, 3)))) == SECOND
            )  # it computes where it was put back

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
        assert (
            device_of(here),
            device_of(to_device(to_device(here, FIRST, copy=True), SECOND)),
        ) == (FIRST, SECOND)
