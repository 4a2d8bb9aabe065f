"""The distributions here are installed, and their own tests run, by the tests beside this file."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

collect_ignore = ["xdevice-pages", "xdevice-tinygrad"]


@pytest.fixture(scope="module")
def elsewhere(request, tmp_path_factory):
    """The module's distribution outside this repository, and in ``site`` beside it installed, without an index."""
    here = Path(__file__).parent / request.module.DISTRIBUTION
    source, package = tmp_path_factory.mktemp("elsewhere") / here.name, here.name.replace("-", "_")
    shutil.copytree(
        here, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    )
    offline = ["--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        *offline,
        "--target",
        source / "site",
        source,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (source / "site" / f"{package}-1.0.dist-info" / "entry_points.txt").is_file()
    shutil.rmtree(source / package)  # what is tested is what is installed
    return source


@pytest.fixture(scope="session")
def run():
    """Run a distribution's tests: the counts that pytest ends with, its status, and its output."""
    return _run


def _run(elsewhere, *options, **variables):
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("XDEVICE", "PYTEST"))
    } | variables
    env["PYTHONPATH"] = os.pathsep.join([str(elsewhere / "site"), *filter(None, sys.path)])
    fast = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # which takes a second to load
    command = [sys.executable, "-m", "pytest", "-q", *fast, *options, "tests"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=env, cwd=elsewhere
    )
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}
    return counts, done.returncode, done.stdout + done.stderr
