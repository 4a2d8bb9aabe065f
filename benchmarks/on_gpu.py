"""The tests and measurements that need a real GPU, in one command.

    python benchmarks/on_gpu.py --out report            # on a machine with a GPU, under PyTorch and JAX
    python benchmarks/on_gpu.py --out report --backend cupy
    python benchmarks/on_gpu.py --out report --virtual  # a rehearsal, on two virtual GPUs

Works from a checkout, without a network and without installing anything: it lays xdevice out as its wheel does,
with the wheels of ``--wheels FOLDER`` beside it, and puts both on PYTHONPATH. Besides the frameworks and NumPy, only
the tests need other packages, all pure Python: pytest, pluggy, iniconfig, packaging and pygments.

Each part is a process with a time limit, and none starts after ``--minutes``. What a part reported before it
crashed or ran out of time is kept. ``report.txt`` and ``report.json`` are written anew after every part,
and the output of each is kept beside them. The exit status is 1 if a part failed.
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
"""Seconds that a part has between Ctrl-C, after which pytest still writes its report, and its end; else 3."""


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
    """How a part ended; ``found`` is what it reported."""

    name: str
    backend: str
    status: str  # ok, failed, crashed, timed out, skipped
    why: str | None = None
    seconds: float = 0.0
    found: dict[str, Any] = field(default_factory=dict)


def parts(asked: argparse.Namespace, out: Path) -> list[Part]:
    """All parts in order."""
    return [
        _part(name, backend, asked, out, limit)
        for name, limit in LIMITS.items()
        if name in asked.parts
        for backend in asked.backend
    ]


def _part(name: str, backend: str, asked: argparse.Namespace, out: Path, limit: float) -> Part:
    if name == "tests":
        return _tests(backend, asked, out, limit)
    if name in ("machine", "transfers", "memory"):
        return _child(name, backend, asked, out, limit)
    file = out / f"{name}-{backend}.json"
    if name == "overhead":
        seconds = "0" if asked.quick else "2"
        options = [
            "--backend",
            backend,
            "--device",
            "gpu:0",
            "--rounds",
            "2" if asked.quick else "31",
        ]
        command = [str(HERE / "overhead.py"), *options, "--seconds", seconds, "--json", str(file)]
        return Part(name, backend, command, limit, report.read_overhead, file, asked.virtual)
    names = "tiny" if asked.quick else "elementwise large tiny log transfer copies prefetch overlap"
    scale = "0.01" if asked.virtual or asked.quick else "0.1"  # a virtual GPU is as slow as the CPU
    command = ["-P", "-m", "xdevice.experiments", str(file), "gpu:0", scale, *names.split()]
    return Part(name, backend, command, limit, report.read_experiments, file, asked.virtual)


def _tests(backend: str, asked: argparse.Namespace, out: Path, limit: float) -> Part:
    """The contract suite, with the framework's quirks on a real GPU."""
    file = out / f"tests-{backend}.xml"
    folders = (
        ["contract"] if asked.virtual else ["contract", "quirks"]
    )  # quirks are those of real devices
    command = [
        "-P",
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
        "-q",
        "--tb=short",
    ]
    command += ["-p", "no:cacheprovider", "-W", "default", "--continue-on-collection-errors"]
    command += [f"--xdevice-backend={backend}", f"--junitxml={file}"]
    command += [
        f"--xdevice-virtual-gpus={2 if asked.virtual else 0}",
        *(["-k", asked.select] if asked.select else []),
    ]
    command += [str(ROOT / "tests" / folder) for folder in folders]
    return Part("tests", backend, command, limit, report.read_tests, file, asked.virtual)


def _child(name: str, backend: str, asked: argparse.Namespace, out: Path, limit: float) -> Part:
    file = out / f"{name}-{backend}.jsonl"
    size = "small" if asked.virtual or asked.quick else "large"
    command = [str(HERE / "on_gpu_parts.py"), name, str(file), size, backend]
    return Part(name, backend, command, limit, report.read_lines, file, asked.virtual)


def run(part: Part, site: Path, out: Path, left: float) -> Outcome:
    """Run a part within its own limit and the time left."""
    if left < 5:
        return Outcome(
            part.name,
            part.backend,
            "skipped",
            "no time was left; give more --minutes or fewer --parts",
        )
    began = monotonic()
    part.file.unlink(missing_ok=True)
    with (out / f"{part.name}-{part.backend}.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, *part.command], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment(part, site), cwd=site, start_new_session=True,
        )  # fmt: skip
        timed_out = not _ended(child, min(part.limit, left), GRACE.get(part.name, 3.0))
    outcome = Outcome(part.name, part.backend, "ok", seconds=round(monotonic() - began, 1))
    try:
        outcome.found = part.read(part.file)
    except (OSError, ValueError, SyntaxError) as error:  # ParseError of XML is a SyntaxError
        outcome.why = f"it reported nothing ({type(error).__name__}: {error})"
    return _judged(outcome, child.returncode, timed_out, Path(log.name))


def _judged(outcome: Outcome, status: int, timed_out: bool, log: Path) -> Outcome:
    if timed_out:
        outcome.status, outcome.why = (
            "timed out",
            f"ended after {outcome.seconds:.0f} s; {log.name} has its output",
        )
    elif status < 0 or not outcome.found:
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        outcome.status, outcome.why = (
            "crashed",
            f"{how}; {lines[-1][:300] if lines else 'it printed nothing'}",
        )
    elif status or outcome.found.get("failed"):
        outcome.status, outcome.why = "failed", f"exit status {status}; {log.name} has its output"
    return outcome


def _ended(child: subprocess.Popen[bytes], limit: float, grace: float) -> bool:
    """Whether it ended in time; afterwards it has ended, with all processes of its group."""
    try:
        child.wait(limit)
        return True
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGINT)
        try:
            child.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        return False
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()


def environment(part: Part, site: Path) -> dict[str, str]:
    """A part's environment: this checkout's xdevice, and a JAX that does not take most of the GPU's memory at once."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_")}
    path = os.pathsep.join(filter(None, (str(site), clean.get("PYTHONPATH"))))
    clean |= {
        "PYTHONPATH": path,
        "PYTHONFAULTHANDLER": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    clean["XDEVICE_BACKEND"] = part.backend
    return clean | ({"XDEVICE_VIRTUAL_GPUS": "2"} if part.virtual else {})


def lay_out(site: Path, wheels: Path | None) -> None:
    """xdevice as its wheel has it, from this checkout, and the wheels given."""
    import tomllib  # of Python 3.11

    for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "xdevice", site / "xdevice", ignore=ignored, dirs_exist_ok=True)
    shutil.copytree(
        ROOT / "backends", site / "xdevice" / "backends", ignore=ignored, dirs_exist_ok=True
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / f"{project['name'].replace('-', '_')}-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n", encoding="utf-8"
    )
    groups = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
              for group, entries in project["entry-points"].items()]  # fmt: skip
    (info / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")


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
    asked = parser.parse_args()
    asked.parts, asked.backend = asked.parts.split(","), asked.backend.split(",")
    wrong = [name for name in asked.parts if name not in LIMITS]
    if wrong:
        parser.error(f"no part {wrong[0]!r}; there are {', '.join(LIMITS)}")
    if asked.wheels and not list(asked.wheels.glob("*.whl")):
        parser.error(f"no wheels in '{asked.wheels}'")
    return asked


def main() -> int:
    asked = options()
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end = monotonic() + asked.minutes * 60
    outcomes: list[Outcome] = []
    about = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "virtual": asked.virtual,
    }
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder), asked.wheels)
        for part in parts(asked, out):
            no_gpu = next(
                (
                    o.found["no_gpu"]
                    for o in outcomes
                    if o.backend == part.backend and "no_gpu" in o.found
                ),
                None,
            )
            if no_gpu:
                outcomes.append(Outcome(part.name, part.backend, "skipped", no_gpu))
            else:
                outcomes.append(run(part, Path(folder), out, end - monotonic()))
            print(report.headline(asdict(outcomes[-1])), file=sys.stderr, flush=True)
            whole = {"about": about, "parts": [asdict(outcome) for outcome in outcomes]}
            (out / "report.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
            (out / "report.txt").write_text("\n".join(report.lines(whole)) + "\n", encoding="utf-8")
    print((out / "report.txt").read_text(encoding="utf-8"))
    return int(any(outcome.status not in ("ok", "skipped") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
