"""The tests and measurements that need a real GPU, in one command.

    python benchmarks/on_gpu.py --out report            # under PyTorch and JAX
    python benchmarks/on_gpu.py --out report --backend cupy
    python benchmarks/on_gpu.py --out report --virtual  # a rehearsal, on two virtual GPUs

The script works from a checkout, without a network and without installing
anything. It copies xdevice into a folder as its wheel would, unpacks the
wheels of ``--wheels FOLDER`` beside it, and puts that folder on PYTHONPATH.
Besides the frameworks and NumPy, only the tests need other packages, all pure
Python: pytest, pluggy, iniconfig, packaging and pygments.

Each part is a process with a time limit, and no part starts after
``--minutes``. If a part crashes or runs out of time, the report has its
results up to then. ``report.txt`` and ``report.json`` are written again after
each part, and each part's output is a file beside them. The exit status is 1
if a part failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from parts import on_gpu_report as report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BACKENDS = ("torch", "jax")
LIMITS = {
    "machine": 40.0,
    "transfers": 50.0,
    "memory": 50.0,
    "tests": 180.0,
    "overhead": 60.0,
    "bench": 80.0,
}
"""The parts in order, and the seconds that each may take under each framework."""

GRACE = {"tests": 15.0}
"""Seconds between Ctrl-C and the end of a part, 3 if not listed. pytest writes its report then."""


@dataclass
class Part:
    """One process to run, under one framework."""

    name: str
    backend: str
    command: list[str]  # for Python
    limit: float  # seconds
    read: Callable[[Path], dict[str, Any]]  # from the file that the part wrote
    file: Path
    virtual: bool = False


@dataclass
class Outcome:
    """How a part ended, and what it reported."""

    name: str
    backend: str
    status: str  # ok, failed, crashed, timed out, skipped
    reason: str | None = None
    seconds: float = 0.0
    results: dict[str, Any] = field(default_factory=dict)


def parts(arguments: argparse.Namespace, out: Path) -> list[Part]:
    """All parts in order."""
    return [
        _part(name, backend, arguments, out, limit)
        for name, limit in LIMITS.items()
        if name in arguments.parts
        for backend in arguments.backend
    ]


def _part(name: str, backend: str, arguments: argparse.Namespace, out: Path, limit: float) -> Part:
    if name == "tests":
        return _tests(backend, arguments, out, limit)
    if name in ("machine", "transfers", "memory"):
        return _child(name, backend, arguments, out, limit)
    file = out / f"{name}-{backend}.json"
    if name == "overhead":
        command = _overhead(backend, arguments.quick, file)
        return Part(name, backend, command, limit, report.read_overhead, file, arguments.virtual)
    experiments = [
        "elementwise",
        "large",
        "tiny",
        "log",
        "transfer",
        "copies",
        "prefetch",
        "overlap",
    ]
    if arguments.quick:
        experiments = ["tiny"]
    scale = "0.1"
    if arguments.virtual or arguments.quick:  # a virtual GPU is as slow as the CPU
        scale = "0.01"
    command = ["-P", "-m", "xdevice.tools.experiments", str(file), "gpu:0", scale, *experiments]
    return Part(name, backend, command, limit, report.read_experiments, file, arguments.virtual)


def _overhead(backend: str, is_quick: bool, file: Path) -> list[str]:
    rounds, seconds = "31", "2"
    if is_quick:
        rounds, seconds = "2", "0"
    command = [str(HERE / "overhead.py"), "--backend", backend, "--device", "gpu:0"]
    return [*command, "--rounds", rounds, "--seconds", seconds, "--json", str(file)]


def _tests(backend: str, arguments: argparse.Namespace, out: Path, limit: float) -> Part:
    """The contract suite, with the framework's quirks on a real GPU."""
    file = out / f"tests-{backend}.xml"
    folders = ["contract"]
    virtual_gpus = 2
    if not arguments.virtual:
        folders = ["contract", "quirks"]
        virtual_gpus = 0
    command = ["-P", "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    command += ["-q", "--tb=short", "-W", "default"]
    command += ["-p", "no:cacheprovider", "--continue-on-collection-errors"]
    command += [f"--xdevice-backend={backend}", f"--xdevice-virtual-gpus={virtual_gpus}"]
    command += [f"--junitxml={file}"]
    if arguments.select:
        command += ["-k", arguments.select]
    command += [str(ROOT / "tests" / folder) for folder in folders]
    return Part("tests", backend, command, limit, report.read_tests, file, arguments.virtual)


def _child(name: str, backend: str, arguments: argparse.Namespace, out: Path, limit: float) -> Part:
    file = out / f"{name}-{backend}.jsonl"
    size = "large"
    if arguments.virtual or arguments.quick:
        size = "small"
    command = [str(HERE / "on_gpu_parts.py"), name, str(file), size, backend]
    return Part(name, backend, command, limit, report.read_lines, file, arguments.virtual)


def run(part: Part, site: Path, out: Path, seconds_left: float) -> Outcome:
    """Run a part within its own limit and the time left."""
    if seconds_left < 5:
        reason = "no time was left; give more --minutes or fewer --parts"
        return Outcome(part.name, part.backend, "skipped", reason)
    began = monotonic()
    part.file.unlink(missing_ok=True)
    with (out / f"{part.name}-{part.backend}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *part.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(part, site),
            cwd=site,
            start_new_session=True,
        )
        limit = min(part.limit, seconds_left)
        is_timed_out = not _ends_within(process, limit, GRACE.get(part.name, 3.0))
    outcome = Outcome(part.name, part.backend, "ok", seconds=round(monotonic() - began, 1))
    try:
        outcome.results = part.read(part.file)
    except (OSError, ValueError, SyntaxError) as error:  # ParseError of XML is a SyntaxError
        outcome.reason = f"it reported nothing ({type(error).__name__}: {error})"
    _judge(outcome, process.returncode, is_timed_out, Path(log.name))
    return outcome


def _judge(outcome: Outcome, exit_status: int, is_timed_out: bool, log: Path) -> None:
    """Set the status of a part that has ended, and the reason."""
    if is_timed_out:
        outcome.status = "timed out"
        outcome.reason = f"ended after {outcome.seconds:.0f} s; {log.name} has its output"
    elif exit_status < 0 or not outcome.results:
        outcome.status = "crashed"
        outcome.reason = f"{_ending(exit_status)}; {_last_line(log)}"
    elif exit_status or outcome.results.get("failed"):
        outcome.status = "failed"
        outcome.reason = f"exit status {exit_status}; {log.name} has its output"


def _ending(exit_status: int) -> str:
    if exit_status < 0:
        return signal.Signals(-exit_status).name
    return f"exit status {exit_status}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it printed nothing"


def _ends_within(process: subprocess.Popen[bytes], limit: float, grace: float) -> bool:
    """Whether the process ends in time. Afterwards no process of its group is left."""
    try:
        process.wait(limit)
        return True
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        return False
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def environment(part: Part, site: Path) -> dict[str, str]:
    """A part's environment, with this checkout's xdevice.

    JAX does not reserve most of the GPU's memory when it starts.
    """
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_")
    }
    path = os.pathsep.join(filter(None, (str(site), variables.get("PYTHONPATH"))))
    variables |= {
        "PYTHONPATH": path,
        "PYTHONFAULTHANDLER": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    variables["XDEVICE_BACKEND"] = part.backend
    if part.virtual:
        variables["XDEVICE_VIRTUAL_GPUS"] = "2"
    return variables


def lay_out(site: Path, wheels: Path | None) -> None:
    """Put xdevice into the folder as its wheel has it, and unpack the wheels there."""
    import tomllib  # of Python 3.11

    if wheels is not None:
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
    ignored = shutil.ignore_patterns("__pycache__")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    for package, folder in settings["tool"]["setuptools"]["package-dir"].items():
        destination = site.joinpath(*package.split("."))
        shutil.copytree(ROOT / folder, destination, ignore=ignored, dirs_exist_ok=True)
    info = site / f"{project['name'].replace('-', '_')}-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n", encoding="utf-8"
    )
    lines: list[str] = []
    for group, entries in project["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The tests and measurements that need a real GPU.")
    parser.add_argument(
        "--out", type=Path, default=Path("on_gpu"), metavar="FOLDER", help="where the report goes"
    )
    parser.add_argument("--backend", default=",".join(BACKENDS), help="a,b,c")
    parser.add_argument("--parts", default=",".join(LIMITS), help="a,b,c")
    parser.add_argument("--minutes", type=float, default=8.5, help="no part starts after these")
    parser.add_argument(
        "--wheels",
        type=Path,
        metavar="FOLDER",
        help="wheels to put beside xdevice, pytest's and others",
    )
    parser.add_argument("--virtual", action="store_true", help="rehearse on two virtual GPUs")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds and small work, to see that it runs"
    )
    parser.add_argument(
        "--select", metavar="EXPRESSION", help="the tests whose names match, as pytest -k"
    )
    arguments = parser.parse_args()
    arguments.parts = arguments.parts.split(",")
    arguments.backend = arguments.backend.split(",")
    unknown_parts = [name for name in arguments.parts if name not in LIMITS]
    if unknown_parts:
        parser.error(f"no part {unknown_parts[0]!r}; there are {', '.join(LIMITS)}")
    if arguments.wheels and not list(arguments.wheels.glob("*.whl")):
        parser.error(f"no wheels in '{arguments.wheels}'")
    return arguments


def reason_for_no_gpu(backend: str, outcomes: list[Outcome]) -> str | None:
    """Why the framework sees no GPU, if an earlier part has found out; else ``None``."""
    for outcome in outcomes:
        if outcome.backend == backend and "no_gpu" in outcome.results:
            reason: str = outcome.results["no_gpu"]
            return reason
    return None


def main() -> int:
    arguments = options()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end = monotonic() + arguments.minutes * 60
    outcomes: list[Outcome] = []
    about = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "virtual": arguments.virtual,
    }
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder), arguments.wheels)
        for part in parts(arguments, out):
            reason = reason_for_no_gpu(part.backend, outcomes)
            if reason is None:
                outcome = run(part, Path(folder), out, end - monotonic())
            else:
                outcome = Outcome(part.name, part.backend, "skipped", reason)
            outcomes.append(outcome)
            print(report.headline(asdict(outcome)), file=sys.stderr, flush=True)
            content = {"about": about, "parts": [asdict(outcome) for outcome in outcomes]}
            (out / "report.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
            text = "\n".join([*report.lines(content), ""])
            (out / "report.txt").write_text(text, encoding="utf-8")
    print((out / "report.txt").read_text(encoding="utf-8"))
    return int(any(outcome.status not in ("ok", "skipped") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
