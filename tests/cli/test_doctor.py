"""``xdevice doctor``: a line for each framework, and an exit status."""

import json
import subprocess
import sys

import pytest

import xdevice
from xdevice.machine import gpus

TOY = ("--backend", "toy")


def finding(done, subject="toy"):
    (found,) = [f for f in json.loads(done.stdout)["findings"] if f["subject"] == subject]
    return found


def test_a_framework_with_gpus_is_well_and_one_that_is_not_installed_is_not_wrong(with_toy):
    done = with_toy("good", "doctor", "--backend", "ghost,toy", "--json", status=0)
    assert finding(done) == {
        "subject": "toy",
        "state": "good",
        "reason": "1.5 sees gpu:0, gpu:1",
        "cure": None,
    }
    assert finding(done, "ghost")["state"] == "note"


def test_virtual_gpus_are_not_real(with_toy):
    strict = ("--backend", "array_api_strict")
    done = with_toy("good", "doctor", *strict, "--json", nvml=False, XDEVICE_VIRTUAL_GPUS="2")
    reason = finding(done, "array_api_strict")["reason"]
    assert "sees virtual gpu:0, virtual gpu:1" in reason


@pytest.mark.parametrize(("env", "reason", "cure"), [
    ({"CUDA_VISIBLE_DEVICES": "3"}, "CUDA_VISIBLE_DEVICES='3' hides the machine's GPU", "_VISIBLE_DEVICES=0"),
    pytest.param(
        {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides the machine's GPU", "unset CUDA_VISIBLE_D",
        marks=pytest.mark.weekly,
    ),
    pytest.param(
        {"TOY_COMPUTE": "cpu"}, "this toy is built for the CPU only", "install a build of toy for GPUs",
        marks=pytest.mark.weekly,
    ),
    ({"TOY_COMPUTE": "rocm"}, "this toy is built for rocm, the GPU is NVIDIA's", "for NVIDIA GPUs"),
])  # fmt: skip
def test_an_unseen_gpu_says_what_to_type(with_toy, env, reason, cure):
    done = with_toy("good", "doctor", *TOY, "--json", status=1, TOY_GPUS="0", **env)
    found = finding(done)
    assert found["state"] == "wrong"
    assert found["reason"] == reason
    assert cure in found["cure"]


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("framework", "reason"), [("segfaults", "killed by SIGSEGV"), ("broken", "libtoy.so")]
)
def test_a_failing_import_is_wrong(with_toy, framework, reason):
    done = with_toy(framework, "doctor", *TOY, status=1)
    (line,) = [line for line in done.stdout.splitlines() if " toy " in line]
    assert line.startswith("✗")
    assert reason in line
    assert "python -c 'import toy'" in line


HINT = "1.4 has it: pip install toy==1.4"
PLACEMENT = (
    "placement: not supported: toy.Tensor._device is not there, toy.Tensor._place is not there"
)


@pytest.mark.weekly
def test_each_feature_that_this_version_lacks_is_a_line_and_wrong_only_if_virtual_gpus_need_it(
    with_toy,
):
    for framework, wrong in (
        ("changed", ["✗ toy virtual GPUs do not work: toy._start is not there, "]),
        ("newer", []),
    ):
        done = with_toy(framework, "doctor", *TOY, status=len(wrong), COLUMNS="300")
        lines = [
            " ".join(line.split()) for line in done.stdout.splitlines() if " is not there" in line
        ]
        assert lines == [f"{line}needed for a start; {HINT}" for line in wrong] + [
            f"! toy {PLACEMENT}; {HINT}"
        ]


@pytest.mark.weekly
def test_the_json_form_has_the_features_that_are_missing(with_toy, rows):
    done = json.loads(with_toy("newer", "doctor", *TOY, "--json", status=0).stdout)
    (found,) = [each for each in done["findings"] if each["state"] == "warning"]
    assert not done["wrong"]
    assert found == {
        "subject": "toy",
        "state": "warning",
        "reason": PLACEMENT,
        "cure": HINT,
    }
    (missing,) = rows("newer", *TOY)[0]["toy"]["missing"]
    reason = PLACEMENT.removeprefix("placement: not supported: ")
    assert missing == {"feature": "placement", "reason": reason, "essential": False, "cure": HINT}


@pytest.mark.weekly
def test_no_gpu_needs_no_cure(with_toy):
    if gpus()["gpus"]:
        pytest.skip("this machine has a GPU")
    done = with_toy("good", "doctor", nvml=False, status=0, TOY_GPUS="0")
    assert "this machine has no GPU; nothing is wrong" in done.stdout
    for name in xdevice.available():
        assert f"✓ {name}" in done.stdout


@pytest.mark.weekly
def test_a_second_xdevice_is_wrong(with_toy, tmp_path):
    ours = json.loads(with_toy("good", "doctor", *TOY, "--json", status=0).stdout)
    assert "xdevice" not in {f["subject"] for f in ours["findings"]}
    info = tmp_path / "xdevice-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: xdevice\nVersion: 3.1\n", encoding="utf-8"
    )
    found = finding(with_toy("good", "doctor", *TOY, "--json", status=1), "xdevice")
    assert found["state"] == "wrong"
    assert "'xdevice' 3.1 is installed beside 'xdevice-tensors'" in found["reason"]
    assert found["cure"].startswith("pip uninstall xdevice,")


def test_each_finding_is_one_line(with_toy):
    done = with_toy("broken", "doctor", *TOY, status=1)
    report = json.loads(with_toy("broken", "doctor", *TOY, "--json", status=1).stdout)
    assert len(done.stdout.splitlines()) == len(report["findings"])
    assert report["wrong"] is True
    assert all(c == "\n" or c.isprintable() for c in done.stdout)


def test_try_gpu_warns_once_and_says_why(toy, tmp_path, python):
    code = "import warnings, xdevice; warnings.simplefilter('always'); xdevice.use('toy')\n"
    code += "print([str(xdevice.try_gpu(i)) for i in (0, 0, 3)])"
    env = {**toy.write(tmp_path, "good"), "TOY_GPUS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
    done = python("-c", code, env=env)
    assert done.stdout.splitlines()[-1] == "['cpu:0', 'cpu:0', 'cpu:0']"
    assert done.stderr.count("DeviceFallbackWarning") == 1
    says = "toy sees no GPU although this machine has one: CUDA_VISIBLE_DEVICES='-1' hides the machine's GPU; unset"
    assert says in done.stderr


@pytest.mark.weekly
def test_it_asks_in_processes_of_their_own():
    code = """
import sys
from xdevice.tools.cli import main
main(["doctor", "--backend", "numpy"])
print(sorted({"numpy", "torch", "tensorflow", "paddle", "mxnet", "jax"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
