"""``xdevice doctor``: a line for each framework, and an exit status."""

import json

import pytest

import xdevice
from xdevice.machine import gpus


def finding(done, subject="toy"):
    (found,) = [f for f in json.loads(done.stdout)["findings"] if f["subject"] == subject]
    return found


def test_a_framework_that_sees_the_gpus_is_well(with_toy):
    found = finding(with_toy("good", "doctor", "--json"))
    assert found == {"subject": "toy", "state": "good", "reason": "1.5 sees gpu:0, gpu:1", "cure": None}


@pytest.mark.parametrize(("env", "reason", "cure"), [
    ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides the machine's GPU", "unset CUDA_VISIBLE_DEVICES"),
    ({"CUDA_VISIBLE_DEVICES": "3"}, "CUDA_VISIBLE_DEVICES='3' hides the machine's GPU", "export CUDA_VISIBLE_DEVICES=0"),
    ({"TOY_COMPUTE": "cpu"}, "this toy is built for the CPU only", "install a build of toy for GPUs"),
    ({"TOY_COMPUTE": "rocm"}, "this toy is built for rocm, the GPU is NVIDIA's", "for NVIDIA GPUs"),
])  # fmt: skip
def test_a_gpu_that_is_not_seen_is_wrong_and_the_line_says_what_to_type(with_toy, env, reason, cure):
    # /dev has no node for the GPU that the recorded NVML reports: the rules before that one are promised here
    done = with_toy("good", "doctor", "--json", status=1, TOY_GPUS="0", **env)
    found = finding(done)
    assert found["state"] == "wrong"
    if "CUDA" in reason and found["reason"] == "this container was not given the machine's GPU":
        assert not gpus()["gpus"] and "docker run --gpus all" in found["cure"]
    else:
        assert found["reason"] == reason and cure in found["cure"]


@pytest.mark.parametrize(("framework", "reason"), [("segfaults", "killed by SIGSEGV"), ("broken", "libtoy.so")])
def test_a_framework_that_fails_to_import_is_wrong(with_toy, framework, reason):
    done = with_toy(framework, "doctor", status=1)
    (line,) = [line for line in done.stdout.splitlines() if " toy " in line]
    assert line.startswith("✗") and reason in line and "python -c 'import toy'" in line


def test_a_framework_that_is_not_installed_is_not_wrong(with_toy):
    assert finding(with_toy("good", "doctor", "--json"), "ghost")["state"] == "note"


def test_a_machine_without_a_gpu_has_nothing_to_mend(with_toy):
    if gpus()["gpus"]:
        pytest.skip("this machine has a GPU")
    done = with_toy("good", "doctor", nvml=False, status=0, TOY_GPUS="0")
    assert "no GPU in this machine; nothing to mend" in done.stdout
    for name in xdevice.available():
        assert f"✓ {name}" in done.stdout


def test_each_finding_is_one_line(with_toy):
    done = with_toy("broken", "doctor", status=1)
    report = json.loads(with_toy("broken", "doctor", "--json", status=1).stdout)
    assert len(done.stdout.splitlines()) == len(report["findings"])
    assert report["wrong"] is True
    assert all(c == "\n" or c.isprintable() for c in done.stdout)
