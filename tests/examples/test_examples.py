"""The examples run under every framework, and show what they say they show.

Real GPUs are hidden, so that what is printed does not depend on the machine; there are two virtual ones where
a test asks for them.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from xdevice.framework.adapters import registered
from xdevice.virtual.request import ENV

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def run(forks):
    """Run a script once; one of PyTorch or NumPy in a fork of a process that has imported it."""

    @cache
    def run(backend, script, *arguments, virtual=0):
        process = forks((backend,) if backend in ("torch", "numpy") else ())
        environment = {
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            ENV: str(virtual),
            "XDEVICE_BACKEND": backend,
            "COLUMNS": "100",
            "PYTHONIOENCODING": "utf-8",
        }
        return process.run([EXAMPLES / script, *arguments], environment)

    return run


@pytest.fixture(scope="session")
def output(run):
    def output(*command, virtual=0):
        done = run(*command, virtual=virtual)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return output


def code_of(script):
    """The script without its comments and docstrings."""
    tree = ast.parse((EXAMPLES / script).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
            and ast.get_docstring(node) is not None
        ):
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


@pytest.mark.parametrize(
    ("script", "needs"),
    [("use_gpu.py", "xdevice-tensors"), ("digits.py", "numpy, scikit-learn, xdevice-tensors")],
)
def test_what_is_missing_is_said_first(script, needs):
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-S", EXAMPLES / script]  # -S: without any package
    done = subprocess.run(
        command, env=bare, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{script} needs {needs}; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("script", "allowed"),
    [
        ("use_gpu.py", set()),
        ("cpu_or_gpu.py", set()),
        ("_gpus.py", set()),
        ("digits.py", {"numpy"}),
        ("transfers.py", {"numpy"}),
        ("train_multi_gpu.py", {"numpy"}),
    ],
)
def test_no_example_names_a_framework(script, allowed):
    assert set(registered()) & set(re.findall(r"\w+", code_of(script))) == allowed


@pytest.mark.weekly
def test_the_lesson_prints_the_same_lines(backend, output):
    assert output(backend, "use_gpu.py") == output("numpy", "use_gpu.py")


@pytest.mark.frameworks("numpy")
def test_the_lesson_without_a_gpu(backend, output):
    facts = dict(
        line.strip().split(": ", 1)
        for line in output(backend, "use_gpu.py").splitlines()
        if ": " in line
    )
    assert facts["GPUs to use here"] == "0"
    assert facts["try_gpu(10)"] == facts["try_all_gpus()"] == "cpu:0"
    assert facts["going where it is already copies nothing"] == "True"
    assert facts["unless a copy is asked for"] == "True"
    lines = [line.strip() for line in output(backend, "use_gpu.py").splitlines()]
    assert "Z + Z holds [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]" in lines
    assert "net(X) is on cpu:0 and holds [[1.75], [1.75]]" in lines
    assert "its weight holds [0.5, -1.0, 2.0]" in lines


@pytest.mark.frameworks("numpy")
def test_each_experiment_times_all_of_its_work(backend, output):
    printed = output(backend, "cpu_or_gpu.py", "--scale", "0.001")
    line = r"^  (.+?) +(\d+) × +([\d.]+) µs \(([\d.]+) to ([\d.]+)\) +([\d.]+) × the CPU's speed$"
    rows = re.findall(line, printed, re.MULTILINE)
    assert len(rows) == 17
    assert all(
        int(times) >= 1 and float(low) <= float(each) <= float(high)
        for _, times, each, low, high, _ in rows
    )
    assert f"{backend}; the device is cpu:0" in printed
    assert "there is no GPU" in printed


@pytest.mark.frameworks("torch")
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_the_lesson_on_two_virtual_gpus(backend, output):
    printed = output(backend, "use_gpu.py", virtual=2)
    facts = dict(line.strip().split(": ", 1) for line in printed.splitlines() if ": " in line)
    assert facts["GPUs to use here"] == "2"
    assert facts["try_gpu(10)"] == "cpu:0"
    assert facts["try_all_gpus()"] == "gpu:0 gpu:1"
    assert facts["Y and Z are together"].endswith("gpu:1")
    lines = [line.strip() for line in printed.splitlines()]
    assert "X is on gpu:0 and holds [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]" in lines
    assert "Z, a copy of X for Y's device, is on gpu:1" in lines
    assert "net(X) is on gpu:0 and holds [[1.75], [1.75]]" in lines


@pytest.mark.weekly
def test_a_cuda_program_runs_unedited(backend, request):
    if backend != "torch":
        assert "xdevice" not in code_of(
            "cuda_script.py"
        )  # it is PyTorch's own, and knows nothing of xdevice
        return
    request.getfixturevalue("plug_in")
    command = ["-m", "xdevice", "watch", "--gpus", "2", EXAMPLES / "cuda_script.py"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    done = subprocess.run(
        [sys.executable, *command], env=clean, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2 virtual GPUs stand in for CUDA's; they compute on the CPU" in done.stderr
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss (\S+) on cuda:0", done.stdout)]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    assert re.search(r"cuda:1 is a .*virtual", done.stdout)
    copies = r"loss\.item.*\n +5 copies \(1 a step\), 20 B, gpu:0 → host.*\n +reads a number"
    assert re.search(copies, done.stderr)


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_experiments_time_the_cpu_and_a_gpu(backend, output):
    printed = output(backend, "cpu_or_gpu.py", "tiny", "transfer", "--scale", "0.001", virtual=2)
    assert f"{backend}; the device is virtual gpu:0" in printed
    assert "on the CPU" in printed
    assert "on virtual gpu:0" in printed


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_digits_on_a_virtual_gpu_as_on_the_cpu(backend, output):
    if "def trainer" in (EXAMPLES / "native" / f"{backend}.py").read_text(encoding="utf-8"):
        of_gpu, of_cpu = (output(backend, "digits.py", "--epochs", "1", virtual=n) for n in (2, 0))
        accuracy = re.compile(r"^epoch +1 .* accuracy ([\d.]+)", re.MULTILINE)
        assert accuracy.search(of_gpu)[1] == accuracy.search(of_cpu)[1]
        assert "gpu:0" in of_gpu
        assert "gpu:0" not in of_cpu


on_two_gpus = pytest.mark.skip_backends(
    "numpy", "array_api_strict", reason="it has no gradients"
)  # NumPy has one device, and says so: the promise below
AGREES = "the first step is that of one device: True"
ACCURACY = re.compile(r"^test accuracy ([\d.]+); \d+ samples/s$", re.MULTILINE)


@pytest.mark.weekly
@on_two_gpus
def test_lenet_learns_on_two_devices_as_on_one(backend, tmp_path, output):
    printed = output(backend, "train_multi_gpu.py", "--epochs", 1, "--plot", tmp_path / "loss.png")
    assert printed.startswith("1 × 2 devices: gpu:0 gpu:1, virtual\n")
    assert AGREES in printed
    assert "speed-up: " in printed
    assert float(ACCURACY.search(printed)[1]) > 0.7
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.weekly
@on_two_gpus
def test_lenet_learns_in_two_processes_as_in_one(backend):
    command = [
        sys.executable,
        "-m",
        "xdevice",
        "launch",
        "-n",
        "2",
        "--backend",
        backend,
        "--time-limit",
        "170",
    ]
    env = {key: value for key, value in os.environ.items() if not key.startswith("XDEVICE")}
    done = subprocess.run(
        [*command, EXAMPLES / "train_multi_gpu.py", "--epochs", "1"],
        env={
            **env,
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            "PYTHONIOENCODING": "utf-8",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    printed = done.stdout.replace("[0] ", "")
    assert "2 × 1 devices: gpu:0, virtual\n" in printed  # some engines have their say first
    assert AGREES in printed
    assert float(ACCURACY.search(printed)[1]) > 0.7


@pytest.mark.weekly
def test_digits_need_gradients(backend, run):
    done = run(backend, "digits.py", "--epochs", "10")
    if "def trainer" in (EXAMPLES / "native" / f"{backend}.py").read_text(encoding="utf-8"):
        assert done.returncode == 0, done.stderr[-2000:]
        assert (
            float(re.search(r"^test accuracy ([\d.]+) after", done.stdout, re.MULTILINE)[1]) > 0.95
        )
    else:
        assert done.returncode == 1
        assert done.stderr.startswith(f"digits.py: {backend} has no gradients")


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", reason="it has no models")
def test_training_is_repeatable(backend, output):
    first = re.compile(r"^epoch +1 .* accuracy [\d.]+", re.MULTILINE)
    again = output(backend, "digits.py", "--epochs", "1")
    assert first.search(again)[0] == first.search(output(backend, "digits.py", "--epochs", "10"))[0]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("cpu_or_gpu.py", "lage"), "no experiment 'lage'; there are elementwise, large, tiny"),
        (("cpu_or_gpu.py", "--scale", "0"), "a scale of 0.0 is not between 0 and 10"),
        (("cpu_or_gpu.py", "--scale", "nan"), "a scale of nan is not between 0 and 10"),
        (("cpu_or_gpu.py", "--device", "gpu:x"), "'gpu:x' is not a device"),
        (("cpu_or_gpu.py", "tiny", "--device", "gpu:3"), "gpu:3 does not exist under numpy"),
    ],
)
def test_bad_arguments_are_named(command, message, run):
    done = run("numpy", *command)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def watched(backend, *arguments):
    """The losses that the example prints, and its report."""
    options = [
        "watch",
        "--format",
        "json",
        "--gpus",
        "2",
        "--backend",
        backend,
    ]
    env = {key: value for key, value in os.environ.items() if not key.startswith("XDEVICE")}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "xdevice",
                *options,
                "--report",
                report,
                EXAMPLES / "transfers.py",
                *arguments,
            ],
            env={**env, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            encoding="utf-8",
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout, json.loads(report.read_text(encoding="utf-8"))


# The line that is slow, what the report says of it, and how often it copies in three epochs of twelve batches.
SLOW = {
    "x, y = to_device(points, device), to_device(values, device)": ("unpinned-batches", 72),
    "shift = to_device(ones((BATCH, 1)), device)": ("made-on-the-host", 36),
    "factors = to_device(scale, device)": ("same-values-again|moved-in-the-loop", 36),
    "total += float(loss)": ("sum-on-the-host", 36),
}


@pytest.mark.weekly
@on_two_gpus
def test_the_report_leads_from_the_slow_loop_to_the_mended_one(backend):
    losses, report = watched(backend)
    found = {finding["source"]: finding for finding in report["findings"] if finding["rule"]}
    slow = dict(SLOW)
    if backend in ("tensorflow", "paddle", "jax"):  # by default, these make the ones on the GPU
        del slow["shift = to_device(ones((BATCH, 1)), device)"]
    assert slow.keys() <= found.keys()
    for line, (rule, copies) in slow.items():
        assert re.fullmatch(rule, found[line]["rule"])
        assert found[line]["copies"] == copies
    mended, after = watched(backend, "--mended")
    assert [float(n) for n in re.findall(r"loss (\S+) on gpu:0", mended)] == pytest.approx(
        [float(n) for n in re.findall(r"loss (\S+) on gpu:0", losses)], rel=1e-3
    )
    # What is left is numbers that JAX sends, unless a step is compiled.
    assert {finding["rule"] for finding in after["findings"]} <= {"", "number-from-python"}
    assert after["nbytes"] < report["nbytes"] / 2
