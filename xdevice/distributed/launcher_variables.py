"""The variables by which launchers tell a process who it is: a table, with a row for each launcher."""

import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from xdevice.contract import Job
from xdevice.errors import ArgumentError, DistributedError
from xdevice.machine import is_loopback

Environment: TypeAlias = Mapping[str, str]

LOCALHOST = "127.0.0.1"
OUR_LAUNCHER = "xdevice launch"

SOCKET = "XDEVICE_LAUNCHER"
"""The variable with the path of the launcher's Unix socket."""

# Ports that are derived from a job's name. The system gives higher ones to
# connections at random.
_FIRST_PORT = 20_000
_PORTS = 10_000


class Variables(NamedTuple):
    """The names of one launcher's variables."""

    launcher: str
    rank: str
    world_size: str
    local_rank: str
    local_world_size: str
    job: tuple[str, ...] = ()  # that together name the job


# In the order in which they are tried: `xdevice launch` sets torchrun's too.
_LAUNCHERS = (
    Variables(
        OUR_LAUNCHER,
        "XDEVICE_RANK",
        "XDEVICE_WORLD_SIZE",
        "XDEVICE_LOCAL_RANK",
        "XDEVICE_LOCAL_WORLD_SIZE",
    ),
    Variables("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    Variables(
        "paddle.distributed.launch",
        "PADDLE_TRAINER_ID",
        "PADDLE_TRAINERS_NUM",
        "PADDLE_RANK_IN_NODE",
        "PADDLE_LOCAL_SIZE",
        ("PADDLE_TRAINER_ENDPOINTS",),
    ),
    Variables(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE",),
    ),
    Variables(
        "mpiexec",
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        ("PMI_JOBID", "HYDRA_JOBID"),
    ),
    # A batch script outside srun has no step, and is a single process.
    Variables(
        "srun",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)


def launcher_in(env: Environment) -> Variables | None:
    """The launcher that has started this process; ``None`` without one."""
    for names in _LAUNCHERS:
        if names.rank in env and names.world_size in env:
            return names
    return None


def job_in(env: Environment) -> Job:
    """This process by the launcher's variables; one of a single process without a launcher.

    `ArgumentError`: variables contradict each other, or are not numbers.
    `DistributedError`: the launcher does not tell the local rank.
    """
    names = launcher_in(env)
    if names is None:
        return Job(0, 1, 0, 1, launcher="no launcher")
    rank = _number(env, names.rank)
    world_size = _number(env, names.world_size)
    if rank >= world_size:
        raise ArgumentError(
            f"{names.launcher} says rank {rank} of {world_size}; "
            "ranks count from 0 to one below the number"
        )
    if world_size == 1:
        return Job(0, 1, 0, 1, launcher=names.launcher)
    local_world_size = 0
    if env.get(names.local_world_size):
        local_world_size = _number(env, names.local_world_size)
    host, port = _master(env, names)
    if local_world_size == world_size or is_loopback(host):
        host = LOCALHOST
        local_world_size = world_size
    if names.local_rank in env:
        local_rank = _number(env, names.local_rank)
    elif local_world_size == world_size:
        local_rank = rank
    else:  # the rank may be the number of another host's GPU
        raise DistributedError(
            f"{names.launcher} does not set {names.local_rank}; set it, from 0 on each host"
        )
    # If the launcher does not tell their number, this process is the last of its host.
    local_world_size = local_world_size or min(local_rank + 1, world_size - 1)
    name = job_name(host, port)
    return Job(
        rank, world_size, local_rank, local_world_size, host, port, name, launcher=names.launcher
    )


def job_name(host: str, port: int) -> str:
    """The name of a job whose master is there."""
    return f"{zlib.crc32(f'{host}:{port}'.encode()):08x}"


def check_rank(rank: int, size: int, env: Environment) -> None:
    """Raise if a launcher has started this process with another rank.

    One of the two ranks is wrong.
    """
    names = launcher_in(env)
    if names is None or (env[names.rank], env[names.world_size]) == (str(rank), str(size)):
        return
    raise ArgumentError(
        f"init() was given rank {rank} of {size}, and {names.launcher} says rank "
        f"{env[names.rank]} of {env[names.world_size]}; leave out rank and world_size, or unset "
        f"{names.rank} and {names.world_size}"
    )


def _master(env: Environment, names: Variables) -> tuple[str, int]:
    """Rank 0's host, and a port for the engine there: ``""`` and 0 if the launcher tells neither."""
    host = env.get("MASTER_ADDR", "")
    port = 0
    if env.get("MASTER_PORT"):
        port = _number(env, "MASTER_PORT")
        if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            port += 1  # torchrun's own store listens at MASTER_PORT
    elif env.get("PADDLE_MASTER"):
        host, _, text = env["PADDLE_MASTER"].rpartition(":")
        port = int(text) if text.isdigit() else 0
    else:
        job = ".".join(env.get(name, "") for name in names.job)
        if job.strip("."):
            port = _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS
        host = host or first_of(env.get("SLURM_STEP_NODELIST", ""))
    return host, port


def first_of(nodes: str) -> str:
    """The first host of Slurm's short list: ``gpu07`` of ``gpu[07-09,12]``."""
    match = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\])?([^,]*)", nodes)
    if match is None:
        return ""
    return "".join(part or "" for part in match.groups())


def _number(env: Environment, name: str) -> int:
    """The number in the variable; of Slurm's ``2(x3)``, which says it for three hosts, 2."""
    text = env.get(name, "")
    number = text.partition("(")[0].partition(",")[0]
    if not (number.isascii() and number.isdigit()):
        hint = "let a launcher set it, or set all that it sets"
        raise ArgumentError(f"{name}={text!r} is not a number; {hint}")
    return int(number)
