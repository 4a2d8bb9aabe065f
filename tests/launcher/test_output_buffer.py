"""The first and the last lines of a child's output, which are kept however much it prints."""

import os
import tempfile
import tracemalloc

import pytest

from xdevice.tools.launcher.output_buffer import FIRST, LAST, LONGEST, OutputBuffer


@pytest.fixture
def spools():
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        yield out, err


@pytest.mark.skipif(not hasattr(os, "pread"), reason="without it output is read at the end only")
@pytest.mark.parametrize(
    "at_once", [1, 7, FIRST, FIRST + 1, LAST + 1, FIRST + LAST, FIRST + LAST + 1, 1000]
)
@pytest.mark.parametrize(
    "number", [0, 1, FIRST, FIRST + LAST, FIRST + LAST + 1, FIRST + LAST + 2, 300]
)
def test_first_and_last_lines_are_kept(spools, number, at_once):
    lines = [b"line %d" % i for i in range(number)]
    buffer = OutputBuffer(spools)
    for start in range(0, number, at_once):
        os.write(
            spools[0].fileno(), b"".join(line + b"\n" for line in lines[start : start + at_once])
        )
        buffer.update()
    first, left_out, last = buffer.finish()
    assert [line.text for line in first] == lines[:FIRST]
    assert [line.text for line in last] == lines[FIRST:][-LAST:]
    assert left_out == max(0, number - FIRST - LAST)
    assert buffer.newest == (lines[-1] if lines else b"")


def test_a_flood_of_lines_is_only_counted(spools):
    """An object for each line took half a minute for 256 MiB, and no other run was watched meanwhile."""
    spools[0].write(b"y\n" * 2**21)
    spools[0].flush()
    tracemalloc.start()
    try:
        printed = OutputBuffer(spools).finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert printed.left_out == 2**21 - FIRST - LAST
    assert peak < 16 * 2**20  # a value for each line of a piece takes 40


@pytest.mark.skipif(not hasattr(os, "pread"), reason="without it nothing is read before the end")
def test_a_truncated_output_is_read_again(spools):
    buffer, out = OutputBuffer(spools), spools[0].fileno()
    os.write(out, b"a long line\n")
    buffer.update()
    os.ftruncate(out, 0)
    os.lseek(out, 0, os.SEEK_SET)
    os.write(out, b"new\n")
    buffer.update()
    assert buffer.newest == b"new"
    assert [line.text for line in buffer.finish().first] == [b"a long line", b"new"]


@pytest.mark.skipif(not hasattr(os, "pread"), reason="without it nothing is read before the end")
def test_the_newest_line(spools):
    buffer, err = OutputBuffer(spools), spools[1].fileno()
    os.write(err, b"epoch 3\n")
    buffer.update()
    os.write(err, b"\n")
    buffer.update()
    assert buffer.newest == b"epoch 3"
    for _ in range(3):
        os.write(err, b"." * 2**20)
        buffer.update()
    assert buffer.finish().first[-1] == (b"." * LONGEST, True)
