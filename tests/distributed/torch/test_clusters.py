"""The recipes for other launchers, run unedited: two processes train, and write the same file."""

import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import xdevice
from xdevice.tools.launcher.worker_group import free_port

PROJECT = Path(__file__).parents[3]
RECIPES = PROJECT / "examples" / "clusters"

ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
SRUN = """\
#!/bin/sh
shift # --kill-on-bad-exit
# what srun does on one node with two tasks, as far as a process can see it
for i in 0 1; do
    SLURM_JOB_ID=7$$ SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=localhost \\
        SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
done
wait
"""


@pytest.fixture
def run(environment, tmp_path):
    """Runs a recipe with these arguments; the parameters that it leaves, and what it has printed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    (tmp_path / "bin" / "srun").write_text(SRUN)
    (tmp_path / "bin" / "srun").chmod(0o755)
    places = [
        str(tmp_path / "bin"),
        str(Path(sys.executable).parent),
        os.environ.get("PATH", os.defpath),
    ]
    own = {"PATH": os.pathsep.join(places), "PYTHON": sys.executable, "XDEVICE_BACKEND": "torch"}

    def start(recipe, *arguments):
        interpreter = [sys.executable] if recipe.endswith(".py") else ["sh"]
        command = [*interpreter, RECIPES / recipe, *arguments, "--steps", "10"]
        done = subprocess.run(
            list(map(str, command)),
            cwd=tmp_path,
            env={**environment, **own, **ROOT},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        (file,) = tmp_path.glob("resume-*.safetensors")
        with xdevice.using("numpy"):
            found = xdevice.load(file)
        file.unlink()
        assert found["step"] == 10
        return found["params"], done.stdout + done.stderr

    return start


@pytest.mark.weekly
@pytest.mark.parametrize(("recipe", "needs"), [
    ("torchrun.sh", "torch"),
    ("mpirun.sh", "mpirun"),
    ("slurm.sh", "torch"),
    ("dask_local.py", "distributed"),
    ("ray_local.py", "ray"),
])  # fmt: skip
def test_a_recipe_makes_one_job(run, recipe, needs):
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if find_spec(needs) is None and shutil.which(needs, path=beside) is None:
        pytest.skip(f"{needs} is not installed")
    given = [free_port()] if recipe in ("dask_local.py", "ray_local.py") else []
    params, printed = run(recipe, *given)
    assert printed.count("begins at step 0") == 1, printed  # one job, and not two of one process
    assert printed.count("step   10  loss 0.6231") == 1, (
        printed
    )  # a job of one process has the same minibatch
    assert set(params) == {"W1", "b1", "W2", "b2"}


@pytest.mark.weekly
def test_recipes_in_one_folder_train_apart(environment, tmp_path):
    steps = ["--steps", "1", "--every", "1"]
    for _ in range(2):
        command = ["sh", str(RECIPES / "torchrun.sh"), *steps]
        env = {**environment, "PYTHON": sys.executable, "XDEVICE_BACKEND": "torch"}
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "begins at step 0" in done.stdout, done.stdout + done.stderr
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


@pytest.mark.weekly
@pytest.mark.parametrize("recipe", ["torchrun.sh", "mpirun.sh"])
def test_a_recipe_goes_on_after_a_kill(environment, job_processes, tmp_path, recipe):
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if recipe == "mpirun.sh" and shutil.which("mpirun", path=beside) is None:
        pytest.skip("mpirun is not installed")
    env = {
        **environment,
        "PYTHON": sys.executable,
        "XDEVICE_BACKEND": "torch",
        "PATH": beside,
        **ROOT,
    }
    command = ["sh", str(RECIPES / recipe), "--steps", "40", "--every", "5", "--pause", "0.1"]
    started = subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while not list(tmp_path.glob("*.safetensors")):
        assert started.poll() is None, started.stdout.read()
        time.sleep(0.01)
    os.kill(next(pid for pid in job_processes() if is_rank_1(pid)), signal.SIGKILL)
    printed = started.communicate(timeout=200)[0]
    begun = [int(line.split()[-1]) for line in printed.splitlines() if "begins at step" in line]
    assert started.returncode == 0, printed
    assert len(begun) == 2, printed
    assert begun[0] == 0, printed
    assert 0 < begun[1] < 40, printed
    assert begun[1] % 5 == 0, printed


def is_rank_1(pid):
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return b"resume.py" in Path(f"/proc/{pid}/cmdline").read_bytes() and not {
        b"RANK=1",
        b"OMPI_COMM_WORLD_RANK=1",
    }.isdisjoint(variables)
