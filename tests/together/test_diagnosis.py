"""What each framework says of its GPUs, from which the doctor and `try_gpu` advise."""

import xdevice
from xdevice.hardware.diagnosis import diagnose, facts_of


def test_facts_of_every_framework(backend, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    card = {
        "maker": "nvidia",
        "index": 0,
        "name": None,
        "uuid": None,
        "total_memory": None,
        "free_memory": None,
    }
    machine = {"gpus": [card], "drivers": {"nvidia": "1.0"}, "driver_error": None, "given": True}
    taken = facts_of(xdevice.backend(), machine)
    assert taken.backend == backend
    assert taken.compute in ("cpu", "cuda", "rocm", "mps", "xpu")
    assert taken.gpus == (card,)
    assert taken.environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert taken.visible_gpus == xdevice.count("gpu")
    assert taken.visible_gpus or diagnose(taken).cure


def test_each_names_its_build_for_gpus(backend):
    taken = facts_of(xdevice.backend())
    assert (taken.gpu_build_command is not None) == taken.supports_gpus
