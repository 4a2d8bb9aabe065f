"""Trees: containers keep their types; leaves move, stay, or are errors."""

from __future__ import annotations

import functools
import re
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from xdevice import (
    Device,
    backend_of,
    check_same_device,
    convert,
    count,
    device_of,
    devices_of,
    gpu,
    is_same_device,
    prefetch,
    to_device,
    to_numpy,
)
from xdevice.errors import (
    ArgumentError,
    DeviceNotFoundError,
    MixedDeviceError,
    NotATensorError,
    UnknownPlacementError,
    XDeviceError,
)
from xdevice.tensors.creation import ones, tensor
from xdevice.testing import Tensor
from xdevice.testing.contract.promises import (
    FIRST,
    SECOND,
    Promises,
    Tree,
    home,
    needs,
    raised,
)

LEVELS = 60  # of shared lists


class Point(NamedTuple):
    x: Tree
    y: Tree


@dataclass
class Batch:
    x: object
    label: str = "none"


@dataclass(frozen=True)
class Frozen:
    x: object
    extra: object = None


@dataclass(frozen=True, slots=True)
class Slotted:
    x: object
    derived: object = field(init=False, default=None)


class Config(dict[Any, Any]):
    """A subclass, as configuration objects often are."""


class Rows(list[Any]):
    pass


class Queue(deque[Any]):
    pass


class Picky(Point):
    """A named tuple with an attribute. Its class cannot take its fields."""

    note: str

    def __new__(cls, x: Tree) -> Picky:
        picky = super().__new__(cls, x, "y")
        picky.note = "kept"
        return picky


@dataclass
class Record(dict[str, Any]):
    x: object = None


@dataclass(frozen=True)
class HandSlotted:
    __slots__ = ("x",)
    x: object


class Holder:
    """An object of a user's own class."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Boxes:
    """An object that moves itself, as those of many libraries do."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    @property
    def device(self) -> Device:
        return device_of(self.x)

    def to(self, device: Device) -> Boxes:
        return Boxes(to_device(self.x, device, copy=True))


class Claiming:
    """An object that moves itself, and says where it is."""

    def __init__(self, x: Tensor, device: object) -> None:
        self.x = x
        self.device = device

    def to(self, device: Device) -> None:
        self.x = to_device(self.x, device)


HOLDERS: dict[str, Callable[[Tensor], object]] = {
    r"Holder\.x is a tensor": lambda x: Holder(x=x),
    r"Holder\.deep\['a'\]\[0\] is a tensor": lambda x: Holder(deep={"a": [x]}),
    "list_iterator holds a tensor": lambda x: iter([x]),
    "a key of this dict holds a tensor": lambda x: {Holder(x=x): 1},
    "method-wrapper holds a tensor": lambda x: Holder(x=x).__eq__,
    "builtin_function_or_method holds a tensor": lambda x: [x].append,
    "partial holds a tensor": lambda x: functools.partial(max, x),
    r"UserDict\.data\['x'\] is a tensor": lambda x: UserDict(x=x),
    "a key of this Counter holds a tensor": lambda x: Counter([(1, Holder(x=x))]),
}
"""Objects that hold a tensor and cannot be moved, by the error's message."""


def trees(x: Tensor) -> list[Tree]:
    """One tensor in containers of every kind."""
    return [
        {"x": x, "text": "a", "none": None},
        [x, 1, "two"],
        (x, (x, [x])),
        Point(x, 2),
        defaultdict(list, {"b": [x], "a": 1}),
        OrderedDict([("z", x), ("a", x)]),
        deque([x, 1], maxlen=5),
        Batch(x),
        Frozen(x, {"deep": [x]}),
        Slotted(x),
        HandSlotted(x),
        Picky(x),
        Config(x=x),
        Rows([x]),
        Queue([x], maxlen=5),
        {"all": [Point(Frozen(x), deque([Batch([x])]))], 3: Config(a=Rows([x]))},
    ]


def shape_of(tree: Tree) -> Any:
    """The types of containers and leaves, with "tensor" for each tensor."""
    name = type(tree).__name__
    if isinstance(tree, (Batch, Frozen, Slotted, HandSlotted)):
        return name, [shape_of(getattr(tree, field)) for field in tree.__dataclass_fields__]
    if isinstance(tree, dict):
        return name, {key: shape_of(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple, deque)):
        return name, [shape_of(value) for value in tree]
    if tree is None or isinstance(tree, (str, int, float)):
        return tree
    return "tensor"


class Trees(Promises):
    @pytest.mark.parametrize("tree", [[], {}, (), {"a": "text", "b": [None, 1.5]}, deque()])
    def test_a_tree_without_tensors_has_no_device(self, backend: str, tree: Tree) -> None:
        for call in (device_of, devices_of, is_same_device, check_same_device):
            error = raised(NotATensorError, type(tree).__name__)(call, tree)
            assert isinstance(error, TypeError)

    @needs("exchange.to_numpy")
    def test_a_foreign_object_error_names_its_path(self, backend: str) -> None:
        class Foreign:
            to = "not callable"
            device = "cpu"

        for call in (device_of, lambda obj: to_device(obj, home()), to_numpy, is_same_device):
            raised(NotATensorError, "Foreign")(call, Foreign())
        tree = {"deep": [Batch(Foreign())]}
        raised(NotATensorError, r"\['deep'\]\[0\]\.x is of type Foreign")(device_of, tree)

    def test_copy_true_copies_every_leaf(self, backend: str, x: Tensor) -> None:
        tree = {"x": x, "again": x, "n": 1}
        copied = to_device(tree, home(), copy=True)
        assert copied["x"] is copied["again"] is not x is tree["x"]

    def test_a_failed_move_moves_nothing(self, backend: str, x: Tensor) -> None:
        tree = {"a": x, "b": [np.ones(2), Point(x, 1)]}
        items = dict(tree)
        for device in (f"gpu:{count('gpu')}", "gpu:99"):
            raised(DeviceNotFoundError, r"at \['a'\]")(to_device, tree, device)
        assert all(tree[key] is items[key] for key in tree)
        assert device_of(tree["a"]) == home()

    @pytest.fixture(params=range(16))
    def nested(self, x: Tensor, request: pytest.FixtureRequest) -> Tree:
        return trees(x)[request.param]

    def test_a_tree_keeps_types_and_other_leaves(self, backend: str, nested: Tree) -> None:
        moved = to_device(nested, home(), copy=True)
        assert type(moved) is type(nested)
        assert moved is not nested
        assert shape_of(moved) == shape_of(nested)
        assert device_of(moved) == home()
        for attribute in ("default_factory", "maxlen"):
            assert getattr(moved, attribute, None) == getattr(nested, attribute, None)
        if isinstance(nested, dict):
            assert list(moved) == list(nested)

    def test_a_tree_already_there_is_returned(self, backend: str, nested: Tree) -> None:
        shape = shape_of(nested)
        assert to_device(nested, home()) is nested
        assert shape_of(nested) == shape

    def test_tensors_in_sets_move(self, backend: str, x: Tensor) -> None:
        try:
            tree = [{x, 1}, frozenset([x])]
        except (TypeError, NotImplementedError):  # this framework's tensors cannot be in a set
            return
        moved = to_device(tree, home(), copy=True)
        assert [type(moved_set) for moved_set in moved] == [set, frozenset]
        for moved_set in moved:
            assert all(element is not x for element in moved_set)
        assert device_of(tree) == home()

    @pytest.mark.parametrize(
        "empty", [[], {}, (), deque(), defaultdict(int), {"a": []}, [None, "text"]]
    )
    def test_an_empty_tree_passes_through(self, backend: str, empty: Tree) -> None:
        assert to_device(empty, home(), copy=True) == empty == to_device(empty, "gpu:99")

    def test_a_cyclic_tree_is_an_error(self, backend: str, x: Tensor) -> None:
        in_itself = [x]
        in_itself.append(in_itself)
        in_its_element = Rows([x])
        in_its_element.append(Batch(in_its_element))
        for tree in (in_itself, in_its_element):
            raised(ArgumentError, "contains itself")(to_device, tree, home(), copy=True)

    def test_a_shared_container_is_opened_once(self, backend: str, x: Tensor) -> None:
        tree = shared_levels(x)
        assert device_of(tree) == home()
        assert devices_of(tree) == {home()}
        assert backend_of(tree) == backend
        assert is_same_device(tree, x)
        copies = [
            to_device(tree, home(), copy=True),
            to_device(tree, home(), copy=True, skip=("y",)),
            convert(tree, backend, copy=True),
            next(iter(prefetch([tree], home()))),
        ]
        for copied in copies:
            check_shared_levels(copied)

    def test_attributes_of_containers_are_kept(self, backend: str, x: Tensor) -> None:
        moved = to_device(Picky(x), home(), copy=True)
        assert moved.note == "kept"
        assert moved.y == "y"
        assert moved.x is not x

    def test_a_mapping_with_fields_moves_both(self, backend: str, x: Tensor) -> None:
        record = Record(x)
        record["key"] = x
        moved = to_device(record, home(), copy=True)
        assert moved.x is moved["key"] is not x
        assert record.x is record["key"] is x


def shared_levels(x: Tensor) -> Tree:
    """Lists nested 60 deep, each twice in the next: ``x`` has 2**60 places."""
    tree = [x]
    for _ in range(LEVELS):
        tree = [tree, tree]
    return tree


def check_shared_levels(tree: Tree) -> Tensor:
    """The only tensor in lists that are nested and shared as those of `shared_levels` are."""
    for _ in range(LEVELS):
        first, second = tree
        assert first is second
        tree = first
    (x,) = tree
    return x


class OpenWorld(Promises):
    @pytest.mark.parametrize("message", HOLDERS)
    def test_an_opaque_holder_error_names_its_path(
        self, backend: str, x: Tensor, message: str
    ) -> None:
        tree = {"x": x, "held": HOLDERS[message](x)}
        for call in (device_of, devices_of, lambda tree: to_device(tree, home(), copy=True)):
            raised(NotATensorError, rf"{message}.*\['held'\]")(call, tree)
        assert device_of(tree, skip=["held"]) == home()
        assert to_device(tree, home(), copy=True, skip=["['held']"])["held"] is tree["held"]

    @needs("exchange.to_numpy")
    def test_a_container_is_not_a_tensor(self, backend: str, x: Tensor) -> None:
        raised(NotATensorError, r"a dict is not a tensor; .* at \['a'\]\[0\]")(to_numpy, {"a": [x]})

    def test_objects_without_tensors_pass_through(self, backend: str, x: Tensor) -> None:
        attributes = {name: getattr(x, name) for name in ("shape", "dtype") if hasattr(x, name)}
        config = Holder(rate=0.1, names=["a", "b"], nested=Holder(size=3), **attributes)
        tree = {"x": x, "config": config, "function": len, "class": type(x), "device": gpu(7)}
        moved = to_device(tree, home(), copy=True)
        assert moved["x"] is not x
        assert all(moved[key] is tree[key] for key in tree if key != "x")

    def test_an_object_with_a_to_method_moves_itself(self, backend: str, x: Tensor) -> None:
        boxes = Boxes(x)
        assert device_of({"boxes": boxes}) == home()
        assert to_device({"boxes": boxes}, home())["boxes"] is boxes
        copied = to_device({"boxes": boxes}, home(), copy=True)["boxes"]
        assert type(copied) is Boxes
        assert copied.x is not x

    def test_what_an_object_says_of_itself_is_not_believed(self, backend: str, x: Tensor) -> None:
        refuse = raised(UnknownPlacementError, "Claiming.device is gpu:9, but its tensors are on")
        for call in (device_of, lambda obj: to_device(obj, "gpu:9")):
            refuse(call, Claiming(x, gpu(9)))
        assert device_of(Claiming(x, "sensor")) == home()

    def test_tensors_in_namespaces_move(self, backend: str, x: Tensor) -> None:
        namespace = to_device(SimpleNamespace(x=x, n=1), home(), copy=True)
        assert namespace.x is not x
        assert namespace.n == 1

    def test_numpy_text_and_scalars_are_data(self, backend: str, x: Tensor) -> None:
        data = [
            np.array(["a", "b"]),
            np.array([{}, None]),
            np.float32(1),
            np.str_("cat"),
            np.datetime64("2020-01-01"),
        ]
        moved = to_device([x, *data], home(), copy=True)
        assert all(a is b for a, b in zip(moved[1:], data, strict=True))
        assert device_of([x, *data]) == home()
        raised(NotATensorError)(device_of, np.str_("cat"))

    @needs("creation.ones")
    def test_user_objects_move_between_devices(self, backend: str, two_gpus: object) -> None:
        x = ones((2, 3), device=FIRST)
        tree: Tree = {
            "boxes": Boxes(x),
            "space": SimpleNamespace(x=x),
            "names": np.array(["a"]),
            "rate": np.float32(1),
        }
        moved = to_device(tree, SECOND)
        for on_second in (moved, moved["boxes"].x, moved["space"].x):
            assert device_of(on_second) == SECOND
        assert moved["names"] is tree["names"]
        assert device_of(tree) == FIRST
        error = raised(MixedDeviceError, r"\['boxes'\]")(device_of, [tree, moved])
        assert error.devices == {FIRST, SECOND}

    @needs("creation.tensor")
    def test_a_list_on_mixed_devices_is_an_error(self, backend: str, two_gpus: object) -> None:
        x, y = tensor(1.0, device=FIRST), tensor(2.0, device=SECOND)
        for data, path in (([x, y], "[1]"), ([0.0, x, y], "[2]"), ([[x], (y,)], "[1][0]")):
            error = raised(MixedDeviceError, re.escape(path))(tensor, data)
            assert error.devices == {FIRST, SECOND}

    @needs("creation.ones")
    def test_numpy_to_gpu_error_omits_try_gpu(self, backend: str, two_gpus: object) -> None:
        tree = {"x": ones(3, device=FIRST), "n": np.ones(3)}
        error = raised(XDeviceError, r"numpy.*\['n'\]")(to_device, tree, SECOND)
        assert "fall back" not in str(error)
        assert device_of(tree["x"]) == FIRST
        assert device_of(to_device(tree, SECOND, skip="n")["x"]) == SECOND
