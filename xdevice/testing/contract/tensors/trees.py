"""Trees: containers of every kind keep what they are, and what is in them moves."""

from __future__ import annotations

import copy
from collections import OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from xdevice import check_same_device, count, device_of, devices_of, is_same_device, to_device, to_numpy
from xdevice.errors import ArgumentError, DeviceNotFoundError, NotATensorError
from xdevice.testing.contract.promises import Promises, home, needs


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


class Config(dict[str, Any]):
    """A subclass of dict, as configuration objects often are."""


class Rows(list[Any]):
    pass


class Queue(deque[Any]):
    pass


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


def trees(x: Any) -> list[Any]:
    """One tensor in containers of every kind."""
    mapping: Any = defaultdict(list, {"b": [x], "a": 1})
    return [
        {"x": x, "text": "a", "none": None},
        [x, 1, "two"],
        (x, (x, [x])),
        Point(x, 2),
        mapping,
        OrderedDict([("z", x), ("a", x)]),
        deque([x, 1], maxlen=5),
        Batch(x),
        Frozen(x, {"deep": [x]}),
        Slotted(x),
        Config(x=x),
        Rows([x]),
        UserDict({"x": x}),
        Queue([x], maxlen=5),
        Picky(x),
        HandSlotted(x),
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
            with pytest.raises(NotATensorError) as error:
                ask(tree)
            assert isinstance(error.value, TypeError)
            assert type(tree).__name__ in str(error.value)

    @needs("exchange.to_numpy")
    def test_a_foreign_object_error_names_its_path(self, backend: str) -> None:
        class Stranger:
            to = "not callable"
            device = "cpu"

        for ask in (device_of, lambda s: to_device(s, home()), to_numpy, is_same_device):
            with pytest.raises(NotATensorError, match="Stranger"):
                ask(Stranger())
        with pytest.raises(NotATensorError, match=r"\['deep'\]\[0\]\.x is of type Stranger"):
            device_of({"deep": [Batch(Stranger())]})

    def test_copy_true_copies_every_leaf(self, backend: str, x: Any) -> None:
        tree = {"x": x, "again": x, "n": 1}
        copied = to_device(tree, home(), copy=True)
        assert copied["x"] is not x
        assert copied["x"] is copied["again"]
        assert tree["x"] is x

    def test_a_failed_move_moves_nothing(self, backend: str, x: Any) -> None:
        tree = {"a": x, "b": [np.ones(2), Point(x, 1)]}
        shallow = copy.copy(tree)
        for device in (f"gpu:{count('gpu')}", "gpu:99"):
            with pytest.raises(DeviceNotFoundError, match=r"at \['a'\]"):
                to_device(tree, device)
        assert all(tree[key] is shallow[key] for key in tree)
        assert device_of(tree["a"]) == home()

    @pytest.mark.parametrize("which", range(17))
    def test_a_tree_keeps_types_and_other_leaves(self, backend: str, x: Any, which: Any) -> None:
        tree = trees(x)[which]
        moved = to_device(tree, home(), copy=True)
        assert type(moved) is type(tree)
        assert moved is not tree
        assert shape_of(moved) == shape_of(tree)
        assert device_of(moved) == home()
        if isinstance(tree, defaultdict):
            assert moved.default_factory is list
        if isinstance(tree, deque):
            assert moved.maxlen == 5
        if isinstance(tree, dict):
            assert list(moved) == list(tree)

    @pytest.mark.parametrize("which", range(17))
    def test_an_unmoved_tree_is_returned_itself(self, backend: str, x: Any, which: Any) -> None:
        tree = trees(x)[which]
        before = shape_of(tree)
        assert to_device(tree, home()) is tree
        assert shape_of(tree) == before

    def test_tensors_in_sets_move(self, backend: str, x: Any) -> None:
        try:
            tree = [{x, 1}, frozenset([x])]
        except (TypeError, NotImplementedError):  # this framework's tensors cannot be in a set
            return
        moved = to_device(tree, home(), copy=True)
        assert [type(part) for part in moved] == [set, frozenset]
        assert all(x is not element for part in moved for element in part)
        assert device_of(tree) == home()

    @pytest.mark.parametrize("empty", [[], {}, (), deque(), defaultdict(int), {"a": []}, [None, "text"]])
    def test_an_empty_tree_passes_through(self, backend: str, empty: Any) -> None:
        assert to_device(empty, home(), copy=True) == empty
        assert to_device(empty, "gpu:99") == empty

    def test_a_cyclic_tree_is_an_error(self, backend: str, x: Any) -> None:
        plain, own = [x], Rows([x])
        plain.append(plain)
        own.append(Batch(own))
        for tree in (plain, own):
            with pytest.raises(ArgumentError, match="contains itself"):
                to_device(tree, home())

    def test_attributes_of_containers_are_kept(self, backend: str, x: Any) -> None:
        moved = to_device(Picky(x), home(), copy=True)
        assert (moved.note, moved.y) == ("kept", "y")
        assert moved.x is not x

    def test_a_mapping_with_fields_moves_both(self, backend: str, x: Any) -> None:
        record = Record(x)
        record["key"] = x
        moved = to_device(record, home(), copy=True)
        assert moved.x is moved["key"]
        assert moved.x is not x
        assert record.x is record["key"] is x

    def test_an_uncopyable_container_is_unchanged(self, backend: str, x: Any) -> None:
        tree = Immovable(x=x)
        with pytest.raises(ArgumentError, match="gives itself"):
            to_device(tree, home(), copy=True)
        assert tree["x"] is x

    def test_numpy_text_is_not_a_tensor(self, backend: str, x: Any) -> None:
        tree = {"x": x, "label": np.str_("cat"), "day": np.datetime64("2020-01-01")}
        assert device_of(tree) == home()
        assert to_device(tree, home(), copy=True)["label"] is tree["label"]
        with pytest.raises(NotATensorError):
            device_of(np.str_("cat"))
