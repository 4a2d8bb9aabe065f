"""Which process of which job this is, or which of its hosts, as launchers tell by the variables that they set.

Each launcher is known by variables that it alone sets. `process_info_in` is for a process of the job, `nodes_in` for
an ``xdevice launch`` that something else has started on each host.
"""

import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdevice.errors import ArgumentError, DistributedError

FIRST_PORT, PORTS = (
    20_000,
    10_000,
)  # of those derived from a job's name: below those given to connections at random
LOCALHOST = "127.0.0.1"
OUR_LAUNCHER = (
    "xdevice launch"  # which waits for the failed process by itself; other launchers do not
)


@dataclass(frozen=True)
class ProcessInfo:
    """A process's rank in a job, and the address at which the job's processes meet."""

    rank: int
    world_size: int
    local_rank: int
    host: str  # rank 0's
    port: int  # the first of the job's block
    launcher: str
    token: str = field(default="", repr=False, compare=False)  # where `init` was given one
    trusts_network: bool = field(default=False, compare=False)  # as `contract.Job`


NO_LAUNCHER = ProcessInfo(0, 1, 0, LOCALHOST, 0, "no launcher")


def block_size(world_size: int) -> int:
    """How many consecutive ports a job has: those of `contract.Job`, and ``MASTER_PORT``."""
    return 3 + 2 * world_size


def block(port: int, world_size: int) -> str:
    """The job's block of ports as text: ``ports 29400 to 29406``."""
    return f"ports {port} to {port + block_size(world_size) - 1}"


def has_room(port: int, world_size: int) -> bool:
    return 0 < port <= 65_536 - block_size(world_size)


def derived_port(job: str) -> int:
    """A first port that is the same for all processes of a job, and seldom another job's; 0 without a job's name."""
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS if job.strip(".") else 0


def check_ipv4(*hosts: str) -> None:
    """Raise `ArgumentError` for an IPv6 address: engines are given HOST:PORT, and the ports are checked for IPv4."""
    for host in hosts:
        if ":" in host:
            cure = "give IPv4 addresses, or names that have one"
            raise ArgumentError(
                f"{host!r} is an IPv6 address, by which the engines cannot meet; {cure}"
            )


@dataclass(frozen=True)
class Nodes:
    count: int
    node: int
    address: str  # the first one's
    port: int | None = None  # the first of the job's block, where it is known
    hosts: Sequence[str] = ()  # the address of each, where they are known
    source: str = ""  # what has started the launchers, all of them at once; empty where the user has typed each


def process_info_in(env: Mapping[str, str]) -> ProcessInfo:
    """What the variables say of this process: those of the first launcher whose variables are set.

    ``XDEVICE_MASTER_ADDR``, ``XDEVICE_MASTER_PORT`` and ``XDEVICE_LOCAL_RANK`` override what the launcher says.
    `ArgumentError`: variables contradict each other, or are not numbers. `DistributedError`: the launcher does not tell
    the world size, the local rank, or where rank 0 is.
    """
    variables = _first_set(_LAUNCHERS, env)
    if not variables:
        return NO_LAUNCHER
    read = _LAUNCHERS[variables]
    found = _by_variables(env, variables, read) if isinstance(read, tuple) else read(env)
    if not 0 <= found.rank < found.world_size:
        which = f"rank {found.rank} of {found.world_size}"
        raise ArgumentError(
            f"{found.launcher} says {which}; ranks count from 0 to one below the number"
        )
    if found.world_size > 1 and not has_room(found.port, found.world_size):
        port = f"port {found.port} ({found.launcher})"
        raise ArgumentError(
            f"{port} leaves no room for the job's block of ports; set XDEVICE_MASTER_PORT"
        )
    return found


def nodes_in(env: Mapping[str, str] = os.environ) -> Nodes | None:
    """The hosts that the variables name; ``None`` without such variables, `ArgumentError` where they are incomplete."""
    variables = _first_set(_NODES, env)
    found = _NODES[variables](env) if variables else None
    if found is not None and found.node >= found.count:
        raise ArgumentError(
            f"{found.source} says node {found.node} of {found.count}; nodes count from 0"
        )
    return found


def check_rank(rank: int, size: int, env: Mapping[str, str]) -> None:
    """Raise if a launcher has started this process as another rank: one of the two is wrong."""
    try:
        there = process_info_in(env)
    except (ArgumentError, DistributedError):
        return  # the variables do not say which process this is
    if there is not NO_LAUNCHER and (there.rank, there.world_size) != (rank, size):
        variables = _first_set(_LAUNCHERS, env).replace(" ", " and ")
        says = f"{there.launcher} says rank {there.rank} of {there.world_size}"
        hint = f"leave out rank and world_size, or unset {variables}"
        raise ArgumentError(f"init() was given rank {rank} of {size}, and {says}; {hint}")


def first_of(nodes: str) -> str:
    """The first host of Slurm's short list: ``gpu[07-09,12],login1`` is ``gpu07``."""
    found = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\])?([^,]*)", nodes)
    return "".join(part or "" for part in found.groups()) if found else ""


def _by_variables(
    env: Mapping[str, str], names: str, row: tuple[str, str, str, str]
) -> ProcessInfo:
    """Where a launcher tells no address: on one host, ``one_host`` is the world size, or as ``A=B`` says."""
    launcher, local, one_host, jobs = row
    variable, _, value = one_host.partition("=")
    host = LOCALHOST if env.get(variable) == (value or env[names.split()[1]]) else ""
    job = next(filter(None, map(env.get, jobs.split())), "")
    return _process(env, launcher, f"{names} {local}", host, derived_port(job))


def _torchrun(env: Mapping[str, str]) -> ProcessInfo:
    host = (
        LOCALHOST
        if env.get("LOCAL_WORLD_SIZE") == env["WORLD_SIZE"]
        else env.get("MASTER_ADDR", "")
    )
    return _process(env, "torchrun", "RANK WORLD_SIZE LOCAL_RANK", host, _beside_store(env, ""))


def _paddle(env: Mapping[str, str]) -> ProcessInfo:
    endpoints = [
        end.rpartition(":")[0] for end in env.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
    ]
    first = env.get("PADDLE_MASTER") or env.get("PADDLE_TRAINER_ENDPOINTS", "").partition(",")[0]
    rank = env["PADDLE_TRAINER_ID"]
    if "PADDLE_RANK_IN_NODE" not in env and rank.isdigit() and int(rank) < len(endpoints) > 1:
        own = endpoints[int(rank)]  # the processes of one host have its address in their endpoints
        env = {**env, "PADDLE_RANK_IN_NODE": str(endpoints[: int(rank)].count(own))}
    names = "PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM PADDLE_RANK_IN_NODE"
    host = (
        LOCALHOST
        if env.get("PADDLE_LOCAL_SIZE") == env["PADDLE_TRAINERS_NUM"]
        else first.rpartition(":")[0]
    )
    return _process(env, "paddle.distributed.launch", names, host, derived_port(first))


def _slurm(env: Mapping[str, str]) -> ProcessInfo:
    nodes = (
        env.get("SLURM_STEP_NODELIST")
        or env.get("SLURM_JOB_NODELIST")
        or env.get("SLURM_NODELIST", "")
    )
    host = LOCALHOST if env.get("SLURM_STEP_NUM_NODES") == "1" else first_of(nodes)
    return _process(env, "srun", "SLURM_PROCID SLURM_NTASKS SLURM_LOCALID", host, _slurm_port(env))


def _kubeflow(env: Mapping[str, str]) -> ProcessInfo:
    """What torchrun would be started with, in a container that starts the script itself."""
    if env.get("PET_NPROC_PER_NODE", "1") != "1" or not env["PET_NNODES"].isdigit():
        given = f"PET_NNODES={env['PET_NNODES']!r} and PET_NPROC_PER_NODE={env.get('PET_NPROC_PER_NODE', '')!r}"
        hint = "start the script with torchrun, or set PET_NNODES to one number and PET_NPROC_PER_NODE to 1"
        raise DistributedError(f"{given} are for torchrun; {hint}")
    env = {"XDEVICE_LOCAL_RANK": "0", **env}
    names, host = "PET_NODE_RANK PET_NNODES XDEVICE_LOCAL_RANK", env.get("PET_MASTER_ADDR", "")
    return _process(env, "PET_NNODES", names, host, _beside_store(env, "PET_"))


def _kubernetes(env: Mapping[str, str]) -> ProcessInfo:
    """An indexed job: Kubernetes tells each pod its index, and not how many there are."""
    if "XDEVICE_WORLD_SIZE" not in env:
        why = "JOB_COMPLETION_INDEX is set, and Kubernetes does not tell the number of pods"
        hint = (
            "1 for pods that work apart, and for more XDEVICE_MASTER_ADDR and XDEVICE_MASTER_PORT"
        )
        raise DistributedError(f"{why}; set XDEVICE_WORLD_SIZE, {hint}")
    env = {"XDEVICE_LOCAL_RANK": "0", **env}  # a pod of the job is a host of its own
    return _process(
        env, "Kubernetes", "JOB_COMPLETION_INDEX XDEVICE_WORLD_SIZE XDEVICE_LOCAL_RANK", "", 0
    )


_LAUNCHERS: dict[str, Callable[[Mapping[str, str]], ProcessInfo] | tuple[str, str, str, str]] = {
    "XDEVICE_RANK":
        lambda env: _process(env, OUR_LAUNCHER, "XDEVICE_RANK XDEVICE_WORLD_SIZE XDEVICE_LOCAL_RANK", "", 0),
    "RANK WORLD_SIZE": _torchrun,
    "PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM": _paddle,
    "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE": (
        "mpirun", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE OMPI_MCA_ess_base_jobid",
    ),
    # before Hydra: it sets PMI_RANK, too
    "FLUX_TASK_RANK FLUX_JOB_SIZE": ("flux run", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_NNODES=1", "FLUX_JOB_ID"),
    "PMI_RANK PMI_SIZE": ("mpiexec", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID HYDRA_JOBID"),
    "SUBMITIT_LOCAL_GLOBALID SUBMITIT_LOCAL_NTASKS": (  # on this host; on Slurm it uses srun
        "submitit", "SUBMITIT_LOCAL_LOCALID", "SUBMITIT_LOCAL_NTASKS", "SUBMITIT_LOCAL_JOB_ID",
    ),
    "SLURM_STEP_ID SLURM_PROCID SLURM_NTASKS": _slurm,  # without a step it is the batch script, a single process
    "PET_NNODES PET_NODE_RANK": _kubeflow,
    "JOB_COMPLETION_INDEX": _kubernetes,
}  # fmt: skip
"""How each is read, by the variables that it sets; where those are the rank and the size, as `_by_variables` does."""


def _process(
    env: Mapping[str, str], launcher: str, names: str, host: str, port: int
) -> ProcessInfo:
    rank, size, local = names.split()
    world_size = _integer(env, size)
    host = env.get("XDEVICE_MASTER_ADDR") or host
    port = _integer(env, "XDEVICE_MASTER_PORT") if "XDEVICE_MASTER_PORT" in env else port
    if world_size > 1 and not (host and port):
        known = {"XDEVICE_MASTER_ADDR": host, "XDEVICE_MASTER_PORT": port}
        missing = " and ".join(name for name, value in known.items() if not value)
        raise DistributedError(
            f"{launcher} does not tell where rank 0 can be met; set {missing} for all processes"
        )
    number = _integer(env, rank)
    found = next((name for name in ("XDEVICE_LOCAL_RANK", local) if name in env), rank)
    if (
        found == rank and world_size > 1 and host != LOCALHOST
    ):  # the rank would be another host's GPU
        raise DistributedError(
            f"{launcher} does not set {local}; set XDEVICE_LOCAL_RANK, from 0 on each host"
        )
    return ProcessInfo(number, world_size, _integer(env, found), host, port, launcher)


def _beside_store(env: Mapping[str, str], prefix: str) -> int:
    """torchrun's own store listens at MASTER_PORT, and the ports beside it belong to any program."""
    host, port = env.get(f"{prefix}MASTER_ADDR", ""), env.get(f"{prefix}MASTER_PORT", "")
    return derived_port(f"{host}:{port}" if port else "")


def _skypilot_nodes(env: Mapping[str, str]) -> Nodes:
    hosts, count = (
        env.get("SKYPILOT_NODE_IPS", "").split(),
        _integer(env, "SKYPILOT_NUM_NODES", _NAME_NODES),
    )
    if len(hosts) != count:
        raise ArgumentError(
            f"SKYPILOT_NODE_IPS names {len(hosts)} of SKYPILOT_NUM_NODES={count} nodes; give --hosts"
        )
    node, port = (
        _integer(env, "SKYPILOT_NODE_RANK", _NAME_NODES),
        derived_port(env.get("SKYPILOT_TASK_ID", "")),
    )
    return Nodes(count, node, hosts[0], port or None, hosts, "SkyPilot")


def _kubeflow_nodes(env: Mapping[str, str]) -> Nodes:
    count, address = _integer(env, "PET_NNODES", _NAME_NODES), env.get("PET_MASTER_ADDR", "")
    if count > 1 and not address:
        raise ArgumentError(f"PET_NNODES is set, and PET_MASTER_ADDR is not; {_NAME_NODES}")
    port = _integer(env, "PET_MASTER_PORT", _NAME_NODES) if "PET_MASTER_PORT" in env else None
    return Nodes(
        count, _integer(env, "PET_NODE_RANK", _NAME_NODES), address, port, source="PET_NNODES"
    )


def _slurm_nodes(env: Mapping[str, str]) -> Nodes:
    count, tasks = (
        _integer(env, f"SLURM_STEP_NUM_{what}", _NAME_NODES) for what in ("NODES", "TASKS")
    )
    if tasks != count:
        hint = "start one on each node with srun --ntasks-per-node=1, or the script itself without xdevice launch"
        raise ArgumentError(
            f"srun starts {tasks} launchers, and SLURM_STEP_NUM_NODES={count}; {hint}"
        )
    node, first = _integer(env, "SLURM_NODEID", _NAME_NODES), first_of(env["SLURM_STEP_NODELIST"])
    return Nodes(count, node, first, _slurm_port(env) or None, source="srun")


_NODES: dict[str, Callable[[Mapping[str, str]], Nodes]] = {
    "SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES": _skypilot_nodes,
    "PET_NNODES PET_NODE_RANK": _kubeflow_nodes,
    "SLURM_STEP_ID SLURM_NODEID SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_NODELIST": _slurm_nodes,
}
"""By the variables that each sets. A batch script outside srun is a single process, and so is its launcher."""

_NAME_NODES = "give --nnodes, --node-rank, --master-addr"


def _slurm_port(env: Mapping[str, str]) -> int:
    return derived_port(f"{env.get('SLURM_JOB_ID', '')}.{env['SLURM_STEP_ID']}")


def _first_set(readers: Mapping[str, object], env: Mapping[str, str]) -> str:
    """The names of the variables by which a launcher is known; an empty string without a launcher."""
    return next((names for names in readers if all(name in env for name in names.split())), "")


def _integer(
    env: Mapping[str, str], name: str, hint: str = "let a launcher set it, or set all that it sets"
) -> int:
    text = env.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise ArgumentError(f"{name}={text!r} is not a number; {hint}")
    return int(text)
