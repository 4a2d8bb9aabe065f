"""Containers of classes that mean something else by Python's own methods, and of libraries that users bring."""

import gc
import sys
import types
import unittest.mock
import weakref
from collections import deque

import msgspec
import numpy as np
import pytest

import xdevice
from xdevice.tensors.trees.tree import flatten


class Backwards:
    """Python's own items come in another order from its own ``__iter__``, and ``__len__`` is one too many."""

    def __iter__(self):
        return reversed([self[i] for i in range(2)])

    def __len__(self):
        return 3


class BackwardsList(Backwards, list):
    pass


class BackwardsTuple(Backwards, tuple):
    __slots__ = ()


class BackwardsDeque(Backwards, deque):
    pass


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


@pytest.mark.parametrize("cls", [BackwardsList, BackwardsTuple, BackwardsDeque])
def test_items_stay_where_they_are_whatever_the_class_means_by_iterating(cls):
    base = cls.__mro__[2]
    x, y = np.zeros(2), np.ones(2)
    moved = xdevice.to_device(cls([x, y]), "cpu", copy=True)
    assert type(moved) is cls
    assert base.__len__(moved) == 2
    assert [part.tolist() for part in base.__iter__(moved)] == [[0, 0], [1, 1]]
    assert flatten(cls([x, y])).paths == ("[0]", "[1]")


@pytest.mark.parametrize("cls", [Filtering, Frozen])
def test_a_set_keeps_its_class_and_elements(cls):
    x = np.float32(2)  # an array cannot be in a set
    moved = flatten(cls("name", [x])).map(lambda leaf: np.float32(3) if leaf is x else leaf)
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


class Array(np.ndarray):
    """An array that can be referred to weakly by a mapping."""


@pytest.mark.parametrize(
    "refer",
    [
        lambda x: weakref.WeakValueDictionary(x=x),
        lambda x: weakref.ref(x),
        lambda x: weakref.proxy(x),
        lambda x: {"deep": [weakref.ref(x)]},
    ],
)
def test_a_weak_reference_to_a_tensor_does_not_stay_behind(refer):
    x = np.ones(2).view(Array)
    root = {"x": x, "weak": refer(x)}
    with pytest.raises(xdevice.NotATensorError, match=r"\['weak'\]"):
        xdevice.to_device(root, "cpu", copy=True)
    assert xdevice.to_device(root, "cpu", copy=True, skip="weak")["weak"] is root["weak"]


def test_a_weak_reference_to_plain_data_is_plain_data():
    target = Raising()
    tree = [
        np.ones(2),
        weakref.ref(target),
        weakref.WeakValueDictionary(a=target),
        weakref.WeakSet([target]),
    ]
    moved = xdevice.to_device(tree, "cpu", copy=True)
    assert all(a is b for a, b in zip(moved[1:], tree[1:], strict=True))
    del target
    gc.collect()
    assert tree[1]() is None
    assert xdevice.device_of(tree) == xdevice.cpu()


@pytest.mark.parametrize(
    "make", [unittest.mock.Mock, unittest.mock.MagicMock, unittest.mock.NonCallableMock]
)
def test_a_mock_is_refused_and_not_changed(make):
    mock = make()
    before = set(mock._mock_children)
    with pytest.raises(xdevice.NotATensorError, match=r"Mock has every attribute .*\[1\]"):
        xdevice.device_of([np.ones(2), mock])
    assert set(mock._mock_children) == before


class Point(msgspec.Struct):
    x: object
    y: object = None


class Constant(msgspec.Struct, frozen=True):
    x: object


def test_msgspec_structs_are_opened():
    x = np.ones(2)
    moved = xdevice.to_device([Point(x, "kept"), Constant(x)], "cpu", copy=True)
    assert type(moved[0]) is Point
    assert type(moved[1]) is Constant
    assert moved[0].x is moved[1].x is not x
    assert moved[0].y == "kept"
    assert flatten([Point(x), Constant(x)]).paths == ("[0].x", "[0].y", "[1].x")


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


def test_a_fitted_estimator_that_computes_on_the_host_is_data():
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])
    models = [make_pipeline(StandardScaler(), LinearRegression()), RandomForestClassifier(3)]
    tree = {"x": x, "models": [model.fit(x, y) for model in models]}
    moved = xdevice.to_device(tree, "cpu", copy=True)
    assert moved["x"] is not x
    assert all(a is b for a, b in zip(moved["models"], models, strict=True))
    with pytest.raises(xdevice.NotATensorError):
        xdevice.device_of(models[0])


def test_what_a_class_is_is_found_out_once_and_again_when_a_framework_is_imported(monkeypatch):
    placement = xdevice.backend("numpy").placement
    asked = []
    really = placement.role
    monkeypatch.setattr(placement, "role", lambda cls: asked.append(cls) or really(cls))

    class Config:
        rate = 0.1

    tree = [np.ones(2), *(Config() for _ in range(100))]
    for _ in range(2):
        xdevice.to_device(tree, "cpu", copy=True)
    assert asked.count(Config) == 1
    absent = next(name for name in ("mxnet", "cupy") if name not in sys.modules)
    monkeypatch.setitem(sys.modules, absent, types.ModuleType(absent))  # a file of the user's, say
    for _ in range(2):
        xdevice.to_device(tree, "cpu", copy=True)
    assert 1 < asked.count(Config) <= 3


def test_a_graph_of_tasks_has_no_device():
    class Array:  # the method by which dask knows its collections
        def __dask_graph__(self):
            return {}

    x = Array()
    for call in (
        lambda: xdevice.device_of(x),
        lambda: xdevice.to_device({"x": x}, "cpu"),
        lambda: xdevice.namespace(x),
        lambda: xdevice.backend_of([x]),
    ):
        with pytest.raises(xdevice.NotATensorError, match=r"no device before .* x\.compute\(\)"):
            call()
