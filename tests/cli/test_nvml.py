"""A machine with NVIDIA GPUs, as NVIDIA's own Python package sees it through a library compiled here.

The library is no driver: no framework computes on its GPUs. What is tested is which GPUs xdevice finds, and what
it says about a framework that does not see them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import xdevice
from xdevice.hardware.diagnosis import facts_of

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the library is found through LD_LIBRARY_PATH"
)

TOY = ("--backend", "toy", "--json")
GIBI = 2**30
MISMATCH = "the NVIDIA driver's library and kernel module have different versions"


@pytest.fixture(scope="session")
def library(compiler, tmp_path_factory):
    """The environment in which the compiled library is found."""
    folder = tmp_path_factory.mktemp("nvml")
    source, target = Path(__file__).with_name("nvml.c"), folder / "libnvidia-ml.so.1"
    options = "-x", "c", "-Wall", "-Werror", "-shared", "-fPIC"
    subprocess.run([*compiler, *options, "-o", target, source], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture
def doctor(with_toy, library):
    """The findings by subject, where the toy framework sees no GPU."""

    def ask(*arguments, status, **env):
        env = {"TOY_GPUS": "0", **library, **env}
        done = with_toy("good", "doctor", *(arguments or TOY), nvml=False, status=status, **env)
        return {found["subject"]: found for found in json.loads(done.stdout)["findings"]}

    return ask


def test_info_lists_the_gpus(rows, library):
    machine = rows("good", "--backend", "toy", nvml=False, **library)[1]
    assert [gpu["name"] for gpu in machine["gpus"]] == ["Test GPU"] * 2
    assert [gpu["uuid"] for gpu in machine["gpus"]] == [
        f"GPU-0000000{i}-0000-1111-2222-333344445555" for i in range(2)
    ]
    assert {(gpu["total_memory"], gpu["free_memory"]) for gpu in machine["gpus"]} == {
        (80 * GIBI, 79 * GIBI)
    }
    assert machine["drivers"] == {"nvidia": "570.86.15"}
    assert machine["driver_error"] is None


def test_doctor_explains_unseen_gpus(doctor):
    found = doctor(status=1, CUDA_VISIBLE_DEVICES="2")
    assert found["machine"]["state"] == "good"
    assert found["machine"]["reason"] == "Test GPU, Test GPU; NVIDIA driver 570.86.15"
    assert found["toy"]["state"] == "wrong"
    assert "CUDA_VISIBLE_DEVICES='2' hides all 2 GPUs" in found["toy"]["reason"]
    assert "export CUDA_VISIBLE_DEVICES=0,1" in found["toy"]["cure"]


@pytest.mark.weekly
def test_doctor_names_the_process_that_has_taken_a_gpus_memory(doctor):
    pid = os.getpid()
    found = doctor(status=1, FAKE_NVML_HOLDER=str(pid))["GPU 1"]
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    assert found["state"] == "note"
    assert found["reason"] == f"process {pid} ({name}) holds 75.0 GiB of its 80.0 GiB"
    assert "share_gpus()" in found["cure"]
    assert "GPU 1" not in doctor(status=1)


def test_the_processes_that_hold_memory_are_named(library):
    uuid = "00000001-0000-1111-2222-333344445555"
    code = f"""
import os
os.environ["FAKE_NVML_HOLDER"] = str(os.getpid())
from xdevice.hardware import memory
print(memory._holders({uuid!r}), memory._holders("GPU-{uuid.replace("1", "0", 1)}"), memory._holders(None))
os.environ["FAKE_NVML_HOLDER"] = str(2**22 + 1)
print(memory._holders({uuid!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **library}
    )
    held = 75 * GIBI
    assert done.stdout.splitlines() == [
        f"{{'this process': {held}}} None None",
        f"{{'process 4194305': {held}}}",
    ]


@pytest.mark.weekly
def test_doctor_explains_each_framework(backend, doctor):
    state, status = ("wrong", 1) if facts_of(xdevice.backend()).supports_gpus else ("note", 0)
    found = doctor("--backend", str(backend), "--json", status=status)[backend]
    assert found["state"] == state
    assert found["cure"]


@pytest.mark.weekly
def test_a_mismatched_driver_wants_a_restart(doctor):
    found = doctor(status=1, FAKE_NVML_INIT_FAILS="18", FAKE_NVML_GPUS="0")
    for subject in ("machine", "toy"):
        assert found[subject]["state"] == "wrong"
        assert found[subject]["reason"].startswith(MISMATCH)
        assert found[subject]["cure"].startswith("restart the machine")


@pytest.mark.weekly
def test_a_driver_that_cannot_count_is_wrong(doctor):
    found = doctor(status=1, FAKE_NVML_COUNT_FAILS="999")
    assert found["machine"]["state"] == found["toy"]["state"] == "wrong"
    assert found["machine"]["reason"].startswith("the NVIDIA driver fails (")
    assert "nvidia-smi" in found["machine"]["cure"]


@pytest.mark.weekly
def test_info_shows_the_drivers_error(with_toy, library):
    done = with_toy(
        "good",
        "info",
        "--backend",
        "toy",
        nvml=False,
        status=0,
        FAKE_NVML_INIT_FAILS="18",
        COLUMNS="150",
        **library,
    )
    assert MISMATCH in done.stdout


def test_try_gpu_warns_of_a_driver_that_fails(toy, library, tmp_path):
    env = {
        **toy.write(tmp_path, "good", nvml=False),
        **library,
        "TOY_GPUS": "0",
        "FAKE_NVML_INIT_FAILS": "18",
    }
    code = "import xdevice; xdevice.use('toy'); print(xdevice.try_gpu())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=env
    )
    assert done.stdout.splitlines()[-1] == "cpu:0"
    assert f"DeviceFallbackWarning: toy sees no GPU: {MISMATCH}" in done.stderr
