"""What one framework has saved, every other loads, bit for bit, or says that it lacks the dtype."""

import itertools

import numpy
import pytest

import xdevice
from xdevice.framework.registry import ORDER
from xdevice.testing.contract.storage import DTYPES, stored_bits, tensor_or_none

pytestmark = pytest.mark.skipif(
    not set(ORDER) <= set(xdevice.available()),
    reason="needs all six frameworks side by side: `tox -e all`",
)


@pytest.mark.parametrize(("writer", "reader"), list(itertools.permutations(ORDER, 2)))
def test_another_loads_it_bit_for_bit(tmp_path, writer, reader):
    shared = 0
    for dtype in DTYPES.split():
        with xdevice.using(writer):
            x = tensor_or_none([[1, 0, 2], [3, 1, 0]], dtype)
            if x is None:
                continue
            xdevice.save({"x": x}, tmp_path / "first")
        with xdevice.using(reader):
            if tensor_or_none([1], dtype) is None:
                with pytest.raises(xdevice.NotSupportedError, match=dtype):
                    xdevice.load(tmp_path / "first")
                continue
            xdevice.save(xdevice.load(tmp_path / "first"), tmp_path / "second")
        assert stored_bits(tmp_path / "first") == stored_bits(tmp_path / "second"), dtype
        shared += 1
    assert shared >= 5


def variables():
    """What is no plain tensor, of several frameworks, with the values that it has."""
    torch, tf, paddle, mx = (
        xdevice.backend(name).framework for name in ("torch", "tensorflow", "paddle", "mxnet")
    )
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    gluon = mx.gluon.Parameter("w", shape=(2,), init="ones")
    gluon.initialize()
    layer = paddle.nn.Linear(1, 2, weight_attr=paddle.nn.initializer.Constant(1.0))
    return {
        "parameter": (weight, [[0, 1, 2], [3, 4, 5]]),
        "transposed": (weight.T, [[0, 3], [1, 4], [2, 5]]),
        "conjugate": (torch.tensor([1 + 2j], dtype=torch.complex64).conj(), [1 - 2j]),
        "variable": (tf.Variable([1.0, 2.0]), [1, 2]),
        "gluon": (gluon, [1, 1]),
        "layer": (layer.weight, [[1, 1]]),
    }


def test_one_file_for_several_frameworks(tmp_path):
    given = variables()
    xdevice.save({name: x for name, (x, _) in given.items()}, tmp_path / "file")
    with xdevice.using("numpy"):
        back = xdevice.load(tmp_path / "file")
    assert {name: x.tolist() for name, x in back.items()} == {
        name: values for name, (_, values) in given.items()
    }


def without_values():
    torch, tf, mx, jax = (
        xdevice.backend(name).framework for name in ("torch", "tensorflow", "mxnet", "jax")
    )
    deleted = jax.numpy.ones(2)
    deleted.delete()
    return {
        "meta": torch.ones(2, device="meta"),
        "meta of bfloat16": torch.ones(2, device="meta", dtype=torch.bfloat16),
        "an input": tf.keras.Input((2,)),
        "deferred": mx.gluon.Parameter("w", shape=(2,)),
        "symbol": mx.sym.var("x"),
        "deleted": deleted,
    }


def test_no_values_is_an_error_and_no_file(tmp_path):
    for name, x in without_values().items():
        with pytest.raises(xdevice.UnknownPlacementError):
            xdevice.save({name: x}, tmp_path / "file")
    jax = xdevice.backend("jax").framework
    for dtype in ("float32", "bfloat16"):
        with pytest.raises(xdevice.UnknownPlacementError, match="is traced and has no device"):
            jax.jit(lambda x: xdevice.save(x, tmp_path / "file"))(jax.numpy.ones(2, dtype))
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_kept_says_what_to_do(tmp_path):
    torch, tf = (xdevice.backend(name).framework for name in ("torch", "tensorflow"))
    masked = numpy.ma.array([1, 2], mask=[False, True])
    for x, says in (
        (torch.nn.Linear(2, 1), r"save dict\(its state_dict\(\)\)"),
        (torch.eye(2, dtype=torch.bfloat16).to_sparse(), r"its to_dense\(\)"),
        (tf.sparse.eye(2), r"tf\.sparse\.to_dense"),
        (tf.constant("text"), "is of string, which safetensors does not have"),
        (masked, r"x\.filled\(0\)"),
    ):
        with pytest.raises(xdevice.XDeviceError, match=says):
            xdevice.save([x], tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
