"""Trees flattened and rebuilt, on Python's own containers and NumPy's arrays."""

import array
import copy
import enum
import functools
import importlib.machinery
import pathlib
import sys
import types
import unittest.mock
import weakref
from collections import (
    ChainMap,
    OrderedDict,
    UserDict,
    UserList,
    UserString,
    defaultdict,
    deque,
    namedtuple,
)
from contextvars import ContextVar
from dataclasses import dataclass, make_dataclass
from functools import cached_property
from operator import is_
from threading import Lock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import xdevice
from xdevice.tensors.trees.by_place import LeavesByPlace
from xdevice.tensors.trees.containers import containers
from xdevice.tensors.trees.tree import FlatTree, at_path

Pair = namedtuple("Pair", ["x", "y"])


@dataclass
class Batch:
    x: object
    extra: object = None


@dataclass(frozen=True)
class Derived:
    x: object

    def __post_init__(self):
        object.__setattr__(self, "made", [self.x])

    @cached_property
    def cached(self):
        return self.x + 1


class Base:
    __slots__ = ("__private",)

    def hide(self, value):
        self.__private = value

    def shown(self):
        return self.__private


@dataclass
class Slotted(Base):
    x: object


class AttributeDict(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Colour(enum.Enum):
    RED = 1


leaf = st.one_of(
    st.integers(),
    st.text(max_size=3),
    st.none(),
    st.builds(lambda n: np.full(2, n), st.integers(0, 9)),
)
tree = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.integers() | st.text(max_size=1), inner, max_size=3).map(OrderedDict),
        st.lists(inner, max_size=3).map(deque),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        st.tuples(inner, inner).map(lambda pair: Batch(*pair)),
        st.tuples(inner, inner).map(lambda pair: types.SimpleNamespace(a=pair[0], b=pair[1])),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(lambda d: defaultdict(list, d)),
    ),
    max_leaves=12,
)


def at(root, path):
    """What a path names, asked of Python itself."""
    return eval("root" + path, {"root": root})


@given(tree)
def test_every_leaf_is_found_at_its_path(root):
    flat = LeavesByPlace(root)
    for path, found in [*zip(flat.paths, flat.leaves, strict=True), *FlatTree(root).named()]:
        assert at(root, path) is found


@given(tree)
def test_a_tree_rebuilt_from_its_own_leaves_is_itself(root):
    assert FlatTree(root).replace({}) is root
    assert LeavesByPlace(root).rebuild(LeavesByPlace(root).leaves) is root


def copied(leaf):
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


@given(tree)
def test_a_tree_rebuilt_from_copies_has_its_structure_and_types_and_shares_no_changed_leaf(root):
    before = LeavesByPlace(root)
    leaves = list(before.leaves)
    for rebuilt in (FlatTree(root).map(copied), before.rebuild(map(copied, leaves))):
        after = LeavesByPlace(rebuilt)
        assert type(rebuilt) is type(root)
        assert before.paths == after.paths
        for a, b in zip(before.leaves, after.leaves, strict=True):
            assert (a is not b and np.array_equal(a, b)) if isinstance(a, np.ndarray) else a is b
    assert all(map(is_, LeavesByPlace(root).leaves, leaves))


def test_dicts_whose_keys_came_in_another_order_correspond():
    a, b = LeavesByPlace({"x": 1, "y": 2}), LeavesByPlace({"y": 20, "x": 10})
    assert a.paths == b.paths
    assert dict(zip(a.leaves, b.leaves, strict=True)) == {1: 10, 2: 20}
    assert b.rebuild([3, 4]) == {"x": 3, "y": 4}
    assert list(b.rebuild([3, 4])) == ["y", "x"]


def test_a_container_that_appears_twice_stays_shared():
    layer = {"w": np.ones(2)}
    moved = xdevice.to_device({"a": layer, "b": layer, "w": layer["w"]}, "cpu", copy=True)
    assert moved["a"] is moved["b"] is not layer
    assert moved["w"] is moved["a"]["w"] is not layer["w"]


def doubled(leaf, levels):
    """A list that contains one list twice, and so on: its places double with each level."""
    root = [leaf]
    for _ in range(levels):
        root = [root, root]
    return root


def test_a_container_that_appears_again_is_opened_once():
    x = np.ones(2)
    root = doubled(x, 12)
    assert FlatTree(root).leaves == [x]
    assert len(LeavesByPlace(root).leaves) == 2**12
    level = FlatTree(root).replace({id(x): 5})
    for _ in range(12):
        assert level[0] is level[1]
        level = level[0]
    assert level == [5]


def test_a_container_that_appears_again_is_shared_at_any_level():
    inner = [np.ones(1)]
    middle = (inner, [inner])
    tree = {"a": inner, "b": [middle, middle], "c": middle}
    moved = xdevice.to_device(tree, "cpu", copy=True)
    assert moved["a"] is moved["c"][0] is moved["c"][1][0] is not inner
    assert moved["b"][0] is moved["b"][1] is moved["c"]


def test_skip_names_a_part_of_one_container_that_stays_shared():
    x, y = np.ones(1), np.ones(2)
    inner = {"x": x, "y": y}
    outer = [inner, inner]
    for path in ("['a'][0]['x']", "['b'][1]['x']"):
        moved = xdevice.to_device({"b": outer, "a": outer}, "cpu", copy=True, skip=[path])
        assert moved["a"] is moved["b"]
        assert moved["a"][0] is moved["a"][1]
        assert moved["a"][0]["x"] is x
        assert moved["a"][0]["y"] is not y
    moved = xdevice.to_device(types.SimpleNamespace(a=outer, b=outer), "cpu", copy=True, skip="a")
    assert moved.a is outer
    assert moved.b[0] is moved.b[1]
    assert moved.b[0]["x"] is not x
    for index in (1, [1]):
        moved = xdevice.to_device([x, [x, y]], "cpu", copy=True, skip=index)
        assert moved[0] is not x
        assert moved[1][1] is y


def test_what_skip_names_in_vain_leaves_containers_shared():
    shared = {"x": [np.ones(1)]}
    for path in ("['a']['x'][1]", "['a']['y']", "z"):
        moved = xdevice.to_device({"a": shared, "b": shared}, "cpu", copy=True, skip=path)
        assert moved["a"] is moved["b"] is not shared


@pytest.mark.parametrize("skip", ["label", "[1]" * 200 + "[0]", "[1][0][1]"])
def test_skip_takes_no_longer_for_a_container_that_appears_again(skip):
    x = np.ones(1)
    assert len(FlatTree(doubled(x, 200), skip).leaves) < 500


def test_an_error_names_the_first_place_of_a_container():
    holder = [Holder(x=np.ones(1))]
    with pytest.raises(xdevice.NotATensorError, match=r"\(at \['a'\]\[0\]\)"):
        xdevice.to_device({"a": holder, "b": [holder]}, "cpu", copy=True)


def test_trees_that_share_other_containers_correspond_by_place():
    x, y = np.ones(1), np.zeros(1)
    shared = [x]
    results = xdevice.all_reduce([[shared, shared], [[x], [y]]])
    assert [[float(leaf[0]) for (leaf,) in tree] for tree in results] == [[2, 1], [2, 1]]


def test_too_many_places_of_one_container_are_refused():
    """By the core alone, which counts for half a second: that is no promise of each adapter."""
    tree = doubled(np.ones(1), 60)
    with pytest.raises(xdevice.ArgumentError, match="pass each container once"):
        xdevice.all_reduce([tree, tree])


def test_trees_may_be_deeper_than_the_stack_of_python():
    deep = 5000
    root = x = np.ones(1)
    for _ in range(deep):
        root = Batch(root)
    moved = xdevice.to_device(root, "cpu", copy=True)
    for _ in range(deep):
        moved = moved.x
    assert moved is not x
    assert xdevice.device_of(root) == xdevice.cpu()


def test_attributes_that_are_no_fields_move_as_well():
    original = Derived(np.ones(2))
    assert original.cached[0] == 2
    moved = xdevice.to_device(original, "cpu", copy=True)
    assert moved.made[0] is moved.x is not original.x
    assert moved.__dict__["cached"] is not original.cached


def test_a_private_slot_of_a_base_class_is_kept_and_moves():
    original = Slotted(1)
    original.hide(np.ones(2))
    moved = xdevice.to_device(original, "cpu", copy=True)
    assert moved.shown() is not original.shown()
    assert moved.x == 1
    assert xdevice.device_of(original) == xdevice.cpu()


def test_a_slot_hides_that_of_a_base_class():
    class A:
        __slots__ = ("x",)

    @dataclass
    class B(A):
        __slots__ = ("x", "y")
        x: object
        y: object

    moved = xdevice.to_device(B(np.ones(1), np.ones(2)), "cpu", copy=True)
    assert (len(moved.x), len(moved.y)) == (1, 2)


def test_a_dict_that_is_its_own_attributes_stays_one():
    original = AttributeDict(x=np.ones(2), y=1)
    moved = xdevice.to_device(original, "cpu", copy=True)
    assert moved.x is moved["x"] is not original.x
    moved.y = 5
    assert moved["y"] == 5
    assert original.y == 1
    assert LeavesByPlace(original).paths == ["['x']", "['y']"]


def test_an_ordered_dict_keeps_its_attributes():
    state = OrderedDict(w=np.ones(2))
    state._metadata = OrderedDict({"": {"version": 2}})
    assert xdevice.to_device(state, "cpu", copy=True)._metadata == {"": {"version": 2}}


def test_optree_nodes_are_opened_as_registered():
    import optree

    class Node:
        def __init__(self, x, static):
            self.x, self.static = x, static

    optree.register_pytree_node(
        Node,
        lambda n: ((n.x,), n.static, ("x",)),
        lambda static, kids: Node(*kids, *([] if static == "missing" else [static])),
        namespace=optree.registry.__GLOBAL_NAMESPACE,
    )
    try:
        with pytest.raises(xdevice.ArgumentError, match="this Node cannot be rebuilt"):
            xdevice.to_device(Node(np.ones(2), "missing"), "cpu", copy=True)
        original = Node(np.ones(2), "kept")
        moved = xdevice.to_device({"n": original}, "cpu", copy=True)["n"]
        assert moved.x is not original.x
        assert moved.static == "kept"
        assert LeavesByPlace(original).paths == [".x"]
        holding = {"n": Node(np.ones(2), [np.ones(2)])}
        with pytest.raises(
            xdevice.NotATensorError, match=r"Node\.static holds a tensor .*static.*\['n'\]"
        ):
            xdevice.device_of(holding)
        for skip in ("static", "['n'].static"):
            assert xdevice.device_of(holding, skip=[skip]) == xdevice.cpu()
        for skip in ("a static part", 0, "['m'].static"):  # none is its name
            with pytest.raises(xdevice.NotATensorError, match="registered as static"):
                xdevice.device_of(holding, skip=skip)
    finally:
        optree.unregister_pytree_node(Node, namespace=optree.registry.__GLOBAL_NAMESPACE)


def test_a_static_part_that_is_no_attribute_is_seen_beside_what_is_skipped():
    import optree

    hidden = []

    class Node:
        def __init__(self, x):
            self.x = x

    namespace = optree.registry.__GLOBAL_NAMESPACE
    optree.register_pytree_node(
        Node,
        lambda n: ((n.x,), hidden[:], ("x",)),
        lambda _, kids: Node(*kids),
        namespace=namespace,
    )
    try:
        assert xdevice.device_of([Node(np.ones(2)), np.ones(2)], skip="x") == xdevice.cpu()
        hidden.append(np.ones(2))
        for skip in ((), "x"):
            with pytest.raises(xdevice.NotATensorError, match="the static part of this Node"):
                xdevice.device_of([Node(np.ones(2)), np.ones(2)], skip=skip)
    finally:
        optree.unregister_pytree_node(Node, namespace=namespace)


def test_a_failed_copy_leaves_objects_that_move_themselves_alone():
    calls = []

    class Movable:
        def __init__(self, fails):
            self.x, self.fails = np.ones(2), fails

        def clone(self):
            return Movable(self.fails)

        def to(self, device):
            calls.append(self)
            if self.fails:
                raise RuntimeError
            return self

    tree = [Movable(False), Movable(True)]
    with pytest.raises(RuntimeError):
        xdevice.to_device(tree, "cpu", copy=True)
    assert len(calls) == 2
    assert not set(map(id, calls)).intersection(map(id, tree))


def test_a_search_for_tensors_uses_up_no_iterator_of_an_object():
    class Stream:
        def __init__(self):
            self.items = iter([1, 2])

        def __getstate__(self):
            return self.items

    stream = Stream()
    assert xdevice.device_of([stream, np.ones(2)]) == xdevice.cpu()
    assert list(stream.items) == [1, 2]


def test_how_a_class_is_opened_is_not_kept_while_its_module_is_being_imported(monkeypatch):
    module = types.ModuleType("some_module")
    module.__spec__ = importlib.machinery.ModuleSpec("some_module", None)
    module.__spec__._initializing = True
    monkeypatch.setitem(sys.modules, "some_module", module)
    cls = make_dataclass("Batch", ["x"], namespace={"__module__": "some_module"})
    for is_being_imported in (True, False):
        module.__spec__._initializing = is_being_imported
        assert xdevice.device_of(cls(np.ones(2))) == xdevice.cpu()
        assert (cls in containers) is not is_being_imported


def test_a_class_that_only_a_namespace_of_optree_knows_is_not_opened():
    import optree

    class Node:
        def __init__(self, x):
            self.x = x

    optree.register_pytree_node(
        Node, lambda n: ((n.x,), None), lambda _, kids: Node(*kids), namespace="mine"
    )
    try:
        with pytest.raises(xdevice.NotATensorError, match=r"Node\.x is a tensor"):
            xdevice.device_of([Node(np.ones(2))])
    finally:
        optree.unregister_pytree_node(Node, namespace="mine")


# ---------------------------------------------------------------- leaves


class Holder:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self):
        return self


class WithSlots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


ONES = np.ones(2)
FILLED = ContextVar("context")
FILLED.set(ONES)


class Unpicklable:
    """A class may forbid to be pickled, and then its objects are not searched."""

    def __init__(self, x):
        self.x = x

    def __reduce_ex__(self, protocol):
        raise TypeError("it holds a connection")


class Boxes:
    """As a detector has them: it moves itself, and says where it is."""

    def __init__(self, x):
        self.x, self.moves = x, 0

    @property
    def device(self):
        return "cpu"

    def to(self, device):
        new = type(self)(self.x.copy())
        new.moves = self.moves + 1
        return new


class Sneaky(Boxes):
    device = None  # it does not say where it is: its tensors are asked


@dataclass
class MovingData:
    x: object

    def to(self, device):
        return MovingData(self.x.copy())


@pytest.mark.parametrize(
    "data",
    [
        *(
            None,
            1,
            1.5,
            2j,
            True,
            "text",
            b"bytes",
            bytearray(b"x"),
            range(3),
            slice(1, 2),
            ...,
            NotImplemented,
        ),
        *(
            Colour.RED,
            pathlib.Path("x"),
            pathlib.PurePosixPath("x"),
            print,
            len,
            np.add,
            int,
            Batch,
            functools,
        ),
        *(
            np.dtype("f4"),
            np.str_("x"),
            np.datetime64("2020"),
            np.array(["a"]),
            np.array([{1: 2}], object),
        ),
        *(
            np.float32(1),
            xdevice.cpu(),
            lambda: None,
            UserString("x").upper,
            object(),
            ValueError("x"),
        ),
        *(UserString("x"), array.array("f", [1]), Lock(), unittest.mock.Mock()),
        # what cannot be pickled is not searched
        *((part for part in [np.ones(2)]), types.MappingProxyType({"x": np.ones(2)})),
        *({"x": np.ones(2)}.values(), FILLED),
        *(Unpicklable(np.ones(2)), lambda x=ONES: x, weakref.ref(Holder)),
        Holder(name="config", rate=0.1, nested={"a": [1, 2]}),
    ],
    ids=lambda x: type(x).__name__,
)
def test_plain_data_passes_through(data):
    x = np.ones(2)
    root = {"x": x, "data": data}
    moved = xdevice.to_device(root, "cpu", copy=True)
    assert moved["x"] is not x
    assert moved["data"] is data
    assert xdevice.device_of(root) == xdevice.cpu()


def test_dates_decimals_and_patterns_pass_through():
    import datetime
    import decimal
    import fractions
    import re
    import uuid

    data = [
        datetime.datetime.now(),
        datetime.date.today(),
        datetime.timedelta(1),
        decimal.Decimal(1),
    ]
    data += [fractions.Fraction(1, 2), re.compile("x"), uuid.uuid4(), datetime.timezone.utc]
    assert xdevice.device_of([np.ones(2), *data]) == xdevice.cpu()


@pytest.mark.parametrize(
    ("holder", "path"),
    [
        (lambda x: Holder(x=x), "Holder.x is a tensor"),
        (lambda x: Holder(deep={"a": [x]}), "Holder.deep['a'][0] is a tensor"),
        (lambda x: Holder(deep=Holder(x=x)), "Holder.deep.x is a tensor"),
        (lambda x: Holder(lock=Lock(), x=x), "Holder.x is a tensor"),
        (lambda x: WithSlots(x), "WithSlots.x is a tensor"),
        (lambda x: UserDict(x=x), "UserDict.data['x'] is a tensor"),
        (lambda x: UserList([x]), "UserList.data[0] is a tensor"),
        (lambda x: ChainMap({"x": x}), "ChainMap.maps[0]['x'] is a tensor"),
        (lambda x: functools.partial(max, x), "partial holds a tensor"),
        (lambda x: np.array([x, None], object), "ndarray holds a tensor"),
        (lambda x: iter([x]), "list_iterator holds a tensor"),
        (lambda x: ValueError("x", x), "ValueError holds a tensor"),
        (lambda x: slice(x, None), "slice holds a tensor"),
        (lambda x: Holder(x=x).method, "method holds a tensor"),
        (
            lambda x: Holder(many=[*((i,) for i in range(20_000)), (x,)]),
            "too much in it to be searched",
        ),
    ],
)
def test_what_holds_a_tensor_and_cannot_be_rebuilt_is_an_error_with_its_path(holder, path):
    root = {"x": np.ones(2), "held": holder(np.ones(3))}
    for ask in (
        xdevice.device_of,
        xdevice.devices_of,
        lambda r: xdevice.to_device(r, "cpu", copy=True),
    ):
        with pytest.raises(xdevice.NotATensorError) as error:
            ask(root)
        assert path in str(error.value)
        assert "['held']" in str(error.value)
    assert xdevice.device_of(root, skip=["held"]) == xdevice.cpu()
    assert xdevice.to_device(root, "cpu", copy=True, skip=["held"])["held"] is root["held"]


@pytest.mark.parametrize("ask", [xdevice.device_of, xdevice.devices_of])
def test_a_second_tensor_is_not_taken_for_what_to_skip(ask):
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        ask(np.ones(3), np.ones(3))


def test_an_array_of_objects_that_is_alone_in_a_tree_is_searched_too():
    root = [np.array([np.ones(3), None], object)]
    for ask in (
        xdevice.device_of,
        lambda r: xdevice.to_device(r, "cpu"),
        lambda r: xdevice.to_device(r, "cpu", copy=True),
    ):
        with pytest.raises(xdevice.NotATensorError, match="ndarray holds a tensor"):
            ask(root)


class Raising(Boxes):
    @property
    def device(self):
        raise RuntimeError("it does not say")


class ByKeyword(Boxes):
    def to(self, *, device):
        return super().to(device)


@pytest.mark.parametrize("cls", [Boxes, Sneaky, MovingData, Raising, ByKeyword])
def test_an_object_with_a_method_to_is_moved_by_it(cls):
    original = cls(np.ones(2))
    assert xdevice.to_device({"b": original}, "cpu")["b"] is original
    moved = xdevice.to_device({"b": original}, "cpu", copy=True)["b"]
    assert type(moved) is cls
    assert moved is not original
    assert moved.x is not original.x
    assert xdevice.device_of(original) == xdevice.device_of([original]) == xdevice.cpu()
    assert xdevice.to_device(original, "cpu") is original


def test_names_and_paths_can_be_skipped():
    x, y = np.ones(2), np.ones(3)
    root = {"keep": [x, {"meta": Holder(x=y)}], "meta": [y], "b": Batch(x, y)}
    for path in ("['b'].extra", '["b"].extra'):  # as errors write it, and as Black does
        moved = xdevice.to_device(root, "cpu", copy=True, skip=["meta", path])
        assert moved["meta"] is root["meta"]
        assert moved["keep"][1]["meta"] is root["keep"][1]["meta"]
        assert moved["keep"][0] is moved["b"].x is not x
        assert moved["b"].extra is y


def test_skip_compares_whole_keys():
    keys = ("[CLS]", "x.", "C:\\x", "a", 0, "0", "it's", 'say "hi"]')
    tree = {key: np.ones(1) for key in keys}
    for key in tree:
        for skip in (key, [key], f"[{key!r}]"):
            moved = xdevice.to_device(tree, "cpu", copy=True, skip=skip)
            assert [other for other in tree if moved[other] is tree[other]] == [key]
    assert xdevice.to_device(tree, "cpu", copy=True, skip=["CLS"])["[CLS]"] is not tree["[CLS]"]


@pytest.fixture
def registered():
    """Register classes with optree: the parts by name, and what is static."""
    import optree

    classes = []

    def register(cls, static=()):
        def flatten(node):
            parts = {name: x for name, x in vars(node).items() if name not in static}
            kept = {name: vars(node)[name] for name in static}
            return list(parts.values()), (tuple(parts), kept), iter(parts)

        def unflatten(metadata, parts):
            names, kept = metadata
            node = cls()
            vars(node).update(zip(names, parts, strict=True), **kept)
            return node

        optree.register_pytree_node(
            cls, flatten, unflatten, namespace=optree.registry.__GLOBAL_NAMESPACE
        )
        classes.append(cls)
        return cls

    yield register
    for cls in classes:
        optree.unregister_pytree_node(cls, namespace=optree.registry.__GLOBAL_NAMESPACE)


def test_the_names_of_parts_may_be_an_iterator(registered):
    node = registered(type("Node", (), {}))()
    node.x, node.y = np.ones(1), np.ones(1)
    for skip in ("x", ".x"):
        moved = xdevice.to_device(node, "cpu", copy=True, skip=skip)
        assert moved.x is node.x
        assert moved.y is not node.y


def test_a_static_tensor_is_not_hidden_by_a_skipped_place_of_the_same(registered):
    cls = registered(type("Node", (), {}), static=("y", "z"))
    x = np.ones(1)
    for values, skip, found in (
        ((np.ones(1), x, x), "y", "z"),
        ((x, x, None), "x", "y"),
        ((np.ones(1), x, x), ["y", "z"], None),
    ):
        node = cls()
        node.x, node.y, node.z = values
        if found is None:
            assert xdevice.device_of(node, skip=skip) == xdevice.cpu()
        else:
            with pytest.raises(xdevice.NotATensorError, match=rf"Node\.{found} holds a tensor"):
                xdevice.device_of([node, np.ones(1)], skip=skip)


def test_a_registered_dict_names_its_static_field(registered):
    node = registered(type("Odd", (dict,), {}), static=("cache",))()
    node.x, node.cache = np.ones(1), np.ones(1)
    with pytest.raises(xdevice.NotATensorError, match=r"Odd\.cache holds a tensor"):
        xdevice.device_of(node)
    assert xdevice.device_of(node, skip="cache") == xdevice.cpu()


def test_what_a_path_skips_is_not_opened(registered):
    cls = registered(type("Closed", (), {"__dict__": property(lambda self: 1 / 0)}))
    closed = object.__new__(cls)
    tree = {"a": np.ones(1), "b": closed}
    for skip in ("b", "['b']"):
        assert xdevice.to_device(tree, "cpu", copy=True, skip=skip)["b"] is closed


def test_skip_takes_whatever_can_be_iterated():
    tree = {
        "a": np.ones(1),
        "b": np.ones(1),
        'p["q"]': np.ones(1),
        10**90: np.ones(1),
        0: np.ones(1),
    }
    for skip, kept in (
        ((name for name in ["a"]), ["a"]),
        (np.array(["a", "b"]), ["a", "b"]),
        ("""['p["q"]']""", ['p["q"]']),
        (10**91, []),
    ):
        moved = xdevice.to_device(tree, "cpu", copy=True, skip=skip)
        assert [key for key in tree if moved[key] is tree[key]] == kept
    for skip in (object(), True, 1.5):
        with pytest.raises(xdevice.errors.ArgumentTypeError, match="names nothing"):
            xdevice.to_device(tree, "cpu", skip=skip)


def test_skip_takes_keys_that_are_equal():
    class Color(str, enum.Enum):
        RED = "red"

    tree = {
        np.str_("r"): np.ones(1),
        Color.RED: np.ones(1),
        np.int64(3): np.ones(1),
        b"k": np.ones(1),
    }
    for skip, key in (("r", "r"), ("red", "red"), (3, 3), (np.int64(3), 3), (b"k", b"k")):
        moved = xdevice.to_device(tree, "cpu", copy=True, skip=skip)
        assert [other for other in tree if moved[other] is tree[other]] == [key]


def test_a_named_tuple_with_more_fields_than_items_has_numbered_paths():
    class Odd(tuple):
        _fields = ("x", "y")

    with pytest.raises(xdevice.NotATensorError, match=r"at \[0\]"):
        xdevice.device_of(Odd([Holder(x=np.ones(1))]))


def test_the_device_first_is_an_error_that_says_so():
    with pytest.raises(xdevice.DeviceTypeError, match=r"write to_device\(x, device\)"):
        xdevice.to_device("gpu", np.ones(2))
    with pytest.raises(TypeError, match=r"is not a device; write gpu"):
        xdevice.to_device("gpu", {"x": np.ones(2)})


def test_copies_leave_the_original_alone():
    root = {"a": [np.ones(2), Batch(np.ones(3), {"deep": np.ones(4)})]}
    before = copy.deepcopy(root)
    moved = xdevice.to_device(root, "cpu", copy=True)
    moved["a"][1].extra["deep"][:] = 7
    moved["a"].append(1)
    assert len(root["a"]) == 2
    assert np.array_equal(root["a"][1].extra["deep"], before["a"][1].extra["deep"])


@pytest.mark.parametrize("ask", [xdevice.replicate, lambda t, d: xdevice.all_reduce([t, t])])
def test_sets_of_parameters_are_refused(ask):
    parameters = {np.float32(1), np.float32(2)}
    with pytest.raises(xdevice.ArgumentTypeError, match="set"):
        ask({"params": parameters}, ["cpu", "cpu"])


def test_empty_trees_in_a_list_are_told():
    with pytest.raises(xdevice.NotATensorError, match="no tensor"):
        xdevice.all_reduce([[], []])


def test_an_error_about_a_leaf_is_not_its_own_cause():
    for tree in (np.ones(2), {"a": np.ones(2)}):
        with pytest.raises(xdevice.DeviceNotFoundError) as raised:
            xdevice.to_device(tree, "gpu:7")
        assert raised.value.__cause__ is None


@pytest.mark.parametrize("path", ["", "['x'][0]"])
def test_an_error_about_a_leaf_gains_its_path_and_keeps_its_devices(path):
    devices = {xdevice.Device("cpu:0"), xdevice.Device("gpu:0")}
    error = at_path(xdevice.MixedDeviceError("it is on several", devices), path)
    assert str(error) == (f"it is on several (at {path})" if path else "it is on several")
    assert error.devices == devices


def test_a_key_of_too_many_digits_is_named_by_its_size():
    with pytest.raises(xdevice.NotATensorError, match=r"at \[<integer of 16610 bits>\]"):
        xdevice.device_of({10**5000: Holder(x=np.ones(1))})


class GivesLater:
    """What it consists of is an iterator that fails."""

    def items(self):
        raise ValueError("there is nothing")
        yield

    def __reduce_ex__(self, protocol):
        return object, (), None, self.items()


class Opaque:
    def __init__(self, *parts):
        self.parts = parts


def test_a_search_goes_on_after_what_cannot_be_searched():
    with pytest.raises(xdevice.NotATensorError, match=r"Opaque\.parts\[1\] is a tensor"):
        xdevice.to_device({"h": Opaque(GivesLater(), np.ones(2))}, "cpu")


def test_a_class_without_a_module_is_data():
    nowhere = type("Nowhere", (), {"__module__": None})()
    assert xdevice.to_device([nowhere, np.ones(2)], "cpu")[0] is nowhere


def test_a_list_with_names_as_a_named_tuple_has_is_a_list():
    cls = type("Named", (list,), {"_fields": ("a",)})
    with pytest.raises(xdevice.NotATensorError, match=r"\(at \[1\]\)"):
        xdevice.to_device(cls([1, Opaque(np.ones(2))]), "cpu")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_scalar_alone_is_moved_and_copied_as_an_array_is(dtype):
    assert xdevice.to_device(dtype(1.5), "cpu", copy=True) == 1.5


class Fails:
    """An object with a method ``to`` that takes no device."""

    def __init__(self):
        self.x = np.ones(2)

    def to(self):
        """Move nowhere."""


def test_an_object_that_cannot_move_itself_is_named_with_its_path():
    tree = {"a": [Fails()]}
    with pytest.raises(xdevice.NotSupportedError, match=r"Fails\.to\(.*skip= \(at \['a'\]\[0\]\)"):
        xdevice.to_device(tree, "cpu", copy=True)


class Large:
    """An object with more in it than is searched, which says where it is and moves itself."""

    device = "cpu"

    def __init__(self):
        self.parts = [(i,) for i in range(30_000)]

    def to(self, device):
        return self


def test_an_object_that_says_where_it_is_need_not_be_searched():
    assert type(xdevice.to_device([Large()], "cpu", copy=True)[0]) is Large
