"""A process that is killed while it writes, and a full disk, leave the previous file unchanged."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import xdevice

BIG = """
import numpy, resource, signal, sys, xdevice
xdevice.use("numpy")
tree = {str(i): numpy.full((1000, 1000), float(i)) for i in range(20)}
"""


def run(code, *arguments, **options):
    command = [sys.executable, "-c", BIG + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture
def old(tmp_path):
    """A file that exists before the test."""
    with xdevice.using("numpy"):
        xdevice.save(xdevice.ones(3), tmp_path / "file")
    return tmp_path / "file"


def is_as_before(old):
    with xdevice.using("numpy"):
        return xdevice.load(old).tolist() == [1, 1, 1]


@pytest.mark.weekly
def test_a_kill_leaves_the_old_file_or_the_new(old):
    process = run(
        """
        while True:
            xdevice.save(tree, sys.argv[1])
        """,
        old,
    )
    seen = set()
    until = time.monotonic() + 60
    while not any(name.endswith(".part") for name in seen) and time.monotonic() < until:
        seen |= set(os.listdir(old.parent))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert any(name.endswith(".part") for name in seen)  # it was killed in the middle
    with xdevice.using("numpy"):
        back = xdevice.load(old)
    assert len(back) == 20 if isinstance(back, dict) else back.tolist() == [1, 1, 1]


@pytest.mark.weekly
def test_a_full_disk_leaves_the_old_file_only(old):
    process = run(
        """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))  # what a full disk does to a file
        try:
            xdevice.save(tree, sys.argv[1])
        except OSError as error:
            sys.exit(f"OSError {error}")
        """,
        old,
    )
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1, stderr
    assert stderr.startswith("OSError "), stderr
    assert "nothing has changed there" in stderr
    assert is_as_before(old)
    assert os.listdir(old.parent) == ["file"]


def test_an_array_of_another_byte_order_keeps_its_numbers(tmp_path):
    with xdevice.using("numpy"):
        xdevice.save(np.arange(3, dtype=">f4"), tmp_path / "file")
        assert xdevice.load(tmp_path / "file").tolist() == [0, 1, 2]


def test_the_mode_of_a_file_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with xdevice.using("numpy"):
            xdevice.save(xdevice.ones(3), tmp_path / "file")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("library", "says"),
    [
        ("sys.modules['safetensors'] = None", "pip install safetensors"),
        (
            "import safetensors; del safetensors.TensorSpec",
            "pip install -U safetensors",
        ),
    ],
    ids=["missing", "too old"],
)
def test_a_library_that_is_missing_or_too_old_says_what_to_install(python, library, says):
    code = f"import sys, xdevice\n{library}\nxdevice.use('numpy'); xdevice.save(xdevice.ones(3), 'file')"
    assert says in python("-c", code).stderr.splitlines()[-1]
