"""Containers of classes that mean something else by Python's own methods, and of libraries that users bring."""

import types
from threading import Lock

import attrs
import numpy as np
import pytest

import xdevice
from xdevice.tensors.trees.by_place import LeavesByPlace
from xdevice.tensors.trees.tree import FlatTree


class Filtering(set):
    """It is made from something else than its elements, and hides them."""

    def __init__(self, name, elements):
        super().__init__(elements)
        self.name = name

    def __iter__(self):
        return iter(())


class Frozen(frozenset):
    def __new__(cls, name, elements):
        return super().__new__(cls, elements)


@pytest.mark.parametrize("cls", [Filtering, Frozen])
def test_a_set_keeps_its_class_and_elements(cls):
    x = np.float32(2)  # an array cannot be in a set
    moved = FlatTree(cls("name", [x])).map(lambda leaf: np.float32(3) if leaf is x else leaf)
    assert type(moved) is cls
    assert list(cls.__mro__[1].__iter__(moved)) == [3]
    assert getattr(moved, "name", "name") == "name"


class Attributes(dict):
    __getattr__ = dict.__getitem__


class Raising:
    """It answers to no question about its attributes."""

    def __init__(self):
        self.rate = 0.1

    def __getattr__(self, name):
        raise RuntimeError(name)


def test_a_class_whose_attributes_raise_is_asked_for_none():
    moved = xdevice.to_device({"d": Attributes(x=np.ones(2)), "r": Raising()}, "cpu", copy=True)
    assert type(moved["d"]) is Attributes
    assert moved["d"].x.tolist() == [1, 1]
    assert xdevice.device_of(moved) == xdevice.cpu()
    holding = Raising()
    holding.x = np.ones(2)
    with pytest.raises(xdevice.NotATensorError, match=r"Raising\.x is a tensor"):
        xdevice.device_of([holding])


@attrs.frozen
class Point:
    x: object
    y: object = None


@attrs.define
class Mutable:
    x: object


def test_attrs_classes_are_opened():
    x = np.ones(2)
    moved = xdevice.to_device([Point(x, "kept"), Mutable(x)], "cpu", copy=True)
    assert type(moved[0]) is Point
    assert type(moved[1]) is Mutable
    assert moved[0].x is moved[1].x is not x
    assert moved[0].y == "kept"
    assert LeavesByPlace([Point(x), Mutable(x)]).paths == ["[0].x", "[0].y", "[1].x"]


@attrs.define(auto_exc=True)
class FailureError(Exception):
    text: str
    x: object


def test_what_a_base_in_c_stores_is_not_lost():
    with pytest.raises(xdevice.ArgumentError, match="cannot be rebuilt"):
        xdevice.to_device([FailureError("text", np.ones(2))], "cpu", copy=True)


class Unbound:
    """A proxy without its object, as a web framework has them."""

    @property
    def __class__(self):
        raise RuntimeError("there is no object")


class Malformed:
    def __reduce_ex__(self, protocol):
        return (len,)


@pytest.mark.parametrize("other", [Unbound, Malformed, Lock])
def test_a_tensor_after_what_cannot_be_searched_is_found(other):
    holder = types.new_class("Holder")()
    holder.other = other()
    holder.x = np.ones(2)
    with pytest.raises(xdevice.NotATensorError, match=r"Holder\.x is a tensor"):
        xdevice.device_of([holder, np.ones(2)])


def test_an_array_of_objects_alone_is_an_array_on_the_cpu():
    for content in (None, np.ones(3)):
        alone = np.array([content, None], object)
        assert xdevice.device_of(alone) == xdevice.cpu()
        copied = xdevice.to_device(alone, "cpu", copy=True)
        assert copied is not alone
        assert copied[0] is alone[0]


def test_generators_of_random_numbers_are_data():
    tree = {"x": np.ones(2), "rng": np.random.default_rng(0), "old": np.random.RandomState(0)}
    tree["bits"], tree["seed"] = tree["rng"].bit_generator, np.random.SeedSequence(1)
    moved = xdevice.to_device(tree, "cpu", copy=True)
    assert all(moved[name] is tree[name] for name in tree if name != "x")


def test_what_a_class_is_is_found_out_once(monkeypatch):
    placement = xdevice.backend("numpy").placement
    asked = []
    really = placement.category
    monkeypatch.setattr(placement, "category", lambda cls: asked.append(cls) or really(cls))

    class Config:
        rate = 0.1

    tree = [np.ones(2), *(Config() for _ in range(100))]
    for _ in range(2):
        xdevice.to_device(tree, "cpu", copy=True)
    assert asked.count(Config) == 1
