"""From each framework to each other: values, dtypes, layouts, and which memory may be shared."""

import itertools

import numpy as np
import pytest

import xdevice
from xdevice import (
    CopyNeededError,
    DeviceNotFoundError,
    NotATensorError,
    NotSupportedError,
    convert,
    device_of,
    to_numpy,
)

FRAMEWORKS = ("torch", "tensorflow", "paddle", "mxnet", "jax", "numpy")
PAIRS = list(itertools.permutations(FRAMEWORKS, 2))
DTYPES = (
    "float32",
    "float16",
    "int32",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "int64",
    "float64",
    "uint16",
    "bfloat16",
)
NEVER_CHANGE = ("tensorflow", "jax")


def made(name, array, dtype=None):
    with xdevice.using(name):
        return xdevice.tensor(array, dtype=dtype, device="cpu")


def dtype_of(x):
    return xdevice.tensors.arguments.dtype_name(x.dtype)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_everything_arrives_or_it_is_an_error(source, target):
    arrived = 0
    for dtype in DTYPES:
        array = np.array([[0, 1, 2], [3, 4, 100]]).astype(
            dtype if dtype != "bfloat16" else "float32"
        )
        try:
            x = made(source, array, dtype)
        except xdevice.XDeviceError:
            continue  # the source lacks the dtype
        for shape in ((2, 3), (6, 1), (1, 6)):
            given = (
                x.reshape(shape)
                if hasattr(x, "reshape")
                else __import__("tensorflow").reshape(x, shape)
            )
            try:
                y = convert(given, target, device="cpu")
            except NotSupportedError as error:
                assert dtype in str(error) or "64" in str(error)
                continue
            arrived += 1
            assert dtype_of(y) == dtype
            assert tuple(y.shape) == shape
            assert xdevice.framework.ownership.tensor_owner(y) == target
            assert device_of(y) == "cpu:0"
            back = convert(y, source, device="cpu", copy=True)
            assert dtype_of(back) == dtype
            if dtype != "bfloat16":
                assert (
                    to_numpy(y).tolist() == array.reshape(shape).tolist() == to_numpy(back).tolist()
                )
            else:
                assert convert(y, "torch").float().tolist() == array.reshape(shape).tolist()
    assert arrived >= 9


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_writes_never_change_the_immutable(source, target):
    x = made(source, np.arange(4096, dtype="float32"))
    y = convert(x, target, device="cpu")
    if target not in NEVER_CHANGE:
        try:
            y[0] = 77.0
        except ValueError:
            assert target == "numpy"  # a read-only view of what never changes
    if source in NEVER_CHANGE:
        assert to_numpy(x)[0] == 0.0
    else:
        before = to_numpy(y)[1]
        x[1] = 55.0
        if target in NEVER_CHANGE:
            assert to_numpy(y)[1] == before


@pytest.mark.parametrize(
    ("source", "target"), list(itertools.permutations(("torch", "paddle", "numpy"), 2))
)
def test_writable_tensors_share_memory(source, target):
    x = made(source, np.zeros((3, 5), dtype="float32"))
    y = convert(x, target, copy=False)
    y[1, 2] = 7.0
    assert to_numpy(x)[1, 2] == 7.0
    z = convert(x, target, copy=True)
    z[0, 0] = 1.0
    assert to_numpy(x)[0, 0] == 0.0


def test_copy_false_shares_or_is_an_error():
    for source, target in (
        ("torch", "jax"),
        ("jax", "torch"),
        ("tensorflow", "paddle"),
        ("numpy", "mxnet"),
    ):
        with pytest.raises(
            CopyNeededError,
            match=f"{target} cannot share the memory of this {source} tensor on cpu:0",
        ):
            convert(made(source, np.ones(64, "float32")), target, copy=False)


@pytest.mark.parametrize("target", [name for name in FRAMEWORKS if name != "numpy"])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0)[::-1].astype("float32")[::-1],
        np.arange(12, dtype="float32").reshape(3, 4)[::-1, ::2],
        np.broadcast_to(np.float32(3), (2, 3)),
        np.ones((0, 3), "float32"),
        np.array(2.5, "float32"),
        np.arange(12, dtype="float32").reshape(3, 4).T,
        np.arange(3, dtype=">f4"),
    ],
    ids=["reversed", "strided", "broadcast", "empty", "scalar", "transposed", "big-endian"],
)
def test_every_layout_of_numpy_arrives(target, array):
    assert to_numpy(convert(array, target)).tolist() == array.tolist()


@pytest.mark.parametrize("target", ["torch", "paddle", "mxnet"])
def test_a_read_only_array_stays_unchanged(target):
    array = np.zeros(4, "float32")
    array.flags.writeable = False
    convert(array, target)[0] = 5.0
    assert array.tolist() == [0, 0, 0, 0]


def test_a_tree_keeps_form_and_sharing():
    import torch

    shared = torch.ones(2)
    tree = {"a": shared, "b": [shared, ("text", 3)], "w": torch.nn.Parameter(torch.zeros(2))}
    made = convert(tree, "numpy", copy=True)
    assert made["a"] is made["b"][0]
    assert made["b"][1] == ("text", 3)
    assert type(made["a"]) is np.ndarray
    assert made["w"].tolist() == [0, 0]
    assert convert(made["a"], "numpy") is made["a"]
    with pytest.raises(NotSupportedError, match=r"Linear is not a tensor.*\(at \['m'\]\)"):
        convert({"m": torch.nn.Linear(1, 1)}, "jax")
    with pytest.raises(NotATensorError):
        convert("text", "torch")
    with pytest.raises(DeviceNotFoundError, match="does not exist under numpy"):
        convert(shared, "numpy", device="gpu:0")


def test_the_device_is_kept_or_asked_for():
    import tensorflow as tf

    with xdevice.using("tensorflow"):
        if xdevice.count("gpu"):
            x = xdevice.ones((2,), device="gpu:0")
            with pytest.raises(
                DeviceNotFoundError, match="gpu:0 does not exist under numpy, which sees cpu:0;"
            ):
                convert(x, "numpy")
            assert convert(x, "numpy", device="cpu").tolist() == [1, 1]
            assert device_of(convert(np.ones(2), "tensorflow", device="gpu:0")) == "gpu:0"
    assert convert(tf.Variable([1.0]), "numpy").tolist() == [1.0]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids="-".join)
def test_several_are_converted_at_once_like_a_tensor(source, target):
    x, y = made(source, np.arange(3.0), "float32"), made(source, np.ones(2), "float32")
    weights = made(target, np.zeros(2), "float32")
    results = convert(x, None, {"y": y, "again": x}, weights, like=weights)
    assert type(results) is tuple
    first, none, tree, last = results
    assert none is None
    assert tree["again"] is first
    assert last is weights
    for tensor in (first, tree["y"]):
        assert xdevice.backend_of(tensor) == target
        assert device_of(tensor) == device_of(weights)
    assert to_numpy(first).tolist() == [0, 1, 2]
    assert xdevice.backend_of(convert(x, like=weights)) == target
    named = convert(x, y, backend=target)
    assert [xdevice.backend_of(tensor) for tensor in named] == [target, target]


def test_like_takes_the_device_too():
    with xdevice.using("strict"):
        x = xdevice.ones(2, device="device1")
    one, other = convert(np.ones(3), [np.zeros(1)], like=x)
    assert device_of(one) == device_of(other) == xdevice.Device("device1", 0)
    assert device_of(convert(np.ones(3), like=x, device="cpu")) == xdevice.cpu()


def test_a_framework_is_named_once():
    x = np.ones(2)
    for call in (
        lambda: convert(x),
        lambda: convert(x, x, x),
        lambda: convert(x, "numpy", "torch"),
        lambda: convert(x, backend="numpy", like=x),
    ):
        with pytest.raises(
            xdevice.ArgumentTypeError, match="name of a framework or like=, and not"
        ):
            call()
    with pytest.raises(NotATensorError):
        convert(x, 3, like=x)
    assert convert(x=x, backend="numpy") is x
