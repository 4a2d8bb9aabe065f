"""An environment with one version of a framework: what it needs, how it is installed, and what came of that."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "torch": "torch",
    "tensorflow": "tensorflow-cpu",
    "paddle": "paddlepaddle",
    "mxnet": "mxnet",
    "jax": "jax",
    "numpy": "numpy",
}
"""The package that is installed for a framework: the build for the CPU, where it is a package of its own."""

# A version is admitted by the first line whose bound is above it; `None` is above all.
NEEDS: dict[str, list[tuple[str | None, tuple[str, ...]]]] = {
    "torch": [("2.3", ("numpy<2",)), (None, ("numpy",))],
    "tensorflow": [(None, ("setuptools",))],
    # 2.6 is compiled against NumPy 1, and imports setuptools without requiring it.
    "paddle": [("3", ("numpy<2", "setuptools<81")), (None, ("setuptools",))],
    # Uses numpy.bool, which NumPy 1.24 removed.
    "mxnet": [(None, ("numpy<1.24",))],
    "jax": [(None, ())],
    "numpy": [(None, ())],
}
"""What a version needs beyond what its own package requires, or in a narrower range."""

ANY = ("newest", "pre")
"""Words for a version that the index decides: the newest released, and the newest of all."""


def project() -> dict[str, Any]:
    """What pyproject.toml says of the package."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def suite() -> list[str]:
    """What the checks need beside the framework: what xdevice, its tests and its command line require."""
    extras = project()["optional-dependencies"]
    needed = list(project()["dependencies"])
    for name in ("test", "test-core", "safetensors", "cli"):
        needed += extras[name]
    return [
        package for package in dict.fromkeys(needed) if not package.startswith(project()["name"])
    ]


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that the version begins with, to compare: 2.15.0.post1 is (2, 15, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", version)[0].split("."))


def lowest(name: str) -> str:
    """The lowest version that the package's extra admits."""
    package = re.compile(rf"{PACKAGES[name].removesuffix('-cpu')}>=([\d.]+)")
    return next(
        match[1]
        for line in project()["optional-dependencies"][name]
        if (match := package.match(line))
    )


def wanted(name: str, version: str) -> list[str]:
    """What is to be installed: the framework in this version, and what it needs."""
    if version in ANY:
        return [PACKAGES[name], *NEEDS[name][-1][1]]
    needs = next(
        needs for bound, needs in NEEDS[name] if bound is None or numbers(version) < numbers(bound)
    )
    return [f"{PACKAGES[name]}=={version}", *needs]


def make_wheel(folder: Path) -> Path:
    """A wheel of the checkout, built from a copy: setuptools leaves a folder behind in what it builds from."""
    source = folder / "source"
    without = shutil.ignore_patterns("__pycache__")
    for name in ("xdevice", "backends", "release"):
        shutil.copytree(ROOT / name, source / name, ignore=without)
    for file in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(file, source / file.name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder,
        source,
    ]
    if uv := shutil.which("uv"):
        command = [uv, "build", "--quiet", "--wheel", "--out-dir", folder, source]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def make(folder: Path, interpreter: str) -> Path:
    """The Python of the environment in that folder, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", "--without-pip", folder], check=True)
    return python


def install(python: Path, version: str, packages: list[str], wheel: Path) -> str:
    """Install them; why not, if they cannot be installed, and else nothing.

    The wheel comes without the range that it asks for: whether that is right is what is being tried.
    """
    newest = ["--upgrade"] * (version in ANY)  # the environment may have been kept
    framework = f"--only-binary={packages[0].partition('=')[0]}"  # none is built from its source
    return pip_install(
        python, [*newest, framework, *packages, *suite()], pre=version == "pre"
    ) or pip_install(python, ["--no-deps", "--force-reinstall", str(wheel)])


def pip_install(python: Path, words: list[str], pre: bool = False) -> str:
    """Install by uv where there is one, which is faster, or else by pip; why not, if that fails."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-warn-conflicts",
    ]
    command += ["--pre"] * pre
    env = dict(os.environ)
    if uv := shutil.which("uv"):
        command = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            python,
            *["--prerelease=allow"] * pre,
        ]
        env.setdefault("UV_FIND_LINKS", env.get("PIP_FIND_LINKS", ""))
    done = subprocess.run([*command, *words], env=env, capture_output=True, text=True, check=False)
    return reason_in(done.stderr) if done.returncode else ""


def reason_in(said: str) -> str:
    """Why pip, or uv, could not install, on one line."""
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")]
    if errors:
        return min(errors, key=len)  # the last of pip's say less
    words = re.sub(r"[×╰─▶│]", " ", said).split()
    return " ".join(words)[:300] or "it cannot be installed"


def installed(python: Path, names: list[str]) -> dict[str, str]:
    """The installed versions of these packages, and Python's."""
    code = """
import importlib.metadata as metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
    return json.loads(subprocess.check_output([python, "-c", code, *names], text=True))


def bare(package: str) -> str:
    """The package's name, without the version."""
    return re.match(r"[\w.-]+", package)[0]
