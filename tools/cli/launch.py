"""``xdevice launch``: one script in many processes on this host."""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from xdevice.distributed.launcher_variables import OUR_LAUNCHER, job_in, launcher_in
from xdevice.errors import ArgumentError, NotSupportedError
from xdevice.framework.choosing import backend
from xdevice.machine import host
from xdevice.tools.cli.parser import Parser, count, positive, seconds
from xdevice.tools.cli.program import program_of, search_path
from xdevice.tools.launcher.launching import launch
from xdevice.tools.launcher.worker_group import Plan


def add_options(parser: Parser) -> None:
    parser.epilog = """\
example:
  xdevice launch -n 4 --backend torch train.py --epochs 3

Each process reads its rank from the environment, and joins the others in
xdevice.distributed.init(). The first that fails ends the job. On several
hosts, start the script with torchrun, mpirun or srun instead.

Exit status: 0 if all processes end with 0, else that of the process that
failed; 2 for an error in the command line, 124 after --time-limit."""
    add = parser.add_argument
    add("-n", type=positive, default=1, metavar="N", help="the number of processes (1)")
    add("--backend", metavar="NAME", help="the framework of all processes")
    add("--timeout", type=seconds, metavar="S", help="let a process wait S seconds for others")
    add("--time-limit", type=seconds, metavar="S", help="stop the job after S seconds")
    restarts = "start the job again after a failure, R times"
    add("--restarts", type=count, default=0, metavar="R", help=restarts)
    add("--log-dir", type=Path, metavar="DIR", help="write each output into files, too")
    add("--pin", action="store_true", help="keep each process on cores of its own")
    parser.add_program("a Python file, or a command; -m: a module, -c: code", "SCRIPT")


def main(options: argparse.Namespace) -> int:
    if os.name != "posix":
        raise NotSupportedError(
            "xdevice launch needs sessions, signals and pipes as on Linux; use WSL on Windows"
        )
    _check_alone()
    program = program_of(options.script, options.how)
    environment = _environment(options)
    if program.is_command:
        environment["PATH"] = search_path(sys.executable)
    cores: Sequence[Sequence[int]] = ()
    if options.pin:
        cores = _cores_of_processes(options.n)
    plan = Plan(
        command=[*program.run_by(sys.executable), *options.args],
        processes=options.n,
        environment=environment,
        cores=cores,
        time_limit=options.time_limit,
    )

    def plan_of(attempt: int) -> Plan:
        restart = {"XDEVICE_RESTART": str(attempt)}
        attempted = replace(plan, environment={**environment, **restart})
        return _with_logs(attempted, options.log_dir) if options.log_dir else attempted

    return launch(plan_of, options.restarts)


def _check_alone() -> None:
    """Raise if another launcher has started this command several times."""
    names = launcher_in(os.environ)
    if names is None or names.launcher == OUR_LAUNCHER:
        return
    world_size = job_in(os.environ).world_size
    if world_size > 1:
        raise ArgumentError(
            f"{names.launcher} has started this command {world_size} times, and xdevice launch "
            f"starts a job on one host; let {names.launcher} start the script itself, or unset "
            f"{names.rank} and {names.world_size}"
        )


def _environment(options: argparse.Namespace) -> dict[str, str]:
    """The variables that all processes of the job are given."""
    environment = {}
    if options.backend:
        # An error says what to install.
        environment["XDEVICE_BACKEND"] = str(backend(options.backend))
    if options.timeout is not None:
        environment["XDEVICE_TIMEOUT"] = f"{options.timeout:g}"
    if options.n > 1:
        # Otherwise each process would use all cores.
        threads = str(_threads_of_a_process(options.n))
        environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", threads)
    # Without a buffer, nothing that a process prints is lost when it is stopped.
    environment["PYTHONUNBUFFERED"] = os.environ.get("PYTHONUNBUFFERED", "1")
    return environment


def _threads_of_a_process(processes: int) -> int:
    """The share of each process in the cores: a second hyper-thread of a core adds no speed."""
    machine = host()
    cores = min(machine["cores"] or sys.maxsize, machine["threads"] or 1)
    return max(1, cores // processes)


def _cores_of_processes(processes: int) -> list[list[int]]:
    """The hardware threads of each process, as many for each; those of one core stay together."""
    if not hasattr(os, "sched_setaffinity"):
        raise NotSupportedError(
            f"--pin: {sys.platform} does not let a process choose its cores; leave it out"
        )
    threads = sorted(os.sched_getaffinity(0), key=_position)
    share = len(threads) // processes
    if share == 0:
        return [[threads[rank % len(threads)]] for rank in range(processes)]
    return [threads[rank * share : (rank + 1) * share] for rank in range(processes)]


def _position(thread: int) -> tuple[int, int, int]:
    """The thread's processor and core, if the system tells them, and its number."""
    folder = Path(f"/sys/devices/system/cpu/cpu{thread}/topology")
    try:
        processor = int((folder / "physical_package_id").read_text())
        core = int((folder / "core_id").read_text())
    except (OSError, ValueError):
        return 0, 0, thread
    return processor, core, thread


def _with_logs(plan: Plan, folder: Path) -> Plan:
    """The plan with a folder for its logs: the first numbered one without logs of these ranks."""
    log_names = [
        f"rank-{rank}.{stream}" for rank in range(plan.processes) for stream in ("out", "err")
    ]
    unused_folder = next(
        candidate
        for candidate in _numbered(folder)
        if not any((candidate / name).exists() for name in log_names)
    )
    try:
        unused_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"--log-dir {str(folder)!r} cannot be made: {error.strerror}"
        ) from error
    if unused_folder != folder:
        print(
            f"xdevice: {str(folder)!r} has files of an earlier job; "
            f"this one's are in {str(unused_folder)!r}",
            file=sys.stderr,
        )
    return replace(plan, logs=unused_folder)


def _numbered(folder: Path) -> Iterator[Path]:
    """The folder, then the same with -2, -3 and so on behind its name."""
    yield folder
    for number in itertools.count(2):
        yield folder.with_name(f"{folder.name}-{number}")
