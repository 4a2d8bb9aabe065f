"""The project's files, and what is built from a copy of them, elsewhere: other tests read and write in the tree."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def project_files():
    """What git tracks, or would; in an unpacked source distribution, or without git, what setuptools has listed."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    else:
        listed = (ROOT / "xdevice_tensors.egg-info" / "SOURCES.txt").read_text(encoding="utf-8")
    names = [
        name for name in listed.splitlines() if (ROOT / name).is_file() and ".egg-info/" not in name
    ]
    assert {
        "README.md",
        "pyproject.toml",
        "xdevice/errors.py",
        "tests/packaging/conftest.py",
    } <= set(names)
    return names


@pytest.fixture(scope="session")
def source(project_files, tmp_path_factory):
    copied = tmp_path_factory.mktemp("source")
    for name in project_files:
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copied / name)
    return copied


@pytest.fixture(scope="session")
def built(tmp_path_factory, new_python):
    """Build ``what``, "wheel" or "sdist", of the project in a folder: the file."""

    def build(what, folder):
        out = tmp_path_factory.mktemp(what)
        code = (
            f"import sys; from setuptools import build_meta; build_meta.build_{what}(sys.argv[1])"
        )
        done = new_python("-c", code, out, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return next(out.iterdir())

    return build


@pytest.fixture(scope="session")
def wheel(built, source):
    return built("wheel", source)


@pytest.fixture(scope="session")
def sdist(built, source):
    return built("sdist", source)
