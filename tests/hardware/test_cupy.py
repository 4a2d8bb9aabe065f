"""CuPy on a machine without a GPU, where its arrays can be asked and moved nowhere; and on a GPU, if there is one."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import xdevice
from xdevice.tensors.namespace import FFT, LINALG, NAMES

cupy = pytest.importorskip(
    "cupy", reason="cupy is not installed: tox run -c tox-weekly.ini -e cupy"
)

ROOT = Path(__file__).parents[2]
HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("cupy"):
        yield


def array(gpu):
    """An array over memory that is not there, which nothing here reads."""
    memory = cupy.cuda.UnownedMemory(4096 * (gpu + 1), 24, None, gpu)
    return cupy.ndarray((3,), "float64", cupy.cuda.MemoryPointer(memory, 0))


def test_without_a_gpu_it_says_what_is_missing(run):
    said = run(
        """
        xdevice.use("cupy")
        print(xdevice.devices(), xdevice.count("gpu"), xdevice.count("cpu"), "cupy" in xdevice.available())
        calls = {
            "try_gpu": xdevice.try_gpu,
            "try_all_gpus": xdevice.try_all_gpus,
            "ones": lambda: xdevice.ones(2),
            "rand": lambda: xdevice.rand(2),
            "on the CPU": lambda: xdevice.ones(2, device="cpu"),
            "tensor": lambda: xdevice.tensor([1, 2]),
            "scope": lambda: xdevice.gpu(0).__enter__(),
            "memory": lambda: xdevice.memory_stats("gpu"),
        }
        for name, call in calls.items():
            try:
                call()
            except xdevice.DeviceNotFoundError as error:
                print(name, "|", error)
        xdevice.synchronize(), xdevice.empty_cache(), xdevice.seed(1)
        """,
        **HIDDEN,
    ).splitlines()
    assert said[0] == "[] 0 0 True"
    assert len(said) == 9
    assert all(
        "pu:0 does not exist under cupy, which sees no device: " in line for line in said[1:]
    )


def test_without_a_gpu_it_is_not_guessed(run):
    assert run("import cupy; print(xdevice.backend() == 'cupy')", **HIDDEN) == "False"
    assert (
        run("import cupy; xdevice.use('cupy'); print(xdevice.backend() == 'cupy')", **HIDDEN)
        == "True"
    )


@pytest.mark.skipif(
    set(xdevice.available()) != {"cupy", "numpy"},
    reason="the others take long: tox run -c tox-weekly.ini -e cupy",
)
def test_without_a_gpu_it_is_not_in_all(tmp_path):
    (tmp_path / "which.py").write_text("import xdevice; print(xdevice.backend())", encoding="utf-8")
    command = [sys.executable, "-m", "xdevice", "run", "--backend", "all", "--json", "which.py"]
    env = {**os.environ, **HIDDEN}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=env
    )
    assert done.returncode == 0, done.stderr
    assert [row["backend"] for row in json.loads(done.stdout)["runs"]] == ["numpy"]
    assert done.stderr.startswith("xdevice: cupy is left out: cupy ")


def test_where_an_array_is():
    x, y = array(0), array(1)
    assert xdevice.device_of(x) is xdevice.gpu(0)
    assert xdevice.device_of({"a": [y], "name": "y"}) is xdevice.gpu(1)
    assert xdevice.devices_of([x, (y, None)]) == {xdevice.gpu(0), xdevice.gpu(1)}
    assert xdevice.is_same_device(x, "cuda:0", cupy.cuda.Device(0))
    assert not xdevice.is_same_device(x, y)
    with pytest.raises(xdevice.MixedDeviceError, match=r"gpu:0: argument 0; on gpu:1: argument 1"):
        xdevice.check_same_device(x, y)


def test_an_array_in_place_stays_itself():
    x = array(1)
    tree = {"x": x, "again": [x]}
    assert xdevice.to_device(x, "gpu:1") is x
    assert xdevice.to_device(tree, cupy.cuda.Device(1), copy=False) is tree
    with pytest.raises(xdevice.CopyNeededError):
        xdevice.to_device(x, "gpu:0", copy=False)


def test_native_arrays_with_numpys_numbers():
    x = array(0)
    assert xdevice.as_device(cupy.cuda.Device(3)) is xdevice.gpu(3)
    assert xdevice.gpu(1) == cupy.cuda.Device(1)
    with xdevice.using("numpy"):
        assert xdevice.device_of(x) is xdevice.gpu(0)
    creation = xdevice.backend().creation
    assert [creation.dtype(name) for name in ("float16", "complex64", "bool")] == [
        "float16",
        "complex64",
        "bool",
    ]
    assert [creation.dtype(name) for name in ("longdouble", "float128", "f4", "str", "object")] == [
        None
    ] * 5


def test_what_it_cannot_do_says_why():
    x = array(0)
    for call, says in (
        (
            lambda: xdevice.value_and_grad(lambda a: a)(x),
            "cupy has no gradients: it has no automatic differentiation",
        ),
        (
            lambda: xdevice.virtual_gpus(2),
            "cupy has no virtual GPUs: its kernels run on real GPUs alone",
        ),
        (
            lambda: xdevice.backend().mixing.forbid,
            "cupy has no devices to mix: it computes on the current device",
        ),
    ):
        with pytest.raises(xdevice.NotSupportedError, match=says):
            call()


def test_its_out_of_memory_is_recognised():
    assert xdevice.is_out_of_memory(cupy.cuda.memory.OutOfMemoryError(2**40, 2**30))
    assert not xdevice.is_out_of_memory(cupy.cuda.runtime.CUDARuntimeError(1))


def test_the_namespace_is_the_standards():
    xp = xdevice.namespace(array(0))
    assert [name for name in NAMES if name not in dir(xp)] == []
    assert [name for name in LINALG if name not in dir(xp.linalg)] == []
    assert [name for name in FFT if name not in dir(xp.fft)] == []
    functions = [getattr(xp, name) for name in ("add", "exp", "matmul", "where")]
    given = [list(inspect.signature(function).parameters)[:2] for function in functions]
    assert given == [["x1", "x2"], ["x"], ["x1", "x2"], ["condition", "x"]]


@pytest.mark.skipif(not xdevice.backend("cupy").hardware.count("gpu"), reason="CuPy sees no GPU")
def test_the_contract_on_real_gpus(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--xdevice-backend=cupy",
    ]
    command += [
        "--rootdir",
        str(ROOT),
        "-c",
        str(ROOT / "pyproject.toml"),
        str(ROOT / "tests" / "contract"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
