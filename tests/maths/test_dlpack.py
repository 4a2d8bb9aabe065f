"""from_dlpack: tensors of other libraries, in their memory where that is safe."""

from __future__ import annotations

import numpy as np
import pytest

import xdevice
from xdevice import CopyNeededError, device_of, to_numpy
from xdevice.tensors.namespace import namespace


def array(dtype, shape, offset, writeable):
    """Numbers that begin so many bytes behind a multiple of 64."""
    count = int(np.prod(shape))
    memory = np.zeros(64 + offset + count * np.dtype(dtype).itemsize, "uint8")
    start = -memory.ctypes.data % 64 + offset
    found = memory[start : start + count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
    found[...] = np.arange(count).reshape(shape)
    found.flags.writeable = writeable
    return found


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(5,), (0, 3), ()])
@pytest.mark.parametrize("offset", [0, 8])
@pytest.mark.parametrize("copy", [None, True])
def test_a_shared_array_has_its_numbers_and_can_be_computed_with(
    backend, dtype, shape, offset, copy
):
    xp = namespace()
    source = array(dtype, shape, offset, True)
    found = xp.from_dlpack(source, copy=copy)
    assert device_of(found) == "cpu"
    assert to_numpy(found).tolist() == source.tolist()
    assert to_numpy(found).dtype == source.dtype
    sums = xp.sum(xp.stack([xp.astype(found, xp.float32)] * 3), axis=0)
    assert to_numpy(sums).tolist() == (3.0 * source).tolist()
    again = xp.from_dlpack(found, copy=True)
    assert to_numpy(again).tolist() == source.tolist()


def test_a_write_reaches_a_shared_tensor_only_where_both_may_be_written_to(backend):
    xp = namespace()
    source = array("float32", (16,), 0, True)
    found = xp.from_dlpack(source)
    source[0] = 7
    constant = backend in ("tensorflow", "jax")  # their tensors never change
    copied = constant or backend == "mxnet"  # whose arrays are not to be seen by NumPy
    assert to_numpy(found)[0] == (0 if copied else 7)
    separate = xp.from_dlpack(source, copy=True)
    source[0] = 9
    assert to_numpy(separate)[0] == 7


@pytest.mark.filterwarnings("ignore:.*not writable:UserWarning")
def test_an_array_that_is_not_to_be_written_to_stays_as_it_is(backend):
    source = array("float32", (16,), 0, False)
    found = namespace().from_dlpack(source)
    try:
        found[0] = 5.0
    except (TypeError, ValueError):
        assert backend in ("tensorflow", "jax", "numpy")
    assert source[0] == 0


def test_no_number_is_cut(backend):
    source = np.asarray([2**40])
    try:
        found = namespace().from_dlpack(source)
    except xdevice.ArgumentError as error:
        assert backend == "jax"
        assert "does not fit into int32" in str(error)
    else:
        assert to_numpy(found).tolist() == [2**40]


def test_memory_is_shared_or_an_error_says_that_it_cannot_be(backend):
    xp = namespace()
    source = array("float32", (16,), 4, True)
    try:
        found = xp.from_dlpack(source, copy=False)
    except CopyNeededError as error:
        assert backend in ("tensorflow", "jax")  # they need memory at multiples of 64 bytes
        assert "\n" not in str(error)
    else:
        source[0] = 7
        assert to_numpy(found)[0] == 7
    with pytest.raises(
        xdevice.ArgumentTypeError, match="from_dlpack of a list, which has no __dlpack__"
    ):
        xp.from_dlpack([1.0])
