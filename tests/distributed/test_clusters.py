"""The recipes for other launchers, each run as it is: two processes train, and leave the same file."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import xdevice
from xdevice.distributed.process_info import block_size
from xdevice.distributed.rendezvous.ports import free_block

PROJECT = Path(__file__).parents[2]
RECIPES = PROJECT / "examples" / "clusters"

SRUN = """\
#!/bin/sh
# what srun does on one node with two tasks, as far as a process can see it
for i in 0 1; do
    SLURM_JOB_ID=7$$ SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=localhost \\
        SLURM_NTASKS=2 SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
done
wait
"""


@pytest.fixture
def run(environment, tmp_path):
    """Runs a recipe with these arguments; the parameters that it leaves, and what it has printed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text(SRUN)
    (tmp_path / "bin" / "srun").chmod(0o755)
    places = [str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    own = {"PATH": os.pathsep.join(places), "PYTHON": sys.executable, "XDEVICE_BACKEND": "torch"}
    root = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }

    def start(recipe, *arguments):
        interpreter = [sys.executable] if recipe.endswith(".py") else ["sh"]
        file = tmp_path / "trained"
        command = [*interpreter, RECIPES / recipe, *arguments, "--steps", "10", "--checkpoint", file]
        done = subprocess.run(
            list(map(str, command)),
            cwd=PROJECT if recipe == "slurm.sh" else tmp_path,
            env={**environment, **own, **root},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        with xdevice.using("numpy"):
            found = xdevice.load(file)
        assert found["step"] == 10
        return found["params"], done.stdout + done.stderr

    return start


@pytest.mark.parametrize(("recipe", "needs"), [
    ("torchrun.sh", "torch"),
    ("mpirun.sh", "mpirun"),
    ("slurm.sh", "torch"),
    ("submitit_local.py", "submitit"),
    ("dask_local.py", "distributed"),
    ("ray_local.py", "ray"),
])  # fmt: skip
def test_a_recipe_makes_one_job_of_two_processes(run, recipe, needs):
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if find_spec(needs) is None and shutil.which(needs, path=beside) is None:
        pytest.skip(f"{needs} is not installed")
    given = [free_block(block_size(2))] if recipe in ("dask_local.py", "ray_local.py") else []
    params, printed = run(recipe, *given)
    assert printed.count("begins at step 0") == 1, printed  # one job, and not two of one process
    assert printed.count("step   10  loss 0.6231") == 1, printed  # a job of one process has the same minibatch
    assert set(params) == {"W1", "b1", "W2", "b2"}
