"""Which process of which job this is, as the environment tells: xdevice launch's variables, or another launcher's."""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdevice.errors import ArgumentError, DistributedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIRST_PORT, PORTS = 20_000, 10_000
"""Where a port is chosen by the job's name: below what systems give to connections at random."""


OURS = "xdevice launch"
"""The launcher that waits for the failed process by itself."""


@dataclass(frozen=True)
class Seat:
    """One process's place in a job, before it has met the others."""

    rank: int
    world_size: int
    local_rank: int
    host: str  # rank 0's
    port: int  # the first of the job's block
    launcher: str


NO_LAUNCHER = Seat(0, 1, 0, "127.0.0.1", 0, "no launcher")
"""The seat of a process that was started by itself."""


def seat(env: Mapping[str, str] = os.environ) -> Seat:
    """This process's place: the first launcher that has left its variables counts.

    ``XDEVICE_MASTER_ADDR`` and ``XDEVICE_MASTER_PORT`` beat what is said or derived otherwise.

    Raises
    ------
    ArgumentError
        Variables that contradict each other, or are no numbers.
    DistributedError
        The launcher does not tell where rank 0 is.
    """
    for marks, read in _LAUNCHERS.items():
        if all(mark in env for mark in marks.split()):
            found = read(env)
            break
    else:
        return NO_LAUNCHER
    if not 0 <= found.rank < found.world_size:
        raise ArgumentError(
            f"{found.launcher} says rank {found.rank} of {found.world_size}; ranks count from 0 to one below the number"
        )
    if found.world_size > 1 and not 0 < found.port <= 65535 - 2 * found.world_size:
        raise ArgumentError(
            f"port {found.port} ({found.launcher}) leaves no room for the job's block of ports; set XDEVICE_MASTER_PORT"
        )
    return found


def _ours(env: Mapping[str, str]) -> Seat:
    return _seat(env, OURS, "XDEVICE_RANK XDEVICE_WORLD_SIZE XDEVICE_LOCAL_RANK", "", 0)


def _torchrun(env: Mapping[str, str]) -> Seat:
    # its own store listens at MASTER_PORT, and what is beside that is anybody's
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    return _seat(env, "torchrun", "RANK WORLD_SIZE LOCAL_RANK", host, _port_of(f"{host}:{port}" if port else ""))


def _paddle(env: Mapping[str, str]) -> Seat:
    first = env.get("PADDLE_MASTER") or env.get("PADDLE_TRAINER_ENDPOINTS", "").partition(",")[0]
    names = "PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM PADDLE_RANK_IN_NODE"
    return _seat(env, "paddle.distributed.launch", names, first.rpartition(":")[0], _port_of(first))


def _open_mpi(env: Mapping[str, str]) -> Seat:
    names = "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK"
    together = env.get("OMPI_COMM_WORLD_LOCAL_SIZE") == env["OMPI_COMM_WORLD_SIZE"]
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid") or ""
    return _seat(env, "mpirun", names, "127.0.0.1" if together else "", _port_of(job))


def _hydra(env: Mapping[str, str]) -> Seat:
    together = env.get("MPI_LOCALNRANKS") == env["PMI_SIZE"]
    job = env.get("PMI_JOBID") or env.get("HYDRA_JOBID") or ""
    host = "127.0.0.1" if together else ""
    return _seat(env, "mpiexec", "PMI_RANK PMI_SIZE MPI_LOCALRANKID", host, _port_of(job))


def _slurm(env: Mapping[str, str]) -> Seat:
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST", "")
    job = f"{env.get('SLURM_JOB_ID', '')}.{env['SLURM_STEP_ID']}"
    return _seat(env, "srun", "SLURM_PROCID SLURM_NTASKS SLURM_LOCALID", first_of(nodes), _port_of(job))


_LAUNCHERS: dict[str, Callable[[Mapping[str, str]], Seat]] = {
    "XDEVICE_RANK": _ours,
    "RANK WORLD_SIZE": _torchrun,
    "PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM": _paddle,
    "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE": _open_mpi,
    "PMI_RANK PMI_SIZE": _hydra,
    "SLURM_STEP_ID SLURM_PROCID SLURM_NTASKS": _slurm,  # without a step it is the batch script, which is alone
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
    return Seat(number, world_size, _integer(env, local) if local in env else number, host, port, launcher)


def _integer(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise ArgumentError(f"{name}={text!r} is no number; let a launcher set it, or set all that it sets")
    return int(text)


def _port_of(job: str) -> int:
    """A first port that all processes of the job find alike, and other jobs hardly; 0 where it has no name."""
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS if job.strip(".") else 0
