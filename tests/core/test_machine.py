"""What the machine has, read from files as drivers write them, and from this machine."""

from importlib.util import find_spec

import pytest

from xdevice import machine


@pytest.fixture
def root(tmp_path):
    """``root({path: text})`` is a folder with the files of a machine."""

    def build(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return str(tmp_path)

    return build


INFORMATION = """\
Model: \t\t NVIDIA H200
IRQ:   \t\t 130
GPU UUID: \t GPU-1f2e3d4c-0000-1111-2222-333344445555
Bus Location: \t 0000:19:00.0
"""
CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
    "GCC version: 12.3.0\n"
)
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs@builder)\n"
VERSIONS = {
    CLOSED: "535.104.05",
    OPEN: "570.86.15",
    "": None,
    "NVRM version: something else\n": None,
}


@pytest.mark.parametrize("text", VERSIONS)
def test_nvidia_gpus_without_nvml(root, text):
    found = machine.gpus(root({
        "proc/driver/nvidia/version": text,
        "proc/driver/nvidia/gpus/0000:19:00.0/information": INFORMATION,
        "proc/driver/nvidia/gpus/0000:3b:00.0/information": "Model: \t NVIDIA H200\nGPU UUID: \t GPU-????????-????\n",
        "dev/nvidia0": "", "dev/nvidiactl": "",
    }))  # fmt: skip
    assert [g["name"] for g in found["gpus"]] == ["NVIDIA H200"] * 2
    assert [g["uuid"] for g in found["gpus"]] == ["GPU-1f2e3d4c-0000-1111-2222-333344445555", None]
    assert [g["total_memory"] for g in found["gpus"]] == [None, None]
    assert found["drivers"] == {"nvidia": VERSIONS[text]}
    assert found["given"]


def test_a_card_without_a_driver(root):
    found = machine.gpus(root({
        "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
        "sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
        "sys/bus/pci/devices/0000:02:00.0/vendor": "0x1002\n", "sys/bus/pci/devices/0000:02:00.0/class": "0x030000\n",
    }))  # fmt: skip
    assert len(found["gpus"]) == 1
    assert found["gpus"][0]["maker"] == "nvidia"
    assert found["gpus"][0]["name"] is None
    assert found["drivers"] == {}


def test_a_container_without_device_nodes(root):
    files = {
        "proc/driver/nvidia/version": "",
        "proc/driver/nvidia/gpus/0000:19:00.0/information": INFORMATION,
    }
    assert machine.gpus(root(files))["given"] is False
    assert machine.gpus(root({**files, "dev/dxg": ""}))["given"] is True


def test_amd_gpus_are_told_from_cpus(root):
    found = machine.gpus(root({
        "sys/class/kfd/kfd/topology/nodes/0/gpu_id": "0\n", "sys/class/kfd/kfd/topology/nodes/0/name": "\n",
        "sys/class/kfd/kfd/topology/nodes/1/gpu_id": "51966\n", "sys/class/kfd/kfd/topology/nodes/1/name": "gfx90a\n",
        "sys/module/amdgpu/version": "6.8.5\n",
    }))  # fmt: skip
    assert [(g["maker"], g["index"], g["name"]) for g in found["gpus"]] == [("amd", 0, "gfx90a")]
    assert found["drivers"] == {"amd": "6.8.5"}


def test_a_machine_without_a_gpu(root):
    assert machine.gpus(root({})) == {
        "gpus": [],
        "drivers": {},
        "driver_error": None,
        "given": True,
    }


def test_the_uuids_prefix_does_not_matter():
    assert machine.same_gpu("GPU-1F2E", "1f2e")
    assert machine.same_gpu("GPU-1f2e", "GPU-1f2e")
    assert not machine.same_gpu("GPU-1f2e", "GPU-1f2f")
    assert not machine.same_gpu(None, None)
    assert not machine.same_gpu("GPU-1f2e", None)


def test_this_machines_host_is_known():
    host = machine.host()
    assert host["name"]
    assert host["threads"] >= 1
    assert host["total_memory"] > 2**28
    if find_spec("psutil"):
        assert 0 < host["available_memory"] <= host["total_memory"]
    else:
        assert host["available_memory"] is None


def test_this_machine_can_be_asked_for_its_gpus():
    found = machine.gpus()
    for gpu in found["gpus"]:
        assert gpu["maker"] in ("nvidia", "amd")
        assert gpu["total_memory"] is None or gpu["total_memory"] > 2**28
