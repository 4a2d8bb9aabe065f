"""CUDA devices without a GPU: PyTorch's FakeTensorMode, whose tensors have a device and a shape but no values.

It runs in a process of its own, in which `torch.cuda.device_count` is replaced: a build for the CPU counts none.
"""

import json
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(
    torch.backends.cuda.is_built(), reason="this torch can ask real GPUs, which it would do"
)

QUESTIONS = {
    "places": "device_of(x), device_of(torch.ones(1, device='cuda')), sorted(devices_of([x, host]))",
    "same": "is_same_device(x, host), is_same_device(x, torch.ones(1, device='cuda:1'))",
    "check": "error_of(lambda: check_same_device(x, host))",
    "equal": "device_of(x) == 'cuda:1', x.device == gpu(1), gpu(0) == x.device",
    "moved": "device_of(to_device(host, 'gpu:1')), device_of(to_device(x, 'cpu'))",
    "moved where it is": "to_device(x, 'cuda:1') is x, to_device(x, 'cuda:1', copy=True) is x",
    "missing": "error_of(lambda: to_device(x, 'gpu:2'))",
    "scope": "in_scope(lambda: device_of(torch.ones(2))), in_scope(lambda: device_of(zeros(2)))",
    "factories": "device_of(rand(2, device='gpu:0')), device_of(ones(2, device='gpu:1'))",
    "gpus": "try_all_gpus(), try_gpu(1), try_gpu(2)",
    "split_batch": "[device_of(part) for part in split_batch(torch.ones(4, 3), try_all_gpus())]",
    "replicate": "[device_of(part) for part in replicate([host], try_all_gpus())]",
    "all_reduce": "[device_of(y) for y in all_reduce([torch.ones(2, device=d) for d in ('cuda:0', 'cuda:1')])]",
    "properties": "error_of(lambda: properties('gpu:1'))",
    "memory_stats": "error_of(lambda: memory_stats('gpu:1'))",
    "empty_cache": "error_of(lambda: empty_cache('gpu:1'))",
    "numpy from the GPU": "error_of(lambda: to_numpy(x))",
    "numpy from the CPU": "error_of(lambda: to_numpy(host))",
    "numpy from real memory": "error_of(real_to_numpy)",
    "waiting": "synchronize('gpu:1'), synchronize(), Timer().stop() >= 0",
}

CODE = """
import json, sys
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from xdevice import *

torch.cuda.device_count = lambda: 2
use("torch")

def error_of(call):
    try:
        return call()
    except XDeviceError as error:
        return type(error).__name__, str(error)

def in_scope(call):
    with gpu(1):
        return call()

real = torch.ones(3)

def real_to_numpy():
    with FakeTensorMode(allow_non_fake_inputs=True):
        return to_numpy(real)

with FakeTensorMode():
    x, host = torch.ones(2, 3, device="cuda:1"), torch.ones(2, 3)
    print(json.dumps({name: eval(question) for name, question in json.loads(sys.argv[1]).items()}, default=str))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """The answers as JSON has them: devices as strings, tuples as lists."""
    command = [sys.executable, "-c", CODE, json.dumps(QUESTIONS)]
    outside = tmp_path_factory.mktemp(
        "outside"
    )  # in the checkout, `python -c` would import the core from there
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=outside)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_tensor_on_the_second_gpu_is_found_there(said):
    assert said["places"] == ["gpu:1", "gpu:0", ["cpu:0", "gpu:1"]]
    assert said["same"] == [False, True]
    assert said["equal"] == [True, True, False]
    assert said["check"][0] == "MixedDeviceError"


def test_moves_go_to_the_gpu_named_and_to_no_other(said):
    assert said["moved"] == ["gpu:1", "cpu:0"]
    assert said["moved where it is"] == [True, False]
    assert said["missing"][0] == "DeviceNotFoundError"
    assert "sees cpu:0, gpu:0, gpu:1" in said["missing"][1]


def test_factories_and_scopes_create_on_the_gpu(said):
    assert said["scope"] == ["gpu:1", "gpu:1"]
    assert said["factories"] == ["gpu:0", "gpu:1"]
    assert said["gpus"] == [["gpu:0", "gpu:1"], "gpu:1", "cpu:0"]


@pytest.mark.parametrize("call", ["split_batch", "replicate", "all_reduce"])
def test_there_is_one_part_on_each_gpu(said, call):
    assert said[call] == ["gpu:0", "gpu:1"]


@pytest.mark.parametrize("call", ["properties", "memory_stats", "empty_cache"])
def test_a_build_without_cuda_raises_our_error(said, call):
    kind, text = said[call]
    assert kind == "NotSupportedError"
    assert text.startswith("gpu:1 is counted, but torch")
    assert text.endswith(
        "is built for the CPU only and cannot be asked about it; install a build for CUDA"
    )


@pytest.mark.parametrize("call", ["numpy from the GPU", "numpy from the CPU"])
def test_a_tensor_without_values_has_no_numpy_array(said, call):
    kind, text = said[call]
    assert kind == "NotSupportedError"
    assert text.startswith("NumPy cannot hold this FakeTensor (")


def test_a_mode_that_hides_the_values_of_a_tensor_is_not_passed_by(said):
    kind, text = said["numpy from real memory"]
    assert kind == "NotSupportedError"
    assert text.startswith("NumPy cannot hold this Tensor (")


def test_unused_gpus_are_not_waited_for(said):
    assert said["waiting"] == [None, None, True]
