"""Trees of mixed containers, some of which cannot be opened: a tensor that pickle can reach moves, or is an error."""

import functools
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import MutableMapping
from dataclasses import dataclass
from threading import Lock
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xdevice import XDeviceError, device_of, devices, devices_of, tensor, to_device, to_numpy
from xdevice.tensors.trees.tree import FlatTree


class Pair(NamedTuple):
    a: Any
    b: Any = 3


@dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = None


@dataclass(slots=True)
class Slotted:
    a: Any


class Items(MutableMapping):
    """A mapping with its items in an attribute, which a shallow copy of it shares."""

    def __init__(self, items=()):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __setitem__(self, key, value):
        self._items[key] = value

    def __delitem__(self, key):
        del self._items[key]

    def __len__(self):
        return len(self._items)

    def __iter__(self):
        return iter(self._items)


class Holder:
    def __init__(self, held):
        self.held = held


class Attributes(dict):
    def __init__(self, **items):
        super().__init__(items)
        self.__dict__ = self


WRAP = {
    "list": lambda x: [x],
    "tuple": lambda x: (x, 1),
    "shared": lambda x: [x, {"again": x}],
    "dict": lambda x: {"k": x, "j": 2},
    "of integers": lambda x: {3: x},
    "of tuples": lambda x: {("t", 1): x},
    "named tuple": Pair,
    "frozen": Frozen,
    "slotted": Slotted,
    "attributes": lambda x: Attributes(a=x),
    "ordered": lambda x: OrderedDict(b=x, a=1),
    "default": lambda x: defaultdict(list, a=x),
    "deque": lambda x: deque([x], 5),
    "namespace": lambda x: SimpleNamespace(q=x),
    "partial": lambda x: functools.partial(max, x, key=None),
    "user dict": lambda x: UserDict(a=x),
    "user list": lambda x: UserList([x]),
    "chain": lambda x: ChainMap({"a": x}, {"b": x, "a": 1}),
    "items": lambda x: Items({"a": x}),
    "holder": Holder,
    "exception": ValueError,
    "slice": lambda x: slice(x, None),
    "iterator": lambda x: iter([x]),
    "key": lambda x: {Holder(x): 1},
}
DATA = (
    None,
    1,
    "text",
    b"b",
    len,
    np.float32(2),
    np.array(["a"]),
    Lock(),
    slice(1),
    range(3),
    Holder(1),
)


def trees(tensors):
    """Trees, each with the tensors that were put into it."""
    # by their places: MXNet's arrays have no hash, which Hypothesis asks for
    leaf = st.sampled_from(range(len(tensors))).map(
        lambda i: (tensors[i], [tensors[i]])
    ) | st.sampled_from(DATA).map(lambda data: (data, []))

    def grown(inner):
        several = st.lists(inner, max_size=3)
        return (
            st.builds(
                lambda wrap, pair: (wrap(pair[0]), pair[1]),
                st.sampled_from(list(WRAP.values())),
                inner,
            )
            | several.map(
                lambda pairs: ([tree for tree, _ in pairs], [x for _, held in pairs for x in held])
            )
            | several.map(
                lambda pairs: (
                    dict(enumerate(tree for tree, _ in pairs)),
                    [x for _, h in pairs for x in h],
                )
            )
        )

    return st.recursive(leaf, grown, max_leaves=6)


@pytest.mark.frameworks("torch", "numpy")
def test_no_tensor_is_passed_over_in_a_tree_of_mixed_containers(backend):
    there = devices()[-3:]
    tensors = [
        tensor([float(i)], dtype="float32", device=device) for device in there for i in range(3)
    ]

    def inside(tree):
        return [
            leaf
            for leaf in FlatTree(tree).leaves
            if type(leaf) is type(tensors[0]) and leaf.dtype == tensors[0].dtype
        ]

    @settings(
        max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(trees(tensors), st.sampled_from(there), st.sampled_from([None, True]))
    def check(drawn, device, copy):
        tree, held = drawn
        try:
            if held:
                assert devices_of(tree) == {device_of(x) for x in held}
            before = inside(tree)
            moved = to_device(tree, device, copy=copy)
        except XDeviceError:
            return  # it says what it cannot open; nothing was passed over
        after = inside(moved)
        assert [device_of(x) for x in after] == [device] * len(before)
        assert [float(to_numpy(x)[0]) for x in after] == [float(to_numpy(x)[0]) for x in before]
        assert len(set(map(id, after))) == len(set(map(id, before))) == len(set(map(id, held)))
        assert all(x is y for x, y in zip(inside(tree), before, strict=True))
        assert not (copy and {id(x) for x in after} & {id(x) for x in held})
        assert type(moved) is type(tree)

    check()
