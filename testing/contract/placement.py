"""Where tensors and models are, and how they move."""

import contextlib
import gc
import itertools
import re
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from xdevice import (
    Device,
    DeviceNotFoundError,
    check_same_device,
    cpu,
    devices,
    devices_of,
    gpu,
    is_same_device,
    load,
    using,
)
from xdevice.errors import (
    ArgumentError,
    CopyNeededError,
    MisplacedError,
    MixedDeviceError,
    NotATensorError,
    UnknownPlacementError,
    XDeviceError,
)
from xdevice.framework import choosing
from xdevice.framework.ownership import known_of
from xdevice.hardware import questions as hardware
from xdevice.tensors.creation import full, ones, seed, tensor
from xdevice.tensors.exchange import to_numpy
from xdevice.tensors.gradients import value_and_grad
from xdevice.tensors.moving import to_device
from xdevice.tensors.placement import device_of
from xdevice.testing import Model, Native, Tensor
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    Tree,
    at_home,
    home,
    needs,
    raised,
    same_values,
    values,
)
from xdevice.testing.contract.trees import Boxes, shape_of, trees

ROUTES = list(itertools.permutations((cpu(), FIRST, SECOND), 2))
EACH_ROUTE = pytest.mark.parametrize(
    ("source", "target"), ROUTES, ids=[f"{source}-{target}" for source, target in ROUTES]
)
QUESTIONS: list[Callable[[Tensor], object]] = [
    devices_of,
    to_numpy,
    lambda x: device_of(x).kind,
    lambda x: {device_of(x)},
    lambda x: device_of(x) == home(),
    lambda x: is_same_device(x, x),
    lambda x: to_device(x, home()),
    lambda x: to_device([x], home()),
]
"""Calls that need to know where a tensor is."""
MISTAKEN: dict[str, Callable[[Any], object]] = {
    "an index of a device": gpu,
    "a spelling": Device,
    "a device": lambda x: to_device(x, x),
    "a device to make on": lambda x: ones(2, device=x),
    "a shape": ones,
    "a dtype": lambda x: ones(2, dtype=x),
    "copy": lambda x: to_device(x, home(), copy=x),
    "a backend": lambda x: using(x).__enter__(),
    "a seed": seed,
    "a function": value_and_grad,
    "argnums": lambda x: value_and_grad(abs, argnums=x)(x),
    "a path": lambda x: load(x),
    "what a key is": lambda x: device_of({Lines(): iter([x])}),
}
"""Calls with a tensor in the place of another argument."""


class Lines:
    """A key whose repr has two lines."""

    def __repr__(self) -> str:
        return "Lines(\n)"


def same_objects(objects: Iterable[object], others: Iterable[object]) -> bool:
    """Whether two lists have the same objects, in the same order."""
    return all(a is b for a, b in zip(objects, others, strict=True))


def check_unknown_device(symbol: Tensor, device: Device) -> None:
    """Check the device of a symbolic tensor that has no known device yet."""
    assert "known when" in repr(device)
    assert not re.search(r"[cg]pu", f"{device!r} {device}")
    assert tuple(ones(2, device=device).shape) == (2,)
    assert to_device(symbol, device) is symbol


class Fixed(dict[str, Tensor]):
    """A dict that cannot be rebuilt: its class cannot be called without its items."""

    def __new__(cls, items: dict[str, Tensor]) -> Any:
        return super().__new__(cls)


class Placement(Promises):
    def test_device_of_follows_the_native_default(self, backend: str, native: Native) -> None:
        x = native.ones()
        assert devices_of(x) == {device_of(x)} <= {*devices()}

    @pytest.mark.parametrize("argument", MISTAKEN)
    def test_errors_describe_a_tensor_in_one_line(
        self, backend: str, x: Tensor, argument: str
    ) -> None:
        error = raised(XDeviceError)(MISTAKEN[argument], x)
        assert "\n" not in str(error)

    @needs("owned", "exchange.to_numpy")
    def test_every_tensor_class_is_owned(self, backend: str, native: Native) -> None:
        for x in at_home(native.owned):
            known = known_of(type(x))
            assert (known.backend, known.category) == (backend, "tensor"), type(x)
            assert device_of(x) == home()
            assert to_device(x, home()) is x
            is_random_key = "key" in str(getattr(x, "dtype", ""))  # JAX's, which have no numbers
            assert is_random_key or isinstance(to_numpy(x), np.ndarray)

    def test_device_of_follows_the_tensor(self, backend: str, x: Tensor) -> None:
        device = home()
        with using("numpy"):
            assert device_of(x) == device
            assert type(to_device(x, device, copy=True)) is type(x)

    def test_is_same_device_takes_trees_and_devices(
        self, backend: str, x: Tensor, native: Native, spelling: str
    ) -> None:
        y = at_home(native.ones)
        for objects in ([x], [x, y], [x, {"y": [y]}, home(), spelling, hardware.native(home())]):
            assert is_same_device(*objects)
            assert check_same_device(*objects) is home()
        assert not is_same_device(x, "gpu:1")

    @needs("cpu")
    def test_two_frameworks_can_share_a_device(self, backend: str, x: Tensor) -> None:
        assert is_same_device(x, np.ones(3))
        assert device_of({"x": x, "array": np.ones(3)}) == cpu()
        new_x, new_array = to_device([x, np.ones(3)], cpu(), copy=True)
        assert type(new_x) is type(x)
        assert type(new_array) is np.ndarray

    def test_mixed_devices_error_names_arguments(self, backend: str, x: Tensor) -> None:
        paths = rf"{home()}: argument 0\['a'\]\[1\].*gpu:1: argument 1"
        error = raised(MixedDeviceError, paths)(check_same_device, {"a": [None, x]}, "gpu:1")
        assert isinstance(error, RuntimeError)
        assert error.devices == {home(), gpu(1)}

    @pytest.mark.parametrize("value", ["text", 3, 2.5, None, b"bytes", object(), int])
    def test_only_tensors_models_and_trees_move(self, backend: str, value: object) -> None:
        raised(NotATensorError)(to_device, value, home())

    @pytest.mark.parametrize("ask", [is_same_device, check_same_device])
    def test_comparing_nothing_is_an_error(self, ask: Any) -> None:
        raised(NotATensorError, "nothing was given")(ask)

    @needs("symbolic", "creation.ones", "exchange.to_numpy")
    def test_a_symbolic_tensor_has_no_device(self, backend: str, native: Native) -> None:
        number_of_calls = 0

        def ask(symbol: Tensor) -> None:
            for question in QUESTIONS:
                raised(UnknownPlacementError)(question, symbol)
            with contextlib.suppress(UnknownPlacementError):
                check_unknown_device(symbol, device_of(symbol))
            nonlocal number_of_calls
            number_of_calls += 1

        at_home(lambda: native.symbolic(ask))
        assert number_of_calls > 0

    @needs("exchange.to_numpy")
    def test_asking_changes_nothing(self, backend: str, x: Tensor) -> None:
        numbers = values(x)
        device_of(x)
        devices_of([x])
        is_same_device(x, x)
        assert values(x) == numbers

    def test_a_tensor_already_there_is_returned(
        self, backend: str, x: Tensor, spelling: str
    ) -> None:
        for device in (spelling, home(), hardware.native(home(), backend)):
            assert to_device(x, device) is to_device(x, device, copy=False) is x

    @needs("address", "exchange.to_numpy")
    def test_a_forced_copy_shares_no_memory(self, backend: str, native: Native, x: Tensor) -> None:
        y = to_device(x, home(), copy=True)
        assert y is not x
        assert type(y) is type(x)
        assert native.address(y) != native.address(x)
        assert same_values(x, y)

    def test_copy_must_be_true_false_or_none(self, backend: str, x: Tensor) -> None:
        raised(ArgumentError, "'maybe'")(to_device, x, home(), copy="maybe")

    @needs("gradient")
    @pytest.mark.parametrize("copy", [None, True])
    def test_gradients_flow_through_a_move(
        self, backend: str, native: Native, copy: bool | None
    ) -> None:
        with home():
            gradient = native.gradient(lambda x: to_device(x, home(), copy=copy))
        assert gradient == [2, 2, 2]

    @needs("parameter")
    @pytest.mark.parametrize("frozen", [False, True])
    def test_a_parameter_already_there_is_returned(
        self, backend: str, native: Native, frozen: bool
    ) -> None:
        parameter = at_home(lambda: native.parameter(frozen))
        assert to_device(parameter, home()) is to_device([parameter], home())[0] is parameter
        assert native.is_frozen(parameter) is frozen

    def test_copy_false_is_checked_before_the_device(self, backend: str, x: Tensor) -> None:
        error = raised(CopyNeededError)(to_device, x, "gpu:99", copy=False)
        assert isinstance(error, ValueError)


@needs("model")
class Models(Promises):
    def test_a_model_is_where_its_tensors_are(
        self, backend: str, native: Native, model: Model
    ) -> None:
        for obj in (model, {"net": model, "lr": 0.1}, *native.parameters(model)):
            assert device_of(obj) == home()
        tensors = dict(choosing.backend().models.tensors_of(model))
        assert len(tensors) >= 6, "two of the dense layer, four of the batch normalisation"

    def test_a_model_already_there_is_returned(
        self, backend: str, native: Native, model: Model
    ) -> None:
        parameters = native.parameters(model)
        assert to_device(model, home()) is to_device([model], home())[0] is model
        assert same_objects(native.parameters(model), parameters)

    def test_a_model_stays_if_the_device_is_missing(
        self, backend: str, native: Native, model: Model
    ) -> None:
        parameters = native.parameters(model)
        tree = {"data": at_home(native.ones), "net": model}
        raised(DeviceNotFoundError)(to_device, tree, "gpu:99")
        assert device_of(model) == home()
        assert same_objects(native.parameters(model), parameters)

    @needs("exchange.to_numpy")
    def test_a_copied_model_has_own_parameters(
        self, backend: str, native: Native, model: Model
    ) -> None:
        copied = to_device(model, home(), copy=True)
        assert copied is not model
        for old, new in zip(native.parameters(model), native.parameters(copied), strict=True):
            assert old is not new
            assert same_values(old, new)

    def test_a_copied_tree_keeps_model_and_parameters(
        self, backend: str, native: Native, model: Model
    ) -> None:
        tree = {"net": model, "parameters": native.parameters(model)}
        copied = to_device(tree, home(), copy=True)
        assert same_objects(native.parameters(copied["net"]), copied["parameters"])

    @needs("unbuilt_model")
    def test_an_unbuilt_model_has_no_device(self, backend: str, native: Native) -> None:
        unbuilt = at_home(native.unbuilt_model)
        for call in (device_of, devices_of, lambda model: to_device(model, home())):
            raised(UnknownPlacementError)(call, unbuilt)


class Halfway:
    """It moves itself in place, but stops after its first tensor on the way to a GPU."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors

    def to(self, device: Any) -> None:
        for i in range(2):
            self.tensors[i] = to_device(self.tensors[i], device)
            if device_of(self.tensors[i]) != home():
                raise InterruptedError("halfway")


class Trainer:
    """It moves itself in place, and does not say where it is."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def to(self, device: Any) -> None:
        self.parts = tuple(to_device(part, device) for part in self.parts)


class Idle(Trainer):
    """Its method does not move it."""

    def to(self, device: Any) -> None:
        pass


@needs("creation.ones", "exchange.to_numpy", gpus=2)
class SeveralPlacements(Promises):
    @EACH_ROUTE
    @needs("dtype.{dtype}")
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool"])
    def test_a_move_keeps_values_and_dtype(
        self, backend: str, source: Device, target: Device, dtype: str
    ) -> None:
        for shape in ((), (0,), (2, 3)):
            x = tensor(np.ones(shape, dtype), device=source)
            moved = to_device(x, target)
            assert device_of(x) == source
            assert device_of(moved) == target
            assert type(moved) is type(x)
            assert to_numpy(moved).dtype == np.dtype(dtype)
            assert same_values(x, moved)

    @needs("placement.move_many")
    @pytest.mark.parametrize("non_blocking", [False, True])
    def test_tensors_move_together_as_alone(self, backend: str, non_blocking: bool) -> None:
        tensors = [full((2,), i, device=FIRST) for i in range(3)]
        moved = choosing.backend().placement.move_many(tensors, SECOND, non_blocking)
        for i, (x, new_x) in enumerate(zip(tensors, moved, strict=True)):
            assert type(new_x) is type(x)
            assert (device_of(x), device_of(new_x)) == (FIRST, SECOND)
            assert values(new_x) == values(x) == [i, i]

    @pytest.mark.parametrize(
        ("source", "target"), [(cpu(), FIRST), (FIRST, cpu()), (FIRST, SECOND)]
    )
    @needs("unfinished")
    def test_a_move_does_not_wait_for_the_computation(
        self, backend: str, native: Native, source: Device, target: Device
    ) -> None:
        x = ones((256, 256), device=source)
        for tree in (x, [x], (x, {"x": x})):
            to_device(tree, target)  # now, rather than below: the framework prepares the first copy
        with native.unfinished(x) as (unfinished, is_complete):
            moved = to_device(unfinished, target)
            tree = to_device({"a": unfinished, "b": [unfinished]}, target, non_blocking=True)
            assert not is_complete()
        for tensor_ in (moved, tree["a"], tree["b"][0]):
            assert device_of(tensor_) == target
            assert same_values(tensor_, unfinished)

    @EACH_ROUTE
    @needs("address")
    def test_each_device_has_memory_of_its_own(
        self, backend: str, native: Native, source: Device, target: Device
    ) -> None:
        x = ones((64,), device=source)
        moved = to_device(x, target)
        copied = to_device(moved, target, copy=True)
        assert device_of(copied) == target
        assert len({native.address(tensor) for tensor in (x, moved, copied)}) == 3

    @EACH_ROUTE
    @needs("write")
    def test_writes_stay_on_their_device(
        self, backend: str, native: Native, source: Device, target: Device
    ) -> None:
        x = ones((64,), device=source)
        moved = to_device(x, target)
        native.write(x, 3)
        assert to_numpy(moved).sum() == 64
        native.write(moved, 2)
        assert to_numpy(moved).sum() == 2 * 64
        assert to_numpy(x).sum() == 3 * 64
        assert device_of(x) == source
        assert device_of(moved) == target

    def test_already_on_the_gpu_is_returned(self, backend: str) -> None:
        x = ones(3, device=SECOND)
        for spelling in (SECOND, "gpu:1", "CUDA:1", "/device:GPU:1", hardware.native(SECOND)):
            assert to_device(x, spelling) is to_device(x, spelling, copy=False) is x
        tree = {"x": x, "y": [x, 1]}
        assert to_device(tree, SECOND) is tree

    @EACH_ROUTE
    def test_copy_false_across_devices_is_an_error(
        self, backend: str, source: Device, target: Device
    ) -> None:
        x = ones(3, device=source)
        raised(CopyNeededError)(to_device, [x], target, copy=False)
        assert device_of(x) == source

    @needs("gradient")
    def test_gradients_flow_across_two_devices(self, backend: str, native: Native) -> None:
        def move(x: Tensor) -> Tensor:
            for device in (FIRST, SECOND, home()):
                x = to_device(x, device)
            return x

        with home():
            assert native.gradient(move) == [2, 2, 2]

    @needs("cpu")
    def test_devices_of_lists_several(self, backend: str) -> None:
        x, y, z = (ones(2, device=device) for device in (FIRST, SECOND, cpu()))
        assert devices_of({"x": x, "all": [y, (z,)]}) == {FIRST, SECOND, cpu()}
        for pair in ((x, y), (x, z), ([x, x], {"y": y})):
            assert not is_same_device(*pair)
        assert is_same_device(y, [y], SECOND, "gpu:1", hardware.native(SECOND))
        assert check_same_device(y, {"y": y}) is SECOND

    def test_mixed_devices_error_names_paths(self, backend: str) -> None:
        x, y = ones(2, device=FIRST), ones(2, device=SECOND)
        arguments = r"gpu:0: argument 0\['a'\]\[1\].*gpu:1: argument 1"
        error = raised(MixedDeviceError, arguments)(check_same_device, {"a": [None, x]}, y)
        assert error.devices == {FIRST, SECOND}
        paths = r"gpu:0: \['x'\].*gpu:1: \['y'\]\[0\]"
        raised(MixedDeviceError, paths)(device_of, {"x": x, "y": [y]})

    @pytest.mark.parametrize("index", range(16))
    def test_every_kind_of_tree_moves(self, backend: str, index: int) -> None:
        tree = trees(ones((2, 3), device=FIRST))[index]
        moved = to_device(tree, SECOND)
        assert device_of(tree) == FIRST
        assert device_of(moved) == SECOND
        assert type(moved) is type(tree)
        assert shape_of(moved) == shape_of(tree)

    @needs("creation.full")
    def test_a_spread_tree_is_gathered(self, backend: str) -> None:
        x = full((2,), 0.0, device=FIRST)
        y = full((2,), 1.0, device=SECOND)
        z = full((2,), 2.0, device=home())
        tree: Tree = {"x": x, "again": [x, {"y": y}], "z": (z, "text")}
        moved = to_device(tree, SECOND)
        assert check_same_device(moved) is SECOND
        assert moved["x"] is moved["again"][0]
        assert moved["again"][1]["y"] is y
        assert values([moved["x"], moved["z"][0]]) == [[0, 0], [2, 2]]
        assert devices_of(tree) == {FIRST, SECOND, home()}

    @needs("parameter")
    def test_a_parameter_moves_with_its_values(self, backend: str, native: Native) -> None:
        parameter = at_home(native.parameter)
        numbers = values(parameter)
        for device in (FIRST, SECOND, home()):
            moved = to_device(parameter, device)
            assert device_of(moved) == device
            assert values(moved) == numbers

    @needs("model")
    def test_a_model_moves_whole_and_back(self, backend: str, native: Native, model: Model) -> None:
        numbers = values(list(native.parameters(model)))
        for device in (FIRST, SECOND, home()):
            model = to_device(model, device)
            assert devices_of(model) == {device}
            for _, part in choosing.backend().models.tensors_of(model):
                assert device_of(part) == device
            assert values(list(native.parameters(model))) == numbers

    @needs("model", "output")
    def test_keep_restores_a_moved_model(self, backend: str, native: Native, model: Model) -> None:
        models = choosing.backend().models
        numbers = values(list(native.parameters(model)))
        for source, target in ((home(), FIRST), (FIRST, SECOND), (SECOND, home())):
            to_device(model, source)
            tensors = dict(models.tensors_of(model))
            restore = models.keep(model)
            to_device(model, target)
            restore()
            restored_tensors = dict(models.tensors_of(model))
            assert devices_of(model) == {source}
            assert restored_tensors.keys() == tensors.keys()
            assert same_objects(restored_tensors.values(), tensors.values())
            assert values(list(native.parameters(model))) == numbers
        with SECOND:  # the restored model computes where it is
            assert device_of(native.output(model, ones((4, 3)))) == SECOND

    @needs("model", "output")
    def test_a_model_computes_where_it_is(self, backend: str, native: Native, model: Model) -> None:
        data = np.arange(12, dtype="float32").reshape(4, 3)
        with home():
            expected = to_numpy(native.output(model, tensor(data)))
        for device in (FIRST, SECOND):
            model = to_device(model, device)
            with device:
                output = native.output(model, tensor(data))
            assert device_of(output) == device
            assert np.allclose(to_numpy(output), expected, atol=1e-5)

    def test_an_object_that_stops_halfway_is_moved_back(self, backend: str) -> None:
        with home():
            halfway = Halfway([ones(2), ones(3)])
        with pytest.raises(InterruptedError, match="halfway"):
            to_device([halfway], SECOND)
        assert devices_of(halfway) == {home()}

    @needs("model")
    def test_an_object_with_nothing_but_a_model_is_where_that_is(
        self, backend: str, model: Model
    ) -> None:
        idle = {"idle": Idle(model)}
        raised(MisplacedError, r"at \['idle'\]")(to_device, idle, SECOND)
        trainer = Trainer(model)
        assert to_device(trainer, SECOND) is trainer
        assert device_of(trainer) == device_of(trainer.parts[0]) == SECOND

    @needs("model")
    def test_an_object_with_a_part_of_a_model_is_moved_back(
        self, backend: str, model: Model
    ) -> None:
        _, part = next(iter(choosing.backend().models.tensors_of(model)))
        with home():
            trainer, halfway = Trainer(part, ones(2)), Halfway([ones(2), ones(3)])
        with pytest.raises(InterruptedError, match="halfway"):
            to_device([model, trainer, halfway], SECOND)
        assert devices_of([model, trainer, halfway]) == {home()}

    def test_a_moved_tree_is_freed_at_once(self, backend: str) -> None:
        with home():
            tree = [Boxes(ones(2)), ones(3)]
        gc.disable()  # a GPU's memory is scarce, and cycles are collected late
        try:
            moved = to_device(tree, SECOND)
            box = weakref.ref(moved[0])
            assert box() is not tree[0]
            del moved
            assert box() is None
        finally:
            gc.enable()

    @needs("model")
    def test_a_model_is_moved_back_if_its_tree_cannot_be_rebuilt(
        self, backend: str, model: Model
    ) -> None:
        with home():
            items = {"x": ones(2)}
        tree = [model, Fixed(items)]
        raised(ArgumentError, "this Fixed cannot be rebuilt")(to_device, tree, SECOND)
        assert device_of(model) == home()

    @needs("model")
    def test_a_copied_model_stays_in_place(
        self, backend: str, native: Native, model: Model
    ) -> None:
        model = to_device(model, FIRST)
        copied = to_device(model, FIRST, copy=True)
        assert device_of(to_device(copied, SECOND)) == SECOND
        assert device_of(model) == FIRST
