"""Which process of which job this is: as `init` was told, else as the variables of a launcher say."""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xdevice.errors import ArgumentError, DistributedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIRST_PORT, PORTS = 20_000, 10_000
"""Where a port is derived from the job's name: below those that systems give to connections at random."""

OURS = "xdevice launch"
"""The launcher that waits for the failed process by itself."""

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True)
class Seat:
    """One process's place in a job, before it has met the others."""

    rank: int
    world_size: int
    local_rank: int
    host: str  # rank 0's
    port: int  # the first of the job's block
    launcher: str
    token: str = field(default="", repr=False, compare=False)  # where `init` was given one
    trusts_network: bool = field(default=False, compare=False)  # as `contract.Job`


NO_LAUNCHER = Seat(0, 1, 0, LOCALHOST, 0, "no launcher")
"""The seat of a process that was started by itself."""

_taken: Seat | None = None


def take(chosen: Seat | None) -> None:
    """From now on this is the process's seat; with ``None``, that of the environment."""
    global _taken
    _taken = chosen


def seat() -> Seat:
    """This process's place: the one that it has taken, else that of the environment; raises as `seat_in`."""
    return seat_in(os.environ) if _taken is None else _taken


def seat_in(env: Mapping[str, str]) -> Seat:
    """The place that the variables of a launcher say: of the first launcher whose variables are set.

    ``XDEVICE_MASTER_ADDR``, ``XDEVICE_MASTER_PORT`` and ``XDEVICE_LOCAL_RANK`` override what the launcher says.

    Raises
    ------
    ArgumentError
        Variables contradict each other, or are not numbers.
    DistributedError
        The launcher does not tell the world size, the local rank, or where rank 0 is.
    """
    marks = marks_in(env)
    if not marks:
        return NO_LAUNCHER
    found = _LAUNCHERS[marks](env)
    if not 0 <= found.rank < found.world_size:
        raise ArgumentError(
            f"{found.launcher} says rank {found.rank} of {found.world_size}; ranks count from 0 to one below the number"
        )
    if found.world_size > 1 and not has_room(found.port, found.world_size):
        raise ArgumentError(
            f"port {found.port} ({found.launcher}) leaves no room for the job's block of ports; set XDEVICE_MASTER_PORT"
        )
    return found


def marks_in(env: Mapping[str, str]) -> str:
    """The variables by which a launcher is known here; an empty string without one."""
    return next((marks for marks in _LAUNCHERS if all(mark in env for mark in marks.split())), "")


def has_room(port: int, world_size: int) -> bool:
    """Whether a job's block of ports can begin there."""
    return 0 < port <= 65535 - 2 * world_size - 2


def _ours(env: Mapping[str, str]) -> Seat:
    return _seat(env, OURS, "XDEVICE_RANK XDEVICE_WORLD_SIZE XDEVICE_LOCAL_RANK", "", 0)


def _torchrun(env: Mapping[str, str]) -> Seat:
    # its own store listens at MASTER_PORT, and the ports beside it belong to any program
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    together = env.get("LOCAL_WORLD_SIZE") == env["WORLD_SIZE"]
    job = _port_of(f"{host}:{port}" if port else "")
    return _seat(env, "torchrun", "RANK WORLD_SIZE LOCAL_RANK", LOCALHOST if together else host, job)


def _paddle(env: Mapping[str, str]) -> Seat:
    endpoints = [end.rpartition(":")[0] for end in env.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")]
    first = env.get("PADDLE_MASTER") or env.get("PADDLE_TRAINER_ENDPOINTS", "").partition(",")[0]
    together = env.get("PADDLE_LOCAL_SIZE") == env["PADDLE_TRAINERS_NUM"]
    rank = env["PADDLE_TRAINER_ID"]
    if "PADDLE_RANK_IN_NODE" not in env and rank.isdigit() and int(rank) < len(endpoints) > 1:
        own = endpoints[int(rank)]  # the processes of one host have its address in their endpoints
        env = {**env, "PADDLE_RANK_IN_NODE": str(endpoints[: int(rank)].count(own))}
    names = "PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM PADDLE_RANK_IN_NODE"
    host = LOCALHOST if together else first.rpartition(":")[0]
    return _seat(env, "paddle.distributed.launch", names, host, _port_of(first))


def _open_mpi(env: Mapping[str, str]) -> Seat:
    names = "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK"
    together = env.get("OMPI_COMM_WORLD_LOCAL_SIZE") == env["OMPI_COMM_WORLD_SIZE"]
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid") or ""
    return _seat(env, "mpirun", names, LOCALHOST if together else "", _port_of(job))


def _flux(env: Mapping[str, str]) -> Seat:
    together = env.get("FLUX_JOB_NNODES") == "1"
    names = "FLUX_TASK_RANK FLUX_JOB_SIZE FLUX_TASK_LOCAL_ID"
    return _seat(env, "flux run", names, LOCALHOST if together else "", _port_of(env.get("FLUX_JOB_ID", "")))


def _hydra(env: Mapping[str, str]) -> Seat:
    together = env.get("MPI_LOCALNRANKS") == env["PMI_SIZE"]
    job = env.get("PMI_JOBID") or env.get("HYDRA_JOBID") or ""
    return _seat(env, "mpiexec", "PMI_RANK PMI_SIZE MPI_LOCALRANKID", LOCALHOST if together else "", _port_of(job))


def _submitit(env: Mapping[str, str]) -> Seat:
    # its executor for this host; on Slurm it uses srun, whose variables are there
    names = "SUBMITIT_LOCAL_GLOBALID SUBMITIT_LOCAL_NTASKS SUBMITIT_LOCAL_LOCALID"
    return _seat(env, "submitit", names, LOCALHOST, _port_of(env.get("SUBMITIT_LOCAL_JOB_ID", "")))


def _slurm(env: Mapping[str, str]) -> Seat:
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST", "")
    host = LOCALHOST if env.get("SLURM_STEP_NUM_NODES") == "1" else first_of(nodes)
    job = f"{env.get('SLURM_JOB_ID', '')}.{env['SLURM_STEP_ID']}"
    return _seat(env, "srun", "SLURM_PROCID SLURM_NTASKS SLURM_LOCALID", host, _port_of(job))


def _kubeflow(env: Mapping[str, str]) -> Seat:
    """What torchrun would be started with, in a container that starts the script itself."""
    if env.get("PET_NPROC_PER_NODE", "1") != "1" or not env["PET_NNODES"].isdigit():
        raise DistributedError(
            f"PET_NNODES={env['PET_NNODES']!r} and PET_NPROC_PER_NODE={env.get('PET_NPROC_PER_NODE', '')!r} are for "
            "torchrun; start the script with torchrun, or set PET_NNODES to one number and PET_NPROC_PER_NODE to 1"
        )
    host, port = env.get("PET_MASTER_ADDR", ""), env.get("PET_MASTER_PORT", "")
    job = _port_of(f"{host}:{port}" if port else "")
    env = {"XDEVICE_LOCAL_RANK": "0", **env}
    return _seat(env, "PET_NNODES", "PET_NODE_RANK PET_NNODES XDEVICE_LOCAL_RANK", host, job)


def _kubernetes(env: Mapping[str, str]) -> Seat:
    """An indexed job: Kubernetes tells each pod its index, and not how many there are."""
    if "XDEVICE_WORLD_SIZE" not in env:
        raise DistributedError(
            "JOB_COMPLETION_INDEX is set, and Kubernetes does not tell the number of pods; set XDEVICE_WORLD_SIZE, 1 "
            "for pods that work apart, and for more XDEVICE_MASTER_ADDR and XDEVICE_MASTER_PORT"
        )
    env = {"XDEVICE_LOCAL_RANK": "0", **env}  # a pod of the job is a host of its own
    return _seat(env, "Kubernetes", "JOB_COMPLETION_INDEX XDEVICE_WORLD_SIZE XDEVICE_LOCAL_RANK", "", 0)


_LAUNCHERS: dict[str, Callable[[Mapping[str, str]], Seat]] = {
    "XDEVICE_RANK": _ours,
    "RANK WORLD_SIZE": _torchrun,
    "PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM": _paddle,
    "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE": _open_mpi,
    "FLUX_TASK_RANK FLUX_JOB_SIZE": _flux,  # which sets PMI_RANK, too
    "PMI_RANK PMI_SIZE": _hydra,
    "SUBMITIT_LOCAL_GLOBALID SUBMITIT_LOCAL_NTASKS": _submitit,
    "SLURM_STEP_ID SLURM_PROCID SLURM_NTASKS": _slurm,  # without a step it is the batch script, a single process
    "PET_NNODES PET_NODE_RANK": _kubeflow,
    "JOB_COMPLETION_INDEX": _kubernetes,
}
"""By the variables that each sets."""


def first_of(nodes: str) -> str:
    """The first host of Slurm's short list: ``gpu[07-09,12],login1`` is ``gpu07``."""
    found = re.match(r"([^\[,]*)(?:\[([^\],-]+)[^\]]*\])?([^,]*)", nodes)
    return "".join(part or "" for part in found.groups()) if found else ""


def _seat(env: Mapping[str, str], launcher: str, names: str, host: str, port: int) -> Seat:
    rank, size, local = names.split()
    world_size = _integer(env, size)
    host = env.get("XDEVICE_MASTER_ADDR") or host
    port = _integer(env, "XDEVICE_MASTER_PORT") if "XDEVICE_MASTER_PORT" in env else port
    if world_size > 1 and not (host and port):
        known = {"XDEVICE_MASTER_ADDR": host, "XDEVICE_MASTER_PORT": port}
        missing = " and ".join(name for name, value in known.items() if not value)
        raise DistributedError(f"{launcher} does not tell where rank 0 can be met; set {missing} for all processes")
    number = _integer(env, rank)
    if "XDEVICE_LOCAL_RANK" in env:
        local = "XDEVICE_LOCAL_RANK"
    if local in env:
        return Seat(number, world_size, _integer(env, local), host, port, launcher)
    if world_size > 1 and host != LOCALHOST:  # the rank would be another host's GPU
        raise DistributedError(f"{launcher} does not set {local}; set XDEVICE_LOCAL_RANK, from 0 on each host")
    return Seat(number, world_size, number, host, port, launcher)


def _integer(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise ArgumentError(f"{name}={text!r} is not a number; let a launcher set it, or set all that it sets")
    return int(text)


def _port_of(job: str) -> int:
    """A first port that is the same for all processes of a job, and hardly that of another; 0 without a name."""
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS if job.strip(".") else 0
