"""The other project called `xdevice` has an `xdevice/__init__.py`, too: what Python says where both were installed."""

import os
import subprocess
import sys
from zipfile import ZipFile

import pytest

CURE = "pip install --force-reinstall --no-deps xdevice-tensors"


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture
def site(unpacked):
    """The folder of the packages, whose files that both projects have may be changed."""
    shared = [unpacked / "xdevice" / name for name in ("__init__.py", "__main__.py")]
    texts = [file.read_bytes() for file in shared]
    yield unpacked
    for file, text in zip(shared, texts, strict=True):
        file.write_bytes(text)


def said(site, code):
    """The last line, of an interpreter that knows nothing but the standard library and this folder."""
    command, environment = (
        [sys.executable, "-S", "-c", code],
        {**os.environ, "PYTHONPATH": str(site)},
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    return (done.stdout + done.stderr).splitlines()[-1]


@pytest.mark.parametrize(
    "code", ["import xdevice", "from xdevice import device_of", "import xdevice.testing"]
)
def test_theirs_over_ours_is_named(site, code):
    theirs = "import os, sys\nsys.path.insert(0, os.path.abspath(os.path.dirname(__file__)))\nfrom typing import List\n"
    (site / "xdevice" / "__init__.py").write_text(theirs, encoding="utf-8")
    line = said(site, code)
    assert line.startswith(
        "ImportError: the package 'xdevice', another project with the same import name"
    )
    assert line.endswith(CURE)


@pytest.mark.parametrize(
    "code", ["import xdevice", "from xdevice import device_of", "import xdevice.testing"]
)
def test_what_uninstalling_theirs_takes_away_is_named(site, code):
    for shared in ("__init__.py", "__main__.py"):
        (site / "xdevice" / shared).unlink()
    line = said(site, code)
    assert line.startswith("ImportError: the files of xdevice-tensors are incomplete")
    assert line.endswith(CURE)


def test_ours_is_the_package(site):
    line = said(site, "import xdevice; print(xdevice.__file__, xdevice.Device('cuda:1'))")
    assert line == f"{site / 'xdevice' / '__init__.py'} gpu:1"
