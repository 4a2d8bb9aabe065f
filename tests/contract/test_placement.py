"""Where tensors are, and moving them: the promises under every framework."""

import copy
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest

import xdevice
from xdevice import Device

Point = namedtuple("Point", "x y")


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


class Config(dict):
    """A dict of one's own, as configuration objects often are."""


class Rows(list):
    pass


class Queue(deque):
    pass


class Picky(namedtuple("Picky", "x y")):
    """A named tuple that cannot be called with its own fields, and carries an attribute."""

    def __new__(cls, x):
        made = super().__new__(cls, x, "y")
        made.note = "kept"
        return made


@dataclass
class Record(dict):
    x: object = None


@dataclass(frozen=True)
class HandSlotted:
    __slots__ = ("x",)
    x: object


class Immovable(dict):
    def __copy__(self):
        return self


@pytest.fixture
def x(native):
    return native.ones()


def same_values(a, b):
    return np.array_equal(xdevice.to_numpy(a), xdevice.to_numpy(b))


# ---------------------------------------------------------------- asking


def test_a_tensor_is_where_its_framework_puts_it_by_default(backend, x):
    assert xdevice.device_of(x) in xdevice.devices()
    assert xdevice.devices_of(x) == {xdevice.device_of(x)}


@pytest.mark.needs("owned")
def test_all_of_a_frameworks_tensor_types_are_owned_by_it(backend, native):
    from xdevice.registry import role_of

    for tensor in native.owned():
        assert role_of(type(tensor)) == (backend, "tensor"), type(tensor)
        assert xdevice.device_of(tensor) == xdevice.cpu()
        assert xdevice.to_device(tensor, "cpu") is tensor
        assert isinstance(
            xdevice.to_numpy(tensor) if "key" not in str(getattr(tensor, "dtype", "")) else np.ones(1), np.ndarray
        )


def test_asking_follows_the_tensor_whatever_is_chosen(backend, x):
    with xdevice.using("numpy"):
        assert xdevice.device_of(x) == xdevice.cpu()
        assert type(xdevice.to_device(x, "cpu", copy=True)) is type(x)


def test_same_device_is_told_for_tensors_trees_and_devices(backend, x, native):
    y = native.ones()
    assert xdevice.is_same_device(x, y)
    assert xdevice.is_same_device(x, {"y": [y]}, xdevice.cpu(), "cpu:0", "/CPU:0", xdevice.native("cpu"))
    assert not xdevice.is_same_device(x, "gpu:1")
    assert xdevice.is_same_device(x)
    assert xdevice.check_same_device(x, y) is xdevice.cpu()


def test_tensors_of_two_frameworks_can_be_on_one_device(backend, x):
    assert xdevice.is_same_device(x, np.ones(3))
    assert xdevice.device_of({"theirs": x, "ours": np.ones(3)}) == xdevice.cpu()
    moved = xdevice.to_device({"theirs": x, "ours": np.ones(3)}, "cpu", copy=True)
    assert type(moved["theirs"]) is type(x)
    assert type(moved["ours"]) is np.ndarray


def test_two_devices_are_an_error_that_names_each_argument(backend, x):
    with pytest.raises(xdevice.MixedDeviceError, match=r"cpu:0: argument 0\['a'\]\[1\].*gpu:1: argument 1") as error:
        xdevice.check_same_device({"a": [None, x]}, "gpu:1")
    assert isinstance(error.value, RuntimeError)
    assert error.value.devices == {xdevice.cpu(), xdevice.gpu(1)}


@pytest.mark.parametrize("tree", [[], {}, (), {"a": "text", "b": [None, 1.5]}, deque()])
def test_a_tree_without_a_tensor_is_nowhere(backend, tree):
    for ask in (xdevice.device_of, xdevice.devices_of, xdevice.is_same_device, xdevice.check_same_device):
        with pytest.raises(xdevice.NotATensorError) as error:
            ask(tree)
        assert isinstance(error.value, TypeError)
        assert type(tree).__name__ in str(error.value)


def test_an_object_that_no_framework_owns_is_named_with_its_path(backend):
    class Stranger:
        to = "not callable"
        device = "cpu"

    for ask in (xdevice.device_of, lambda s: xdevice.to_device(s, "cpu"), xdevice.to_numpy, xdevice.is_same_device):
        with pytest.raises(xdevice.NotATensorError, match="Stranger"):
            ask(Stranger())
    with pytest.raises(xdevice.NotATensorError, match=r"\['deep'\]\[0\]\.x is of type Stranger"):
        xdevice.device_of({"deep": [Batch(Stranger())]})


@pytest.mark.parametrize("nothing", ["text", 3, 2.5, None, b"bytes", object(), int])
def test_what_is_no_tensor_model_or_container_cannot_be_moved(backend, nothing):
    with pytest.raises(xdevice.NotATensorError):
        xdevice.to_device(nothing, "cpu")


@pytest.mark.parametrize("ask", [xdevice.is_same_device, xdevice.check_same_device])
def test_comparing_nothing_is_an_error(ask):
    with pytest.raises(xdevice.NotATensorError, match="nothing was given"):
        ask()


@pytest.mark.needs("symbolic")
def test_a_symbolic_tensor_has_no_place_and_none_is_guessed(backend, native):
    asked = []

    def ask(symbol):
        for question in (
            xdevice.device_of,
            xdevice.devices_of,
            lambda s: xdevice.is_same_device(s, s),
            lambda s: xdevice.to_device(s, "cpu"),
            lambda s: xdevice.to_device([s], "cpu"),
            xdevice.to_numpy,
        ):
            with pytest.raises(xdevice.UnknownPlacementError):
                question(symbol)
            asked.append(question)

    native.symbolic(ask)
    assert len(asked) >= 6


def test_asking_changes_nothing(backend, x):
    before = xdevice.to_numpy(x)
    xdevice.device_of(x), xdevice.devices_of([x]), xdevice.is_same_device(x, x)
    assert np.array_equal(xdevice.to_numpy(x), before)


# ---------------------------------------------------------------- moving


@pytest.mark.parametrize("spelling", ["cpu", "cpu:0", "CPU:0", "/device:CPU:0", "cpu(0)", "Place(cpu)", Device("cpu")])
def test_already_there_is_the_same_object_however_spelled(backend, x, spelling):
    assert xdevice.to_device(x, spelling) is x
    assert xdevice.to_device(x, spelling, copy=False) is x
    assert xdevice.to_device(x, xdevice.native("cpu", backend)) is x


@pytest.mark.needs("address")
def test_a_forced_copy_shares_no_memory(backend, native, x):
    y = xdevice.to_device(x, "cpu", copy=True)
    assert y is not x
    assert type(y) is type(x)
    assert native.address(y) != native.address(x)
    assert same_values(x, y)


def test_a_forced_copy_in_a_tree_is_made_of_every_tensor(backend, x):
    tree = {"x": x, "again": x, "n": 1}
    copied = xdevice.to_device(tree, "cpu", copy=True)
    assert copied["x"] is not x
    assert copied["x"] is copied["again"]
    assert tree["x"] is x


def test_copy_must_be_true_false_or_none(backend, x):
    with pytest.raises(xdevice.ArgumentError, match="'maybe'"):
        xdevice.to_device(x, "cpu", copy="maybe")


@pytest.mark.needs("gradient")
@pytest.mark.parametrize("forced", [None, True])
def test_gradients_flow_through_a_move(backend, native, forced):
    assert native.gradient(lambda x: xdevice.to_device(x, "cpu", copy=forced)) == [2.0, 2.0, 2.0]


@pytest.mark.needs("parameter")
@pytest.mark.parametrize("frozen", [False, True])
def test_a_parameter_that_is_there_stays_itself(backend, native, frozen):
    parameter = native.parameter(frozen)
    assert xdevice.to_device(parameter, "cpu") is parameter
    assert xdevice.to_device([parameter], "cpu")[0] is parameter
    assert native.is_frozen(parameter) is frozen


def test_a_failed_move_moves_nothing(backend, x):
    tree = {"a": x, "b": [np.ones(2), Point(x, 1)]}
    shallow = copy.copy(tree)
    for device in (f"gpu:{xdevice.count('gpu')}", "gpu:99"):
        with pytest.raises(xdevice.DeviceNotFoundError, match=r"at \['a'\]"):
            xdevice.to_device(tree, device)
    assert all(tree[key] is shallow[key] for key in tree)
    assert xdevice.device_of(tree) == xdevice.cpu()


def test_a_copy_that_is_forbidden_and_needed_is_an_error_before_the_device_is_looked_for(backend, x):
    with pytest.raises(xdevice.CopyNeededError) as error:
        xdevice.to_device(x, "gpu:99", copy=False)
    assert isinstance(error.value, ValueError)


# ---------------------------------------------------------------- trees


def trees(x):
    mapping = defaultdict(list, {"b": [x], "a": 1})
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


@pytest.mark.parametrize("which", range(17))
def test_a_tree_keeps_its_types_and_its_other_leaves(backend, x, which):
    tree = trees(x)[which]
    moved = xdevice.to_device(tree, "cpu", copy=True)
    assert type(moved) is type(tree)
    assert moved is not tree
    assert shape_of(moved) == shape_of(tree)
    assert xdevice.device_of(moved) == xdevice.cpu()
    if isinstance(tree, defaultdict):
        assert moved.default_factory is list
    if isinstance(tree, deque):
        assert moved.maxlen == 5
    if isinstance(tree, dict):
        assert list(moved) == list(tree)


@pytest.mark.parametrize("which", range(17))
def test_a_tree_in_which_nothing_moves_is_returned_itself(backend, x, which):
    tree = trees(x)[which]
    before = shape_of(tree)
    assert xdevice.to_device(tree, "cpu") is tree
    assert shape_of(tree) == before


def test_tensors_in_a_set_do_not_stay_behind(backend, x):
    try:
        tree = [{x, 1}, frozenset([x])]
    except (TypeError, NotImplementedError):  # this framework's tensors cannot be in a set
        return
    moved = xdevice.to_device(tree, "cpu", copy=True)
    assert [type(part) for part in moved] == [set, frozenset]
    assert all(x is not element for part in moved for element in part)
    assert xdevice.device_of(tree) == xdevice.cpu()


@pytest.mark.parametrize("empty", [[], {}, (), deque(), defaultdict(int), {"a": []}, [None, "text"]])
def test_an_empty_tree_passes_through(backend, empty):
    assert xdevice.to_device(empty, "cpu", copy=True) == empty
    assert xdevice.to_device(empty, "gpu:99") == empty


def test_a_tree_that_contains_itself_is_an_error(backend, x):
    plain, own = [x], Rows([x])
    plain.append(plain)
    own.append(Batch(own))
    for tree in (plain, own):
        with pytest.raises(xdevice.ArgumentError, match="contains itself"):
            xdevice.to_device(tree, "cpu")


def test_attributes_of_a_container_are_kept(backend, x):
    moved = xdevice.to_device(Picky(x), "cpu", copy=True)
    assert (moved.note, moved.y) == ("kept", "y")
    assert moved.x is not x


def test_a_mapping_with_fields_moves_both(backend, x):
    record = Record(x)
    record["key"] = x
    moved = xdevice.to_device(record, "cpu", copy=True)
    assert moved.x is moved["key"]
    assert moved.x is not x
    assert record.x is record["key"] is x


def test_a_container_that_cannot_be_copied_is_not_modified(backend, x):
    tree = Immovable(x=x)
    with pytest.raises(xdevice.ArgumentError, match="gives itself"):
        xdevice.to_device(tree, "cpu", copy=True)
    assert tree["x"] is x


def test_text_is_no_tensor_even_if_numpy_made_it(backend, x):
    tree = {"x": x, "label": np.str_("cat"), "day": np.datetime64("2020-01-01")}
    assert xdevice.device_of(tree) == xdevice.cpu()
    assert xdevice.to_device(tree, "cpu", copy=True)["label"] is tree["label"]
    with pytest.raises(xdevice.NotATensorError):
        xdevice.device_of(np.str_("cat"))


def shape_of(node):
    """The tree with every tensor replaced by one word."""
    if isinstance(node, (Batch, Frozen, Slotted, HandSlotted)):
        return type(node).__name__, [shape_of(getattr(node, n)) for n in node.__dataclass_fields__]
    if isinstance(node, (dict, UserDict)):
        return type(node).__name__, {key: shape_of(value) for key, value in node.items()}
    if isinstance(node, (list, tuple, deque)):
        return type(node).__name__, [shape_of(value) for value in node]
    return node if node is None or isinstance(node, (str, int, float)) else "tensor"


# ---------------------------------------------------------------- models


@pytest.mark.needs("model")
def test_a_model_is_where_its_parameters_and_buffers_are(backend, native):
    model = native.model()
    assert xdevice.device_of(model) == xdevice.cpu()
    assert xdevice.device_of({"net": model, "lr": 0.1}) == xdevice.cpu()
    assert all(xdevice.device_of(p) == xdevice.cpu() for p in native.parameters(model))
    named = dict(xdevice.backend().models.tensors_of(model))
    assert len(named) >= 6, "a dense layer's two and a batch norm's four"


@pytest.mark.needs("model")
def test_a_model_that_is_there_stays_itself_and_keeps_its_parameters(backend, native):
    model = native.model()
    before = native.parameters(model)
    assert xdevice.to_device(model, "cpu") is model
    assert xdevice.to_device([model], "cpu")[0] is model
    assert all(a is b for a, b in zip(before, native.parameters(model), strict=True))


@pytest.mark.needs("model")
def test_a_model_is_not_moved_where_there_is_no_device(backend, native):
    model = native.model()
    before = native.parameters(model)
    with pytest.raises(xdevice.DeviceNotFoundError):
        xdevice.to_device({"data": native.ones(), "net": model}, "gpu:99")
    assert xdevice.device_of(model) == xdevice.cpu()
    assert all(a is b for a, b in zip(before, native.parameters(model), strict=True))


@pytest.mark.needs("model")
def test_a_copied_model_has_parameters_of_its_own(backend, native):
    model = native.model()
    copied = xdevice.to_device(model, "cpu", copy=True)
    assert copied is not model
    for a, b in zip(native.parameters(model), native.parameters(copied), strict=True):
        assert a is not b
        assert same_values(a, b)


@pytest.mark.needs("model")
def test_a_model_and_its_own_parameters_stay_together_in_a_copy(backend, native):
    model = native.model()
    copied = xdevice.to_device({"net": model, "parameters": native.parameters(model)}, "cpu", copy=True)
    for inside, listed in zip(native.parameters(copied["net"]), copied["parameters"], strict=True):
        assert inside is listed


@pytest.mark.needs("unbuilt_model")
def test_a_model_that_is_not_built_is_nowhere_yet(backend, native):
    model = native.unbuilt_model()
    for ask in (xdevice.device_of, xdevice.devices_of, lambda m: xdevice.to_device(m, "cpu")):
        with pytest.raises(xdevice.UnknownPlacementError):
            ask(model)
