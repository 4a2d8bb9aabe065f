"""Why a GPU is not seen: the rules, on facts as recorded on machines of all kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xdevice.hardware.diagnosis import MINIMUM_DRIVER, Facts, diagnose, minimum_driver


def gpu(index=0, maker="nvidia", uuid=None):
    uuid = uuid or f"GPU-{index}f2e3d4c-0000-1111-2222-333344445555"
    return {
        "maker": maker, "index": index, "name": "NVIDIA H200", "uuid": uuid,
        "total_memory": 150_754_820_096, "free_memory": None,
    }  # fmt: skip


def facts(**changed):
    """A CUDA build that sees no GPU, on a machine with one GPU and a recent driver."""
    good = {
        "backend": "torch", "compute": "cuda", "toolkit": "12.6", "gpus": (gpu(),), "drivers": {"nvidia": "570.86.15"},
        "gpu_build_command": "pip install torch-for-gpus",
    }  # fmt: skip
    return Facts(**{**good, **changed})


TWO = (gpu(0), gpu(1))
HIDDEN = [
    ("", TWO), ("-1", TWO), ("-1,0", TWO), ("2", TWO), ("2,0", TWO), (" 7 ", TWO), ("NoDevFiles", TWO), ("none", TWO),
    ("GPU-ffff", TWO), ("99999999999999999999", TWO),
]  # fmt: skip
NOT_HIDDEN = [
    ("0", TWO), ("1", TWO), ("1,0", TWO), ("0,7", TWO), ("0,-1", TWO), ("GPU-1f2e", TWO), ("gpu-0f2e3d4c", TWO),
    ("MIG-1234", TWO), ("0x1", TWO), ("1gpu", TWO), ("+1", TWO),
]  # fmt: skip


def test_no_gpu_is_no_problem():
    assert diagnose(facts(gpus=(), drivers={}, compute="cpu")) is None


def test_no_gpu_and_no_cpu_is_a_problem():
    problem = diagnose(facts(gpus=(), drivers={}, supports_cpu=False))
    assert not problem.wrong
    assert problem.reason == "torch has no CPU, and this machine has no GPU"
    assert "use('numpy')" in problem.cure
    assert diagnose(
        facts(supports_cpu=False, environment={"CUDA_VISIBLE_DEVICES": ""})
    ).reason.endswith("hides the machine's GPU")
    assert diagnose(facts(supports_cpu=False, visible_gpus=1)) is None


def test_a_gpu_that_is_seen_is_not_a_problem():
    assert diagnose(facts(visible_gpus=1, environment={"CUDA_VISIBLE_DEVICES": "0"})) is None


def test_a_cpu_build_says_what_to_install():
    problem = diagnose(facts(compute="cpu", toolkit=None))
    assert problem.wrong
    assert problem.reason == "this torch is built for the CPU only"
    assert problem.cure == "pip install torch-for-gpus"
    assert "toy" in diagnose(facts(backend="toy", compute="cpu", gpu_build_command=None)).cure


def test_no_gpu_support_is_a_note():
    problem = diagnose(facts(backend="numpy", compute="cpu", supports_gpus=False))
    assert not problem.wrong
    assert "numpy computes on the CPU only" in problem.reason


@pytest.mark.parametrize(("value", "gpus"), HIDDEN)
def test_cuda_visible_devices_hides_all(value, gpus):
    problem = diagnose(facts(gpus=gpus, environment={"CUDA_VISIBLE_DEVICES": value}))
    assert problem.wrong
    assert f"CUDA_VISIBLE_DEVICES={value!r} hides all 2 GPUs" in problem.reason
    assert problem.cure == "unset CUDA_VISIBLE_DEVICES, or export CUDA_VISIBLE_DEVICES=0,1"


@pytest.mark.parametrize(("value", "gpus"), NOT_HIDDEN)
def test_cuda_visible_devices_leaves_some(value, gpus):
    assert (
        "VISIBLE"
        not in diagnose(facts(gpus=gpus, environment={"CUDA_VISIBLE_DEVICES": value})).reason
    )


@given(st.text(max_size=20))
def test_any_cuda_visible_devices(value):
    assert diagnose(facts(environment={"CUDA_VISIBLE_DEVICES": value})).reason


def test_amds_variables_hide_amds_gpus():
    amd = facts(compute="rocm", toolkit="6.2", gpus=(gpu(maker="amd"),), drivers={"amd": "6.8"})
    for variable in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        assert (
            variable in diagnose(Facts(**{**vars_of(amd), "environment": {variable: "-1"}})).reason
        )
    assert "HIP" not in diagnose(facts(environment={"HIP_VISIBLE_DEVICES": "-1"})).reason


def vars_of(recorded):
    return {name: getattr(recorded, name) for name in Facts.__slots__}


def test_a_container_without_the_gpu():
    assert "docker run --gpus all" in diagnose(facts(gpus_are_given=False)).cure
    assert (
        "NVIDIA_VISIBLE_DEVICES='void'"
        in diagnose(facts(environment={"NVIDIA_VISIBLE_DEVICES": "void"})).reason
    )
    for harmless in ("all", "", "0"):
        assert (
            "VISIBLE"
            not in diagnose(facts(environment={"NVIDIA_VISIBLE_DEVICES": harmless})).reason
        )


def test_a_card_without_a_driver():
    problem = diagnose(facts(drivers={}))
    assert "no NVIDIA driver is loaded" in problem.reason
    assert "ubuntu-drivers" in problem.cure


def test_driver_and_library_differ():
    problem = diagnose(facts(driver_error="Driver/library version mismatch"))
    assert "mismatch" in problem.reason
    assert problem.cure.startswith("restart the machine")
    assert "nvidia-smi" in diagnose(facts(driver_error="Unknown Error")).cure


@pytest.mark.parametrize(("toolkit", "driver", "needed"), [
    ("13.0", "570.86.15", "580"), ("12.6", "520.61.05", "525.60.13"), ("12.0", "525.60.12", "525.60.13"),
    ("11.8", "450.36.06", "450.80.02"), ("11.0", "440.33", "450.36.06"), ("10.2", "418.39", "440.33"),
])  # fmt: skip
def test_a_driver_too_old_for_the_toolkit(toolkit, driver, needed):
    problem = diagnose(facts(toolkit=toolkit, drivers={"nvidia": driver}))
    assert (
        problem.reason == f"the driver {driver} is too old for CUDA {toolkit}, which needs {needed}"
    )
    assert needed in problem.cure


@pytest.mark.parametrize(("toolkit", "driver"), [
    ("12.6", "525.60.13"), ("12.8", "525.105.17"), ("11.8", "450.80.02"), ("11.0", "450.36.06"), ("13.0", "580.65.06"),
    ("12.6", "1000"), ("99.0", "1"), (None, "1"), ("12.6", None), ("12", "525.60.13"), ("11.7.1", "450.80.02"),
])  # fmt: skip
def test_a_driver_that_is_not_the_reason(toolkit, driver):
    assert "too old" not in diagnose(facts(toolkit=toolkit, drivers={"nvidia": driver})).reason


def test_drivers_rise_with_the_toolkit():
    def numbers(version):
        return [int(part) for part in version.split(".")]

    table = sorted(MINIMUM_DRIVER, key=numbers)
    assert [MINIMUM_DRIVER[t] for t in table] == sorted(MINIMUM_DRIVER.values(), key=numbers)
    assert minimum_driver("12.4") == "525.60.13"
    assert minimum_driver("7.5") is None


def test_a_build_for_another_maker():
    problem = diagnose(facts(gpus=(gpu(maker="amd"),), drivers={"amd": None}))
    assert problem.reason == "this torch is built for cuda, the GPU is AMD's"
    assert "NVIDIA's" in diagnose(facts(compute="rocm")).reason
    assert "NVIDIA's" in diagnose(facts(compute="xpu")).reason


def test_an_unexplained_case_has_a_cure():
    problem = diagnose(facts())
    assert problem.wrong
    assert "built for cuda 12.6" in problem.reason
    assert "pip install torch-for-gpus" in problem.cure
    assert diagnose(facts(compute=None, toolkit=None, gpu_build_command=None)).cure


def test_the_hopeless_comes_before_settings():
    both = facts(
        compute="cpu",
        toolkit=None,
        environment={"CUDA_VISIBLE_DEVICES": ""},
        drivers={"nvidia": "300.1"},
    )
    assert "CPU only" in diagnose(both).reason
    hidden_and_old = facts(environment={"CUDA_VISIBLE_DEVICES": ""}, drivers={"nvidia": "300.1"})
    assert "hides" in diagnose(hidden_and_old).reason


def test_each_problem_is_one_line():
    kinds = [
        facts(), facts(compute="cpu"), facts(supports_gpus=False), facts(gpus_are_given=False), facts(drivers={}),
        facts(driver_error="x"), facts(environment={"CUDA_VISIBLE_DEVICES": ""}), facts(toolkit="13.0"),
        facts(compute="rocm"),
    ]  # fmt: skip
    problems = [diagnose(one) for one in kinds]
    assert len({p.reason for p in problems}) == len(kinds)
    for problem in problems:
        for text in (problem.reason, problem.cure):
            assert text
            assert "\n" not in text
            assert not text.endswith(".")
