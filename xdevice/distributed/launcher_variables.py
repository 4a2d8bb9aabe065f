"""The variables by which launchers name a process of a job, or one of its hosts.

Each launcher is recognized by variables that no other one sets.
`process_info_in` is for a process of the job, `nodes_in` for an ``xdevice
launch`` that another program has started on each host.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from xdevice.distributed.process_info import (
    LOCALHOST,
    NO_LAUNCHER,
    OUR_LAUNCHER,
    ProcessInfo,
    derived_port,
    has_room,
)
from xdevice.errors import ArgumentError, DistributedError

Environment: TypeAlias = Mapping[str, str]
T = TypeVar("T")


@dataclass(frozen=True)
class Nodes:
    """The hosts of a job, of which this is one."""

    count: int
    node: int  # this host's number, from 0
    address: str  # of node 0
    port: int | None = None  # the first of the job's block, if it is known
    hosts: Sequence[str] = ()  # the address of each host, if they are known
    source: str = ""  # what has started all launchers; empty if the user has typed each command


def process_info_in(env: Environment) -> ProcessInfo:
    """This process, from the variables of the first launcher that is recognized.

    ``XDEVICE_MASTER_ADDR``, ``XDEVICE_MASTER_PORT`` and ``XDEVICE_LOCAL_RANK``
    override the launcher's variables. `ArgumentError`: variables contradict
    each other, or are not numbers. `DistributedError`: the launcher does not
    tell the world size, the local rank, or where rank 0 is.
    """
    variables = _recognized(_LAUNCHERS, env)
    if variables is None:
        return NO_LAUNCHER
    info = _LAUNCHERS[variables](env)
    if not 0 <= info.rank < info.world_size:
        raise ArgumentError(
            f"{info.launcher} says rank {info.rank} of {info.world_size}; "
            "ranks count from 0 to one below the number"
        )
    if info.world_size > 1 and not has_room(info.port, info.world_size):
        raise ArgumentError(
            f"port {info.port} ({info.launcher}) leaves no room for the job's block of ports; "
            "set XDEVICE_MASTER_PORT"
        )
    return info


def nodes_in(env: Environment = os.environ) -> Nodes | None:
    """The hosts that the variables name; ``None`` without such variables.

    `ArgumentError`: the variables are incomplete.
    """
    variables = _recognized(_NODES, env)
    if variables is None:
        return None
    nodes = _NODES[variables](env)
    if nodes.node >= nodes.count:
        raise ArgumentError(
            f"{nodes.source} says node {nodes.node} of {nodes.count}; nodes count from 0"
        )
    return nodes


def check_rank(rank: int, size: int, env: Environment) -> None:
    """Raise if a launcher has started this process with another rank.

    One of the two ranks is wrong.
    """
    try:
        info = process_info_in(env)
    except (ArgumentError, DistributedError):
        return  # the variables do not say which process this is
    variables = _recognized(_LAUNCHERS, env)
    if variables is None or (info.rank, info.world_size) == (rank, size):
        return
    raise ArgumentError(
        f"init() was given rank {rank} of {size}, and {info.launcher} says rank {info.rank} of "
        f"{info.world_size}; leave out rank and world_size, or unset {' and '.join(variables)}"
    )


def first_of(nodes: str) -> str:
    """The first host of Slurm's short list: ``gpu07`` of ``gpu[07-09,12]``."""
    match = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\])?([^,]*)", nodes)
    if match is None:
        return ""
    return "".join(part or "" for part in match.groups())


# The processes of a job


class RankVariables(NamedTuple):
    """The names of the variables by which a launcher tells a process who it is."""

    rank: str
    world_size: str
    local_rank: str


@dataclass(frozen=True)
class LauncherWithoutAddress:
    """A launcher that does not tell where rank 0 is.

    On one host xdevice derives a port.
    """

    name: str
    variables: RankVariables
    one_host_variable: str  # has ``one_host_value`` if all processes run on one host
    job_names: tuple[str, ...]  # variables with the job's name, of which the first set one counts
    one_host_value: str | None = None  # None for the world size

    def process_info(self, env: Environment) -> ProcessInfo:
        one_host_value = self.one_host_value or env[self.variables.world_size]
        host = LOCALHOST if env.get(self.one_host_variable) == one_host_value else ""
        job = next((env[name] for name in self.job_names if env.get(name)), "")
        return _process_info(env, self.name, self.variables, host, derived_port(job))


_OPEN_MPI = LauncherWithoutAddress(
    "mpirun",
    RankVariables("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    one_host_variable="OMPI_COMM_WORLD_LOCAL_SIZE",
    job_names=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
)
_FLUX = LauncherWithoutAddress(
    "flux run",
    RankVariables("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"),
    one_host_variable="FLUX_JOB_NNODES",
    one_host_value="1",
    job_names=("FLUX_JOB_ID",),
)
_HYDRA = LauncherWithoutAddress(
    "mpiexec",
    RankVariables("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    one_host_variable="MPI_LOCALNRANKS",
    job_names=("PMI_JOBID", "HYDRA_JOBID"),
)
_SUBMITIT = LauncherWithoutAddress(  # on this host; on Slurm it uses srun
    "submitit",
    RankVariables("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_NTASKS", "SUBMITIT_LOCAL_LOCALID"),
    one_host_variable="SUBMITIT_LOCAL_NTASKS",
    job_names=("SUBMITIT_LOCAL_JOB_ID",),
)


def _ours(env: Environment) -> ProcessInfo:
    names = RankVariables("XDEVICE_RANK", "XDEVICE_WORLD_SIZE", "XDEVICE_LOCAL_RANK")
    return _process_info(env, OUR_LAUNCHER, names, host="", port=0)


def _torchrun(env: Environment) -> ProcessInfo:
    names = RankVariables("RANK", "WORLD_SIZE", "LOCAL_RANK")
    host = env.get("MASTER_ADDR", "")
    if env.get("LOCAL_WORLD_SIZE") == env["WORLD_SIZE"]:
        host = LOCALHOST
    return _process_info(env, "torchrun", names, host, _port_beside_store(env, prefix=""))


def _paddle(env: Environment) -> ProcessInfo:
    names = RankVariables("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_RANK_IN_NODE")
    endpoints = env.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
    hosts = [endpoint.rpartition(":")[0] for endpoint in endpoints]
    master = env.get("PADDLE_MASTER") or endpoints[0]
    rank = env["PADDLE_TRAINER_ID"]
    is_listed = len(hosts) > 1 and rank.isdigit() and int(rank) < len(hosts)
    if is_listed and names.local_rank not in env:
        # The processes of one host have its address in their endpoints.
        earlier_hosts = hosts[: int(rank)]
        env = {**env, names.local_rank: str(earlier_hosts.count(hosts[int(rank)]))}
    host = master.rpartition(":")[0]
    if env.get("PADDLE_LOCAL_SIZE") == env["PADDLE_TRAINERS_NUM"]:
        host = LOCALHOST
    return _process_info(env, "paddle.distributed.launch", names, host, derived_port(master))


def _slurm(env: Environment) -> ProcessInfo:
    names = RankVariables("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
    lists = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    nodes = next((env[name] for name in lists if env.get(name)), "")
    host = first_of(nodes)
    if env.get("SLURM_STEP_NUM_NODES") == "1":
        host = LOCALHOST
    return _process_info(env, "srun", names, host, _slurm_port(env))


def _kubeflow(env: Environment) -> ProcessInfo:
    """The variables are torchrun's arguments.

    The container starts the script itself.
    """
    if env.get("PET_NPROC_PER_NODE", "1") != "1" or not env["PET_NNODES"].isdigit():
        raise DistributedError(
            f"PET_NNODES={env['PET_NNODES']!r} and "
            f"PET_NPROC_PER_NODE={env.get('PET_NPROC_PER_NODE', '')!r} are for torchrun; "
            "start the script with torchrun, or set PET_NNODES to one number and "
            "PET_NPROC_PER_NODE to 1"
        )
    names = RankVariables("PET_NODE_RANK", "PET_NNODES", "XDEVICE_LOCAL_RANK")
    env = {"XDEVICE_LOCAL_RANK": "0", **env}
    host = env.get("PET_MASTER_ADDR", "")
    return _process_info(env, "PET_NNODES", names, host, _port_beside_store(env, prefix="PET_"))


def _kubernetes(env: Environment) -> ProcessInfo:
    """An indexed job: Kubernetes tells each pod its index, not their number."""
    if "XDEVICE_WORLD_SIZE" not in env:
        raise DistributedError(
            "JOB_COMPLETION_INDEX is set, and Kubernetes does not tell the number of pods; "
            "set XDEVICE_WORLD_SIZE, 1 for pods that work apart, and for more XDEVICE_MASTER_ADDR "
            "and XDEVICE_MASTER_PORT"
        )
    names = RankVariables("JOB_COMPLETION_INDEX", "XDEVICE_WORLD_SIZE", "XDEVICE_LOCAL_RANK")
    env = {"XDEVICE_LOCAL_RANK": "0", **env}  # a pod of the job is a host of its own
    return _process_info(env, "Kubernetes", names, host="", port=0)


# By the variables that each launcher sets, in the order in which they are
# tried.
_LAUNCHERS: dict[tuple[str, ...], Callable[[Environment], ProcessInfo]] = {
    ("XDEVICE_RANK",): _ours,
    ("RANK", "WORLD_SIZE"): _torchrun,
    ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"): _paddle,
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"): _OPEN_MPI.process_info,
    # before Hydra: Flux sets PMI_RANK, too
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"): _FLUX.process_info,
    ("PMI_RANK", "PMI_SIZE"): _HYDRA.process_info,
    ("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_NTASKS"): _SUBMITIT.process_info,
    # without a step it is the batch script, a single process
    ("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS"): _slurm,
    ("PET_NNODES", "PET_NODE_RANK"): _kubeflow,
    ("JOB_COMPLETION_INDEX",): _kubernetes,
}


def _process_info(
    env: Environment, launcher: str, names: RankVariables, host: str, port: int
) -> ProcessInfo:
    """The values of the variables with these names.

    ``host`` and ``port`` are rank 0's, if known.
    """
    world_size = _integer(env, names.world_size)
    host = env.get("XDEVICE_MASTER_ADDR") or host
    if "XDEVICE_MASTER_PORT" in env:
        port = _integer(env, "XDEVICE_MASTER_PORT")
    if world_size > 1 and not (host and port):
        address = {"XDEVICE_MASTER_ADDR": host, "XDEVICE_MASTER_PORT": port}
        missing = " and ".join(name for name, value in address.items() if not value)
        raise DistributedError(
            f"{launcher} does not tell where rank 0 can be met; set {missing} for all processes"
        )
    rank = _integer(env, names.rank)
    if "XDEVICE_LOCAL_RANK" in env:
        local_rank = _integer(env, "XDEVICE_LOCAL_RANK")
    elif names.local_rank in env:
        local_rank = _integer(env, names.local_rank)
    elif world_size == 1 or host == LOCALHOST:
        local_rank = rank
    else:  # the rank may be the number of another host's GPU
        raise DistributedError(
            f"{launcher} does not set {names.local_rank}; "
            "set XDEVICE_LOCAL_RANK, from 0 on each host"
        )
    return ProcessInfo(rank, world_size, local_rank, host, port, launcher)


def _port_beside_store(env: Environment, prefix: str) -> int:
    """A port for jobs of torchrun: its own store listens at MASTER_PORT.

    The ports next to that one may belong to any program, so this one is
    derived from the address.
    """
    port = env.get(f"{prefix}MASTER_PORT", "")
    if not port:
        return 0
    host = env.get(f"{prefix}MASTER_ADDR", "")
    return derived_port(f"{host}:{port}")


# The hosts of a job


def _skypilot_nodes(env: Environment) -> Nodes:
    hosts = env.get("SKYPILOT_NODE_IPS", "").split()
    count = _integer(env, "SKYPILOT_NUM_NODES", _NAME_NODES)
    if len(hosts) != count:
        raise ArgumentError(
            f"SKYPILOT_NODE_IPS names {len(hosts)} of SKYPILOT_NUM_NODES={count} nodes; "
            "give --hosts"
        )
    node = _integer(env, "SKYPILOT_NODE_RANK", _NAME_NODES)
    port = derived_port(env.get("SKYPILOT_TASK_ID", ""))
    return Nodes(count, node, hosts[0], port or None, hosts, source="SkyPilot")


def _kubeflow_nodes(env: Environment) -> Nodes:
    count = _integer(env, "PET_NNODES", _NAME_NODES)
    address = env.get("PET_MASTER_ADDR", "")
    if count > 1 and not address:
        raise ArgumentError(f"PET_NNODES is set, and PET_MASTER_ADDR is not; {_NAME_NODES}")
    port = None
    if "PET_MASTER_PORT" in env:
        port = _integer(env, "PET_MASTER_PORT", _NAME_NODES)
    node = _integer(env, "PET_NODE_RANK", _NAME_NODES)
    return Nodes(count, node, address, port, source="PET_NNODES")


def _slurm_nodes(env: Environment) -> Nodes:
    count = _integer(env, "SLURM_STEP_NUM_NODES", _NAME_NODES)
    tasks = _integer(env, "SLURM_STEP_NUM_TASKS", _NAME_NODES)
    if tasks != count:
        raise ArgumentError(
            f"srun starts {tasks} launchers, and SLURM_STEP_NUM_NODES={count}; start one on each "
            "node with srun --ntasks-per-node=1, or the script itself without xdevice launch"
        )
    node = _integer(env, "SLURM_NODEID", _NAME_NODES)
    address = first_of(env["SLURM_STEP_NODELIST"])
    return Nodes(count, node, address, _slurm_port(env) or None, source="srun")


_NAME_NODES = "give --nnodes, --node-rank, --master-addr"
_SLURM_STEP = (
    "SLURM_STEP_ID",
    "SLURM_NODEID",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
)

# By the variables that each sets. A batch script outside srun is a single
# process, and its launcher is one.
_NODES: dict[tuple[str, ...], Callable[[Environment], Nodes]] = {
    ("SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"): _skypilot_nodes,
    ("PET_NNODES", "PET_NODE_RANK"): _kubeflow_nodes,
    _SLURM_STEP: _slurm_nodes,
}


def _slurm_port(env: Environment) -> int:
    return derived_port(f"{env.get('SLURM_JOB_ID', '')}.{env['SLURM_STEP_ID']}")


def _recognized(readers: Mapping[tuple[str, ...], T], env: Environment) -> tuple[str, ...] | None:
    """The first variables that are all set; ``None`` without a launcher."""
    for variables in readers:
        if all(name in env for name in variables):
            return variables
    return None


def _integer(
    env: Environment, name: str, hint: str = "let a launcher set it, or set all that it sets"
) -> int:
    text = env.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise ArgumentError(f"{name}={text!r} is not a number; {hint}")
    return int(text)
