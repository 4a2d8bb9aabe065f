"""``xdevice launch``: one script in many processes, on this host or on several."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from xdevice.tools.cli.launch_nodes import nodes_of
from xdevice.tools.cli.launch_token import token_of
from xdevice.tools.cli.mpirun import become_mpirun
from xdevice.tools.cli.program import program_of, search_path
from xdevice.distributed.init_options import TRUST
from xdevice.distributed.launcher_variables import Nodes
from xdevice.distributed.process_info import block_size
from xdevice.distributed.rendezvous.authentication import TOKEN
from xdevice.distributed.rendezvous.ports import first_taken, free_block
from xdevice.errors import ArgumentError, DistributedError, NotSupportedError
from xdevice.framework.choosing import backend
from xdevice.tools.launcher.launching import launch
from xdevice.tools.launcher.worker_group import Plan
from xdevice.machine import host


def main(options: argparse.Namespace) -> int:
    if os.name != "posix":
        raise NotSupportedError(
            "xdevice launch needs sessions, signals and pipes as on Linux; use WSL on Windows"
        )
    program = program_of(options.script, options.how)
    command = [*program.run_by(sys.executable), *options.args]
    nodes = nodes_of(options)
    environment = _environment(options, nodes.address)
    if program.is_command:
        environment["PATH"] = search_path(sys.executable)
    if options.engine == "mpi":
        become_mpirun(options, command, environment)
    if nodes.hosts:
        environment["XDEVICE_HOST"] = nodes.hosts[nodes.node]
    if options.restarts and nodes.count > 1:
        raise ArgumentError(
            "--restarts is for a job on one host: the launchers of several hosts do not restart "
            "together; leave it out, and start all of them again"
        )
    cores: Sequence[Sequence[int]] = ()
    if options.pin:
        cores = _cores_of_processes(options.n)

    def plan_of(attempt: int) -> Plan:
        """The plan of that attempt, which has its own ports and its own token."""
        token = token_of(nodes, options.token_file)
        plan = Plan(
            command=command,
            processes=options.n,
            nodes=nodes.count,
            node=nodes.node,
            port=_port(options, nodes, attempt),
            environment={**environment, TOKEN: token, "XDEVICE_RESTART": str(attempt)},
            cores=cores,
            time_limit=options.time_limit,
        )
        _check_ports(plan)
        if options.log_dir:
            plan = _with_logs(plan, options.log_dir)
        return plan

    return launch(plan_of, options.restarts)


def _environment(options: argparse.Namespace, address: str) -> dict[str, str]:
    """The variables that all processes of the job are given."""
    environment = {"XDEVICE_MASTER_ADDR": address}
    if options.backend:
        # An error says what to install.
        environment["XDEVICE_BACKEND"] = str(backend(options.backend))
    if options.timeout is not None:
        environment["XDEVICE_TIMEOUT"] = f"{options.timeout:g}"
    if options.engine:
        environment["XDEVICE_ENGINE"] = options.engine
    if options.trust_network:
        environment[TRUST] = "1"
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


def _port(options: argparse.Namespace, nodes: Nodes, attempt: int) -> int:
    """The first port of that attempt.

    Each attempt has its own ports, because the system may not free the last
    attempt's at once.
    """
    ports_per_attempt = block_size(nodes.count * options.n)
    if nodes.port is None:
        return free_block(ports_per_attempt)
    ports = ports_per_attempt * (options.restarts + 1)
    highest_port = 2**16 - ports
    if nodes.port > highest_port:
        raise ArgumentError(
            f"{ports} ports from {nodes.port} on do not exist; "
            f"--master-port is {highest_port} at most"
        )
    return nodes.port + attempt * ports_per_attempt


def _check_ports(plan: Plan) -> None:
    taken_port = first_taken(plan.ports)
    if taken_port is not None:
        last_port = plan.port + block_size(plan.world_size) - 1
        raise DistributedError(
            f"port {taken_port} is taken on this host, and the job needs {plan.port} to "
            f"{last_port}; give another --master-port"
        )


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
    log_names = [f"rank-{rank}.{stream}" for rank in plan.ranks for stream in ("out", "err")]
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
    for number in count(2):
        yield folder.with_name(f"{folder.name}-{number}")
