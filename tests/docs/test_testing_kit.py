"""The files of the page on tests for many frameworks: tox runs, and the workflow's commands are those of the plugin."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PAGE = (Path(__file__).parents[2] / "docs" / "test" / "kit.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
# It installs nothing: it finds what this environment has.
HERE = "-x testenv.deps= -x testenv.allowlist_externals=pytest -x testenv.set_env=PYTHONPATH=."


@pytest.mark.weekly
def test_toxs_environments_pass(tmp_path):
    for name in ("rescale.py", "test_rescale.py", "pytest.ini", "tox.ini"):
        (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDEVICE", "TOX", "PYTEST"))
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    command = f"{sys.executable} -m tox run -e numpy,jax --skip-pkg-install {HERE}"
    process = subprocess.run(
        command.split(),
        cwd=tmp_path,
        env={**kept, "PATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert len(re.findall(r"\d+ passed", process.stdout)) == 3  # jax without GPUs and with two


def test_the_workflow_is_yaml_whose_steps_run_pytest():
    workflow = yaml.safe_load(FILES[".github/workflows/frameworks.yml"])
    assert set(workflow["jobs"]) == {"cpu", "gpu"}
    commands = [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]
    lines = [
        command for command in commands if "pytest --xdevice" in command or "pytest -n" in command
    ]
    assert len(lines) == 3
    documented = set(re.findall(r"^\| `(--xdevice-[\w-]+)", PAGE, re.MULTILINE))
    for line in lines:
        assert set(re.findall(r"--xdevice-[\w-]+", line)) <= documented
