"""The open world: what users put into trees beside tensors is moved, kept, or an error; never passed over."""

from __future__ import annotations

import functools
import re
from collections import Counter, UserDict, defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xdevice import all_reduce, device_of, devices_of, gpu, ones, tensor, to_device, to_numpy
from xdevice.errors import MixedDeviceError, NotATensorError, XDeviceError
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, on_several


class Holder:
    """An object of a user's own class."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Boxes:
    """An object that moves itself, as those of many libraries do; a list as well, which must not matter."""

    def __init__(self, x: Any) -> None:
        self.x = x

    @property
    def device(self) -> Any:
        return device_of(self.x)

    def to(self, device: Any) -> Boxes:
        return Boxes(to_device(self.x, device, copy=True))


HOLDERS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: Holder(x=x), r"Holder\.x is a tensor"),
    (lambda x: Holder(deep={"a": [x]}), r"Holder\.deep\['a'\]\[0\] is a tensor"),
    (lambda x: (part for part in [x]), "can be read only once"),
    (lambda x: {"a": x}.values(), "cannot rebuild dict_values objects"),
    (lambda x: {Holder(x=x): 1}, "a key of this dict holds a tensor"),
    (lambda x: Counter([(1, Holder(x=x))]), "a key of this Counter holds a tensor"),
    (lambda x: UserDict({("a", Holder(x=x)): x}), "a key of this UserDict holds a tensor"),
    (lambda x: defaultdict(functools.partial(max, x), a=x), "default_factory of this defaultdict holds a tensor"),
]


class OpenWorld(Promises):
    @pytest.mark.parametrize(("holder", "says"), HOLDERS)
    def test_an_opaque_holder_error_names_its_path(
        self, backend: str, x: Any, holder: Callable[[Any], Any], says: str
    ) -> None:
        tree = {"x": x, "held": holder(x)}
        for ask in (device_of, devices_of, lambda t: to_device(t, home(), copy=True)):
            with pytest.raises(NotATensorError, match=rf"{says}.*\['held'\]"):
                ask(tree)
        assert device_of(tree, skip=["held"]) == home()
        assert to_device(tree, home(), copy=True, skip=["['held']"])["held"] is tree["held"]

    @needs("exchange.to_numpy")
    def test_a_container_is_not_a_tensor(self, backend: str, x: Any) -> None:
        with pytest.raises(NotATensorError, match=r"a dict is not a tensor; .* at \['a'\]\[0\]"):
            to_numpy({"a": [x]})

    def test_objects_without_tensors_pass_through(self, backend: str, x: Any) -> None:
        own = {name: getattr(x, name) for name in ("shape", "dtype") if hasattr(x, name)}
        config = Holder(rate=0.1, names=["a", "b"], nested=Holder(size=3), **own)
        tree = {"x": x, "config": config, "function": len, "kind": type(x), "device": gpu(7)}
        moved = to_device(tree, home(), copy=True)
        assert moved["x"] is not x
        assert all(moved[key] is tree[key] for key in tree if key != "x")

    def test_objects_with_a_method_to_move(self, backend: str, x: Any) -> None:
        boxes = Boxes(x)
        assert device_of({"boxes": boxes}) == home()
        assert to_device({"boxes": boxes}, home())["boxes"] is boxes
        copied = to_device({"boxes": boxes}, home(), copy=True)["boxes"]
        assert type(copied) is Boxes
        assert copied.x is not x

    def test_namespaces_and_partials_open(self, backend: str, x: Any) -> None:
        tree: list[Any] = [SimpleNamespace(x=x, n=1), functools.partial(max, x, key=None)]
        moved = to_device(tree, home(), copy=True)
        assert moved[0].x is moved[1].args[0]
        assert moved[0].x is not x
        assert (moved[0].n, moved[1].func, moved[1].keywords) == (1, max, {"key": None})

    def test_numpy_text_and_scalars_are_data(self, backend: str, x: Any) -> None:
        tree = {"x": x, "names": np.array(["a", "b"]), "objects": np.array([{}, None]), "rate": np.float32(0.5)}
        moved = to_device(tree, home(), copy=True)
        assert all(moved[key] is tree[key] for key in ("names", "objects", "rate"))
        assert device_of(tree) == home()

    @needs("collectives.pack", "creation.tensor", "exchange.to_numpy")
    def test_the_mean_of_equals_is_exact(self, backend: str) -> None:
        numbers = np.random.default_rng(0).standard_normal(500).astype("float32")
        for n in (2, 3, 5, 7):
            for found in all_reduce([tensor(numbers) for _ in range(n)], op="mean"):
                np.testing.assert_array_equal(to_numpy(found), numbers)

    def test_empty_trees_cannot_be_reduced(self, backend: str) -> None:
        with pytest.raises(NotATensorError, match="no tensor"):
            all_reduce([[], []])

    @on_several
    @needs("creation.ones")
    def test_user_objects_move_between_devices(self, backend: str) -> None:
        x = ones((2, 3), device=FIRST)
        tree: Any = {"boxes": Boxes(x), "space": SimpleNamespace(x=x), "names": np.array(["a"]), "rate": np.float32(1)}
        assert device_of(tree) == FIRST
        moved = to_device(tree, SECOND)
        assert device_of(moved) == SECOND
        assert device_of(moved["boxes"].x) == device_of(moved["space"].x) == SECOND
        assert moved["names"] is tree["names"]
        assert device_of(tree) == FIRST
        with pytest.raises(MixedDeviceError, match=r"\['boxes'\]") as error:
            device_of([tree, moved])
        assert error.value.devices == {FIRST, SECOND}

    @on_several
    @needs("creation.tensor")
    def test_a_list_on_mixed_devices_is_an_error(self, backend: str) -> None:
        x, y = tensor(1.0, device=FIRST), tensor(2.0, device=SECOND)
        for data, path in (([x, y], "[1]"), ([0.0, x, y], "[2]"), ([[x], (y,)], "[1][0]")):
            with pytest.raises(MixedDeviceError, match=re.escape(path)) as error:
                tensor(data)
            assert error.value.devices == {FIRST, SECOND}

    @on_several
    @needs("creation.ones")
    def test_numpy_to_gpu_error_omits_try_gpu(self, backend: str) -> None:
        tree = {"x": ones(3, device=FIRST), "n": np.ones(3)}
        with pytest.raises(XDeviceError, match=r"numpy.*\['n'\]") as error:
            to_device(tree, SECOND)
        assert "fall back" not in str(error.value)
        assert device_of(tree["x"]) == FIRST
        assert device_of(to_device(tree, SECOND, skip="n")["x"]) == SECOND
