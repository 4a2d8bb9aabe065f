"""Build the archives of the commit that is checked out, inspect them, install them and try them.

tox run -c tox-weekly.ini -e release                                # every check; the archives go into dist/
tox run -c tox-weekly.ini -e release -- --python 3.12 --extra cli   # one environment
tox run -c tox-weekly.ini -e release -- --publish                   # also what must be true before an upload
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
PREFIX = "release:"
LARGE = ("torch", "tensorflow", "paddle", "mxnet", "examples", "docs")  # tried on one Python
NOT_TRIED = {"cupy": "it needs a GPU", "all": "its parts are tried"}

SMOKE = "import xdevice as x; print(x.__version__, x.available()); "
USES = "x.use('{0}'); t = x.ones((2, 3)); assert x.device_of(t) in x.devices(), t"
FRAMEWORKS = ("numpy", "jax", "torch", "tensorflow", "paddle", "mxnet")
# The program that tries each extra; other extras are tried with SMOKE.
PROGRAMS = {name: SMOKE + USES.format(name) for name in FRAMEWORKS}
PROGRAMS["cli"] = (
    "import runpy, sys; sys.argv = ['xdevice', '--version']; "
    "runpy.run_module('xdevice', run_name='__main__')"
)


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="xdevice-release-") as folder:
        work = Path(folder)
        sdist, wheel = build(work, options.out)
        inspect(sdist, wheel)
        metadata = metadata_of(wheel)
        for python, extra in environments(metadata, options):
            install_and_try(work, wheel, python, extra)
        if not options.extra:
            try_tests(work, sdist, wheel, options.large_on)
    check_links(metadata, options.publish)
    print(f"{PREFIX} {sdist.name} and {wheel.name} are in {options.out}")


def environments(metadata: Message, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Each Python with each extra, as the options or the metadata say."""
    classified = re.findall(r"^Classifier: .*:: (3\.\d+)$", str(metadata), re.MULTILINE)
    extras = options.extra or ["", *metadata.get_all("Provides-Extra", [])]
    return [
        (python, extra)
        for python in options.python or classified
        for extra in extras
        if is_tried(python, extra, options)
    ]


def is_tried(python: str, extra: str, options: argparse.Namespace) -> bool:
    if extra in NOT_TRIED:
        return False
    if options.extra:
        return True
    return extra not in LARGE or python == options.large_on


def check_links(metadata: Message, publish: bool) -> None:
    if metadata["Project-URL"]:
        return
    problem = (
        "pyproject.toml has no [project.urls] Repository: the links of the index's page lead "
        "nowhere"
    )
    if publish:
        sys.exit(f"{PREFIX} {problem}")
    print(f"{PREFIX} not yet to be published: {problem}")


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
    help_on_large = "the Python for extras that are large, and for tests (3.11)"
    parser.add_argument("--large-on", default="3.11", help=help_on_large)
    help_on_publish = "fail if something is missing that an upload needs"
    parser.add_argument("--publish", action="store_true", help=help_on_publish)
    return parser.parse_args()


def build(work: Path, out: Path) -> tuple[Path, Path]:
    """The archives of the commit.

    They are the same from a clone and from the unpacked source distribution.
    """
    step("build, twice")
    clone = work / "clone"
    run("git", "clone", "--quiet", ROOT, clone)
    for old_archive in out.glob("xdevice_tensors-*"):
        old_archive.unlink()
    build_command = (sys.executable, "-m", "build", "--quiet")
    run(*build_command, "--outdir", out, clone)
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    again = work / "again"
    source = unpacked(sdist, work / "source")
    run(*build_command, "--sdist", "--wheel", "--outdir", again, source)
    check_same(sdist, again / sdist.name)
    check_same(wheel, again / wheel.name)
    direct = work / "direct"
    run(*build_command, "--wheel", "--outdir", direct, clone)
    check_same(wheel, direct / wheel.name)
    return sdist, wheel


def inspect(sdist: Path, wheel: Path) -> None:
    step("inspect them")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    toplevel = ("--toplevel", "xdevice,xdevice.py")
    run(sys.executable, "-m", "check_wheel_contents", *toplevel, wheel)


def install_and_try(work: Path, wheel: Path, python: str, extra: str) -> None:
    step(f"Python {python}, [{extra}]")
    # The newest of each, but for PyTorch: its newest would bring gigabytes of CUDA.
    versions = ("-c", ROOT / "constraints.txt") if extra == "torch" else ()
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    interpreter = environment(work, python, *versions, requirement)
    run(interpreter, "-c", PROGRAMS.get(extra, SMOKE), cwd=work)


def try_tests(work: Path, sdist: Path, wheel: Path, python: str) -> None:
    step("the contract suite, on an adapter of another project, with [test] alone")
    pages = unpacked(sdist, work / "tests") / "tests" / "third_party" / "xdevice-pages"
    interpreter = environment(work, python, f"{wheel}[test]", pages)
    run(interpreter, "-m", "pytest", "-q", "tests", cwd=pages)
    step("the tests of the source distribution")
    interpreter = environment(work, python, f"{wheel}[test,cli]", "numpy")
    project = pages.parents[2]
    options = ("-q", "--weekly", "--xdevice-backend=installed")
    run(interpreter, "-m", "pytest", *options, "tests/core", "tests/packaging", cwd=project)


def environment(work: Path, python: str, *requirements: str | Path) -> Path:
    """The interpreter of a new environment with the requirements, which fit together."""
    folder = work / "environment"
    shutil.rmtree(folder, ignore_errors=True)
    run("uv", "venv", "--quiet", "--python", python, folder)
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        interpreter = folder / "Scripts" / "python.exe"  # on Windows
    run("uv", "pip", "install", "--quiet", "--python", interpreter, *requirements)
    run("uv", "pip", "check", "--python", interpreter)
    return interpreter


def unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (project,) = folder.iterdir()
    return project


def metadata_of(wheel: Path) -> Message:
    archive = ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(archive.read(name).decode(), headersonly=True)


def check_same(first: Path, second: Path) -> None:
    if first.read_bytes() != second.read_bytes():
        sys.exit(f"{PREFIX} {first} and {second} differ; diffoscope shows the difference")
    print(f"{PREFIX} {first.name} is the same byte for byte")


def step(title: str) -> None:
    print(f"\n{PREFIX} {title}", flush=True)


def run(*command: object, cwd: Path | None = None) -> None:
    words = [str(word) for word in command]
    status = subprocess.run(words, check=False, cwd=cwd).returncode
    if status != 0:
        sys.exit(f"{PREFIX} {' '.join(words)} ended with status {status}")


if __name__ == "__main__":
    main()
