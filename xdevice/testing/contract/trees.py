"""Trees: containers keep what they are, and what users put into them moves, is kept, or is an error."""

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
    check_same_device,
    count,
    device_of,
    devices_of,
    gpu,
    is_same_device,
    to_device,
    to_numpy,
)
from xdevice.errors import (
    ArgumentError,
    DeviceNotFoundError,
    MixedDeviceError,
    NotATensorError,
    XDeviceError,
)
from xdevice.tensors.creation import ones, tensor
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, raised


class Point(NamedTuple):
    x: Any
    y: Any


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


# subclasses, as configuration objects often are
Config: Any = type("Config", (dict,), {})
Rows: Any = type("Rows", (list,), {})
Queue: Any = type("Queue", (deque,), {})


class Picky(Point):
    """A named tuple that cannot be called with its own fields, and carries an attribute."""

    note: str

    def __new__(cls, x: Any) -> Picky:
        made = super().__new__(cls, x, "y")
        made.note = "kept"
        return made


@dataclass
class Record(dict[str, Any]):
    x: object = None


@dataclass(frozen=True)
class HandSlotted:
    __slots__ = ("x",)
    x: object


class Immovable(dict[str, Any]):
    def __copy__(self) -> Immovable:
        return self


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
    (lambda x: Holder(x=x).__eq__, "Holder.__eq__ is a method of an object that holds a tensor"),
    (lambda x: [x].append, r"list.append is a method of an object that holds a tensor"),
    (
        lambda x: functools.partial(UserDict(x=x).get, "x"),
        "UserDict.get is a method of an object that holds a tensor",
    ),
    (lambda x: Counter([(1, Holder(x=x))]), "a key of this Counter holds a tensor"),
    (lambda x: UserDict({("a", Holder(x=x)): x}), "a key of this UserDict holds a tensor"),
    (
        lambda x: defaultdict(functools.partial(max, x), a=x),
        "default_factory of this defaultdict holds a tensor",
    ),
]


def trees(x: Any) -> list[Any]:
    """One tensor in containers of every kind."""
    mapping: Any = defaultdict(list, {"b": [x], "a": 1})
    return [
        *({"x": x, "text": "a", "none": None}, [x, 1, "two"], (x, (x, [x])), Point(x, 2)),
        *(mapping, OrderedDict([("z", x), ("a", x)]), UserDict({"x": x}), deque([x, 1], maxlen=5)),
        *(Batch(x), Frozen(x, {"deep": [x]}), Slotted(x), HandSlotted(x), Picky(x)),
        *(Config(x=x), Rows([x]), Queue([x], maxlen=5)),
        {"all": [Point(Frozen(x), deque([Batch([x])]))], 3: Config(a=Rows([x]))},
    ]


def shape_of(node: Any) -> Any:
    """The tree with every tensor replaced by one word."""
    if isinstance(node, (Batch, Frozen, Slotted, HandSlotted)):
        return type(node).__name__, [shape_of(getattr(node, n)) for n in node.__dataclass_fields__]
    if isinstance(node, (dict, UserDict)):
        return type(node).__name__, {key: shape_of(value) for key, value in node.items()}
    if isinstance(node, (list, tuple, deque)):
        return type(node).__name__, [shape_of(value) for value in node]
    return node if node is None or isinstance(node, (str, int, float)) else "tensor"


class Trees(Promises):
    @pytest.mark.parametrize("tree", [[], {}, (), {"a": "text", "b": [None, 1.5]}, deque()])
    def test_a_tree_without_tensors_has_no_device(self, backend: str, tree: Any) -> None:
        for ask in (device_of, devices_of, is_same_device, check_same_device):
            assert isinstance(raised(NotATensorError, type(tree).__name__)(ask, tree), TypeError)

    @needs("exchange.to_numpy")
    def test_a_foreign_object_error_names_its_path(self, backend: str) -> None:
        class Stranger:
            to = "not callable"
            device = "cpu"

        for ask in (device_of, lambda s: to_device(s, home()), to_numpy, is_same_device):
            raised(NotATensorError, "Stranger")(ask, Stranger())
        raised(NotATensorError, r"\['deep'\]\[0\]\.x is of type Stranger")(
            device_of, {"deep": [Batch(Stranger())]}
        )

    def test_copy_true_copies_every_leaf(self, backend: str, x: Any) -> None:
        tree = {"x": x, "again": x, "n": 1}
        copied = to_device(tree, home(), copy=True)
        assert copied["x"] is copied["again"] is not x is tree["x"]

    def test_a_failed_move_moves_nothing(self, backend: str, x: Any) -> None:
        tree = {"a": x, "b": [np.ones(2), Point(x, 1)]}
        before = dict(tree)
        for device in (f"gpu:{count('gpu')}", "gpu:99"):
            raised(DeviceNotFoundError, r"at \['a'\]")(to_device, tree, device)
        assert all(tree[key] is before[key] for key in tree)
        assert device_of(tree["a"]) == home()

    @pytest.fixture(params=range(17))
    def nested(self, x: Any, request: pytest.FixtureRequest) -> Any:
        return trees(x)[request.param]

    def test_a_tree_keeps_types_and_other_leaves(self, backend: str, nested: Any) -> None:
        moved = to_device(nested, home(), copy=True)
        assert type(moved) is type(nested)
        assert moved is not nested
        assert (shape_of(moved), device_of(moved)) == (shape_of(nested), home())
        for kept in ("default_factory", "maxlen"):
            assert getattr(moved, kept, None) == getattr(nested, kept, None)
        if isinstance(nested, dict):
            assert list(moved) == list(nested)

    def test_an_unmoved_tree_is_returned_itself(self, backend: str, nested: Any) -> None:
        before = shape_of(nested)
        assert to_device(nested, home()) is nested
        assert shape_of(nested) == before

    def test_tensors_in_sets_move(self, backend: str, x: Any) -> None:
        try:
            tree = [{x, 1}, frozenset([x])]
        except (TypeError, NotImplementedError):  # this framework's tensors cannot be in a set
            return
        moved = to_device(tree, home(), copy=True)
        assert [type(part) for part in moved] == [set, frozenset]
        assert all(x is not element for part in moved for element in part)
        assert device_of(tree) == home()

    @pytest.mark.parametrize(
        "empty", [[], {}, (), deque(), defaultdict(int), {"a": []}, [None, "text"]]
    )
    def test_an_empty_tree_passes_through(self, backend: str, empty: Any) -> None:
        assert to_device(empty, home(), copy=True) == empty == to_device(empty, "gpu:99")

    def test_a_cyclic_tree_is_an_error(self, backend: str, x: Any) -> None:
        plain, own = [x], Rows([x])
        plain.append(plain)
        own.append(Batch(own))
        for tree in (plain, own):
            raised(ArgumentError, "contains itself")(to_device, tree, home())

    def test_attributes_of_containers_are_kept(self, backend: str, x: Any) -> None:
        moved = to_device(Picky(x), home(), copy=True)
        assert (moved.note, moved.y, moved.x is x) == ("kept", "y", False)

    def test_a_mapping_with_fields_moves_both(self, backend: str, x: Any) -> None:
        record = Record(x)
        record["key"] = x
        moved = to_device(record, home(), copy=True)
        assert moved.x is moved["key"] is not x
        assert record.x is record["key"] is x

    def test_an_uncopyable_container_is_unchanged(self, backend: str, x: Any) -> None:
        tree = Immovable(x=x)
        raised(ArgumentError, "gives itself")(to_device, tree, home(), copy=True)
        assert tree["x"] is x


class OpenWorld(Promises):
    @pytest.mark.parametrize(("holder", "says"), HOLDERS)
    def test_an_opaque_holder_error_names_its_path(
        self, backend: str, x: Any, holder: Any, says: str
    ) -> None:
        tree = {"x": x, "held": holder(x)}
        for ask in (device_of, devices_of, lambda t: to_device(t, home(), copy=True)):
            raised(NotATensorError, rf"{says}.*\['held'\]")(ask, tree)
        assert device_of(tree, skip=["held"]) == home()
        assert to_device(tree, home(), copy=True, skip=["['held']"])["held"] is tree["held"]

    @needs("exchange.to_numpy")
    def test_a_container_is_not_a_tensor(self, backend: str, x: Any) -> None:
        raised(NotATensorError, r"a dict is not a tensor; .* at \['a'\]\[0\]")(to_numpy, {"a": [x]})

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
        moved: Any = to_device(
            [SimpleNamespace(x=x, n=1), functools.partial(max, x, key=None)], home(), copy=True
        )
        assert moved[0].x is moved[1].args[0] is not x
        assert (moved[0].n, moved[1].func, moved[1].keywords) == (1, max, {"key": None})

    def test_numpy_text_and_scalars_are_data(self, backend: str, x: Any) -> None:
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
    def test_user_objects_move_between_devices(self, backend: str, two_gpus: Any) -> None:
        x = ones((2, 3), device=FIRST)
        tree: Any = {
            "boxes": Boxes(x),
            "space": SimpleNamespace(x=x),
            "names": np.array(["a"]),
            "rate": np.float32(1),
        }
        moved = to_device(tree, SECOND)
        assert [device_of(each) for each in (moved, moved["boxes"].x, moved["space"].x)] == [
            SECOND
        ] * 3
        assert moved["names"] is tree["names"]
        assert device_of(tree) == FIRST
        assert raised(MixedDeviceError, r"\['boxes'\]")(device_of, [tree, moved]).devices == {
            FIRST,
            SECOND,
        }

    @needs("creation.tensor")
    def test_a_list_on_mixed_devices_is_an_error(self, backend: str, two_gpus: Any) -> None:
        x, y = tensor(1.0, device=FIRST), tensor(2.0, device=SECOND)
        for data, path in (([x, y], "[1]"), ([0.0, x, y], "[2]"), ([[x], (y,)], "[1][0]")):
            assert raised(MixedDeviceError, re.escape(path))(tensor, data).devices == {
                FIRST,
                SECOND,
            }

    @needs("creation.ones")
    def test_numpy_to_gpu_error_omits_try_gpu(self, backend: str, two_gpus: Any) -> None:
        tree = {"x": ones(3, device=FIRST), "n": np.ones(3)}
        assert "fall back" not in str(
            raised(XDeviceError, r"numpy.*\['n'\]")(to_device, tree, SECOND)
        )
        assert device_of(tree["x"]) == FIRST
        assert device_of(to_device(tree, SECOND, skip="n")["x"]) == SECOND
