"""An adapter of a published framework, in a distribution of its own: on tinygrad's CPU, and on a real driver."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

DISTRIBUTION = "xdevice-tinygrad"

pytestmark = pytest.mark.skipif(
    find_spec("tinygrad") is None,
    reason="tinygrad is not installed: tox run -c tox-weekly.ini -e tinygrad",
)

DRIVERS = [path for path in os.environ.get("VK_ICD_FILENAMES", "").split(os.pathsep) if path] or [
    str(path) for path in Path("/usr/share/vulkan/icd.d").glob("lvp_icd.*.json")
]


@pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "clang")) is None, reason="tinygrad needs clang for its CPU"
)
def test_it_keeps_the_contract_on_its_cpu_and_two_virtual_gpus(run, elsewhere):
    counts, status, said = run(
        elsewhere, "--xdevice-virtual-gpus=2", "--xdevice-require", "-k", "not real_gpu", DEV="CPU"
    )
    assert status == 0, said
    assert counts["passed"] > 450


@pytest.mark.skipif(
    find_spec("pydawn") is None,
    reason="dawn-python is not installed: tox run -c tox-weekly.ini -e tinygrad",
)
@pytest.mark.skipif(
    not DRIVERS, reason="no Vulkan driver is installed: apt install mesa-vulkan-drivers"
)
def test_it_keeps_the_contract_on_two_gpus_of_a_real_driver(run, elsewhere):
    import pydawn

    dawn = Path(pydawn.__file__).parent / "lib" / f"libwebgpu_dawn_{os.uname().machine}.so"
    real = {
        "DEV": "WEBGPU",
        "TINYGRAD_GPUS": "2",
        "WEBGPU_PATH": str(dawn),
        "VK_ICD_FILENAMES": DRIVERS[0],
    }
    counts, status, said = run(elsewhere, "--xdevice-require", **real)
    assert status == 0, said
    assert counts["passed"] > 450
    assert "skipped" not in counts
