"""What is shipped, built from the commit that is checked out, looked at, installed where nothing else is, and tried.

tox run -e release                                # all of it, and the archives into dist/
tox run -e release -- --python 3.12 --extra cli   # one environment
tox run -e release -- --publish                   # also what must be there before anything is uploaded
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
LARGE = ("torch", "tensorflow", "paddle", "mxnet", "examples", "docs", "mpi")  # on one Python
NOT_TRIED = {"cupy": "it needs a GPU", "all": "its parts are tried"}

SMOKE = "import xdevice as x; print(x.__version__, x.available()); "
USES = "x.use('{0}'); t = x.ones((2, 3)); assert x.device_of(t) in x.devices(), t"
TRIED = {
    **{
        name: SMOKE + USES.format(name)
        for name in ("numpy", "jax", "torch", "tensorflow", "paddle", "mxnet")
    },
    "cli": "import runpy, sys; sys.argv = ['xdevice', '--version']; runpy.run_module('xdevice', run_name='__main__')",
}


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="xdevice-release-") as folder:
        work = Path(folder)
        sdist, wheel = build(work, options.out)
        look(sdist, wheel)
        metadata = metadata_of(wheel)
        pythons = options.python or re.findall(
            r"^Classifier: .*:: (3\.\d+)$", str(metadata), re.MULTILINE
        )
        extras = options.extra or ["", *metadata.get_all("Provides-Extra")]
        for python in pythons:
            for extra in extras:
                large = extra in LARGE and python != options.large_on and not options.extra
                if not large and extra not in NOT_TRIED:
                    install_and_try(work, wheel, python, extra)
        if not options.extra:
            try_tests(work, sdist, wheel, options.large_on)
    if not metadata["Project-URL"]:
        said = "pyproject.toml has no [project.urls] Repository: the links of the index's page lead nowhere"
        if options.publish:
            sys.exit(f"release: {said}")
        print(f"release: not yet to be published: {said}")
    print(f"release: {sdist.name} and {wheel.name} are in {options.out}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="release/check.py", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="where the archives are put (dist/)"
    )
    parser.add_argument(
        "--python", action="append", help="try this Python; default: each of the classifiers'"
    )
    parser.add_argument("--extra", action="append", help="try this extra; default: each")
    parser.add_argument(
        "--large-on",
        default="3.11",
        help="the Python for extras that are large, and for tests (3.11)",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="fail where something keeps this from being published",
    )
    return parser.parse_args()


def build(work: Path, out: Path) -> tuple[Path, Path]:
    """The archives of the commit; the same from a clone and from the unpacked source distribution."""
    step("build, twice")
    clone = work / "clone"
    run("git", "clone", "--quiet", ROOT, clone)
    for older in out.glob("xdevice_tensors-*"):
        older.unlink()
    run(sys.executable, "-m", "build", "--quiet", "--outdir", out, clone)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    again = work / "again"
    run(
        sys.executable,
        "-m",
        "build",
        "--quiet",
        "--sdist",
        "--wheel",
        "--outdir",
        again,
        unpacked(sdist, work / "source"),
    )
    same(sdist, again / sdist.name)
    same(wheel, again / wheel.name)
    direct = work / "direct"
    run(sys.executable, "-m", "build", "--quiet", "--wheel", "--outdir", direct, clone)
    same(wheel, direct / wheel.name)
    return sdist, wheel


def look(sdist: Path, wheel: Path) -> None:
    step("inspect them")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    # W004: PyInstaller's hook cannot be imported by its name; tests/packaging sees to the modules
    run(
        sys.executable,
        "-m",
        "check_wheel_contents",
        "--toplevel",
        "xdevice,xdevice.py",
        "--ignore",
        "W004",
        wheel,
    )


def install_and_try(work: Path, wheel: Path, python: str, extra: str) -> None:
    step(f"Python {python}, [{extra}]")
    # The newest of each, but for PyTorch: its newest would bring gigabytes of CUDA.
    versions = ("-c", ROOT / "constraints.txt") if extra == "torch" else ()
    there = environment(work, python, *versions, f"{wheel}[{extra}]" if extra else wheel)
    run(there, "-c", TRIED.get(extra, SMOKE), cwd=work)


def try_tests(work: Path, sdist: Path, wheel: Path, python: str) -> None:
    step("the contract suite, on an adapter from elsewhere, with [test] alone")
    pages = unpacked(sdist, work / "tests") / "tests" / "third_party" / "xdevice-pages"
    there = environment(work, python, f"{wheel}[test]", pages)
    run(there, "-m", "pytest", "-q", "tests", cwd=pages)
    step("the tests of the source distribution, and a packed program")
    there = environment(work, python, f"{wheel}[test,cli]", "numpy", "pyinstaller")
    tests = ("tests/core", "tests/packaging")
    run(
        there,
        "-m",
        "pytest",
        "-q",
        "--weekly",
        "--xdevice-backend=installed",
        *tests,
        cwd=pages.parents[2],
    )


def environment(work: Path, python: str, *needs: str | Path) -> Path:
    """The interpreter of a new environment; what is installed there fits together."""
    folder = work / "environment"
    shutil.rmtree(folder, ignore_errors=True)
    run("uv", "venv", "--quiet", "--python", python, folder)
    there = next(
        path
        for path in (folder / "bin" / "python", folder / "Scripts" / "python.exe")
        if path.exists()
    )
    run("uv", "pip", "install", "--quiet", "--python", there, *needs)
    run("uv", "pip", "check", "--python", there)
    return there


def unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (project,) = folder.iterdir()
    return project


def metadata_of(wheel: Path):
    archive = ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(archive.read(name).decode(), headersonly=True)


def same(first: Path, second: Path) -> None:
    if first.read_bytes() != second.read_bytes():
        sys.exit(f"release: {first} and {second} differ; diffoscope shows in what")
    print(f"release: {first.name} is the same byte for byte")


def step(what: str) -> None:
    print(f"\nrelease: {what}", flush=True)


def run(*command: object, cwd: Path | None = None) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, cwd=cwd)
    if done.returncode:
        sys.exit(f"release: {' '.join(words)} ended with status {done.returncode}")


if __name__ == "__main__":
    main()
