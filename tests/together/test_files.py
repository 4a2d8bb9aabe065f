"""What one framework has saved, every other loads, bit for bit, or says that it lacks the dtype."""

import itertools

import pytest

import xdevice
from xdevice.registry import ORDER
from xdevice.testing.contract.storage import DTYPES, made, stored_bits

pytestmark = pytest.mark.skipif(
    not set(ORDER) <= set(xdevice.available()), reason="needs all six frameworks side by side: `tox -e all`"
)


@pytest.mark.parametrize(("writer", "reader"), list(itertools.permutations(ORDER, 2)))
def test_a_file_of_one_framework_is_loaded_by_another_bit_for_bit(tmp_path, writer, reader):
    shared = 0
    for dtype in DTYPES:
        with xdevice.using(writer):
            x = made([[1, 0, 2], [3, 1, 0]], dtype)
            if x is None:
                continue
            xdevice.save({"x": x}, tmp_path / "first")
        with xdevice.using(reader):
            if made([1], dtype) is None:
                with pytest.raises(xdevice.NotSupportedError, match=dtype):
                    xdevice.load(tmp_path / "first")
                continue
            xdevice.save(xdevice.load(tmp_path / "first"), tmp_path / "second")
        assert stored_bits(tmp_path / "first") == stored_bits(tmp_path / "second"), dtype
        shared += 1
    assert shared >= 5
