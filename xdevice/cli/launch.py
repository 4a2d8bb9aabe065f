"""``xdevice launch``: one script in many processes, on this host or on several."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from xdevice.cli.mpirun import become_mpirun
from xdevice.cli.script import script_at
from xdevice.distributed.options import TRUST
from xdevice.distributed.ports import block_size, first_taken, free_block
from xdevice.distributed.token import TOKEN, checked, new_token
from xdevice.errors import ArgumentError, DistributedError, NotSupportedError
from xdevice.framework.choosing import backend
from xdevice.launcher.launching import launch
from xdevice.launcher.plan import Plan
from xdevice.machine import host

if TYPE_CHECKING:
    import argparse

_LOCALHOST = "127.0.0.1"


def main(options: argparse.Namespace) -> int:
    """Start the script's processes, show what they print, and give the exit status of the whole."""
    if os.name != "posix":
        raise NotSupportedError("xdevice launch needs sessions, signals and pipes as on Linux; use WSL on Windows")
    command = _command(options)
    nodes, node, hosts = _nodes(options)
    address = options.master_addr or (hosts[0] if hosts else _LOCALHOST)
    environment = _environment(options, address)
    if options.engine == "mpi":
        become_mpirun(options, command, environment)
    if hosts:
        environment["XDEVICE_HOST"] = hosts[node]
    environment[TOKEN] = _token(options, nodes, node)
    port = _port(options, nodes)
    cores = _pinned(options.n) if options.pin else []
    plan = Plan(command, options.n, nodes, node, port, environment, cores, None, options.time_limit)
    _check_ports(plan)
    if options.log_dir:
        plan = _with_logs(plan, options.log_dir)
    return launch(plan)


def _command(options: argparse.Namespace) -> list[str]:
    if not options.module:
        return [sys.executable, script_at(options.script), *options.args]
    package = options.script.partition(".")[0]
    if PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None:  # python -m looks in the present folder, too
        raise ArgumentError(f"no module {package!r} here; without -m a script is given by its path")
    return [sys.executable, "-m", options.script, *options.args]


def _nodes(options: argparse.Namespace) -> tuple[int, int, list[str]]:
    """How many nodes, which of them this is, and the address of each if given."""
    hosts = [name.strip() for name in options.hosts.split(",")] if options.hosts is not None else []
    nodes = options.nnodes or len(hosts) or 1
    if hosts and (len(hosts) != nodes or not all(hosts)):
        raise ArgumentError(f"--hosts {options.hosts!r} names {len(list(filter(None, hosts)))} of {nodes} nodes")
    if nodes > 1:
        for name, value in (
            ("--node-rank", options.node_rank),
            ("--master-addr", options.master_addr or hosts),
            ("--master-port", options.master_port),
        ):
            if value in (None, []):
                raise ArgumentError(f"{nodes} nodes meet only if each is given {name}; {_WHAT[name]}")
    node = options.node_rank or 0
    if node >= nodes:
        raise ArgumentError(f"no node {node} among {nodes}; --node-rank counts from 0 to {nodes - 1}")
    return nodes, node, hosts


_WHAT = {
    "--node-rank": "it is 0 on the first node, 1 on the next",
    "--master-addr": "it is the first node's address, as the others reach it",
    "--master-port": "it is the first of the job's ports, the same on all nodes, such as 29400",
}


def _environment(options: argparse.Namespace, address: str) -> dict[str, str]:
    """What all processes have in common."""
    found = {"XDEVICE_MASTER_ADDR": address}
    if options.backend:
        found["XDEVICE_BACKEND"] = str(backend(options.backend))  # which says what to install
    if options.timeout is not None:
        found["XDEVICE_TIMEOUT"] = f"{options.timeout:g}"
    if options.engine:
        found["XDEVICE_ENGINE"] = options.engine
    if options.trust_network:
        found[TRUST] = "1"
    # each process would take all cores for itself
    if options.n > 1 and "OMP_NUM_THREADS" not in os.environ:
        found["OMP_NUM_THREADS"] = str(max(1, _cores() // options.n))
    if "PYTHONUNBUFFERED" not in os.environ:
        found["PYTHONUNBUFFERED"] = "1"  # a process that is stopped has shown all it printed
    return found


def _token(options: argparse.Namespace, nodes: int, node: int) -> str:
    """The secret of the job: a new one on one host; on several, what the user gives, or the first launcher prints."""
    if options.token_file is not None:
        return _token_in(options.token_file)
    if nodes == 1:
        return new_token()
    if TOKEN in os.environ:
        return checked(os.environ[TOKEN], TOKEN)
    if node:
        raise ArgumentError(
            f"node {node} needs the job's token; set {TOKEN} to what the launcher of node 0 prints, or give all "
            "launchers the same --token-file"
        )
    token = new_token()
    print(f"xdevice: start the launchers of the other nodes with {TOKEN}={token}", file=sys.stderr, flush=True)
    return token


def _token_in(path: Path) -> str:
    """The token in the file, which is made if it does not exist: launchers that share it may come in any order."""
    new = path.with_name(f"{path.name}.{os.getpid()}.{new_token()[:8]}")
    try:
        if not path.exists():
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(new_token())
            try:
                os.link(new, path)  # which fails where another launcher has been quicker
            except FileExistsError:
                pass
            finally:
                new.unlink()
        if path.stat().st_mode & 0o077:
            raise ArgumentError(f"--token-file {str(path)!r} is open to other users; chmod 600 {str(path)!r}")
        return checked(path.read_text(encoding="utf-8").strip(), f"--token-file {str(path)!r}")
    except (OSError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"--token-file {str(path)!r} cannot be read or made: {error}") from error


def _cores() -> int:
    """The processor's cores that this process may use: hyper-threads do not compute faster in twos."""
    machine = host()
    return min(machine["cores"] or sys.maxsize, machine["threads"] or 1)


def _port(options: argparse.Namespace, nodes: int) -> int:
    count = block_size(nodes * options.n)
    if options.master_port is None:
        return free_block(count)
    port: int = options.master_port
    if port + count > 2**16:
        raise ArgumentError(f"{count} ports from {port} on do not exist; --master-port is {2**16 - count} at most")
    return port


def _check_ports(plan: Plan) -> None:
    """Raise before anything starts if a port is taken."""
    taken = first_taken(plan.ports)
    if taken is not None:
        last = plan.port + block_size(plan.world_size) - 1
        raise DistributedError(
            f"port {taken} is taken on this host, and the job needs {plan.port} to {last}; give another --master-port"
        )


def _pinned(processes: int) -> list[list[int]]:
    """The processor's threads of each process: as many for each, those of one core together."""
    if not hasattr(os, "sched_setaffinity"):
        raise NotSupportedError(f"--pin: {sys.platform} does not let a process choose its cores; leave it out")
    usable = sorted(os.sched_getaffinity(0), key=_place)
    share = len(usable) // processes
    if not share:
        return [[usable[rank % len(usable)]] for rank in range(processes)]
    return [usable[rank * share : (rank + 1) * share] for rank in range(processes)]


def _place(cpu: int) -> tuple[int, ...]:
    """Where in the machine it is: package, core, thread."""
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return (int((folder / "physical_package_id").read_text()), int((folder / "core_id").read_text()), cpu)
    except (OSError, ValueError):
        return (0, cpu)


def _with_logs(plan: Plan, folder: Path) -> Plan:
    """The plan with a folder for its logs: the one asked for or, if it has logs of these ranks, the next number."""
    names = [f"rank-{rank}.{stream}" for rank in plan.ranks for stream in ("out", "err")]
    chosen, number = folder, 1
    while any((chosen / name).exists() for name in names):
        number += 1
        chosen = folder.with_name(f"{folder.name}-{number}")
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"--log-dir {str(folder)!r} cannot be made: {error.strerror}") from error
    if chosen != folder:
        print(
            f"xdevice: {str(folder)!r} has files of an earlier job; this one's are in {str(chosen)!r}", file=sys.stderr
        )
    return replace(plan, logs=chosen)
