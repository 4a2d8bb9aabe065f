"""The hosts of a job, as what has started the launchers tells them: Slurm's srun, SkyPilot, Kubeflow's trainer."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdevice.distributed.seat import FIRST_PORT, PORTS, first_of
from xdevice.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class Nodes:
    """The job's hosts, and which of them this is."""

    count: int
    node: int
    address: str  # the first one's
    port: int | None = None  # the first of the job's block, where it is known
    hosts: Sequence[str] = ()  # the address of each, where they are known
    source: str = ""  # what has started the launchers, all of them at once; empty where the user has typed each


def nodes_in(env: Mapping[str, str] = os.environ) -> Nodes | None:
    """The hosts that the environment tells; ``None`` without such variables.

    Raises
    ------
    ArgumentError
        The variables are incomplete, or several launchers were started on one host.
    """
    for marks, read in _SOURCES.items():
        if all(mark in env for mark in marks.split()):
            found = read(env)
            if found.node >= found.count:
                raise ArgumentError(f"{found.source} says node {found.node} of {found.count}; nodes count from 0")
            return found
    return None


def _skypilot(env: Mapping[str, str]) -> Nodes:
    hosts = env.get("SKYPILOT_NODE_IPS", "").split()
    count = _number(env, "SKYPILOT_NUM_NODES")
    if len(hosts) != count:
        raise ArgumentError(f"SKYPILOT_NODE_IPS names {len(hosts)} of SKYPILOT_NUM_NODES={count} nodes; give --hosts")
    port = _port_of(env.get("SKYPILOT_TASK_ID", ""))
    return Nodes(count, _number(env, "SKYPILOT_NODE_RANK"), hosts[0], port, hosts, "SkyPilot")


def _kubeflow(env: Mapping[str, str]) -> Nodes:
    count, address = _number(env, "PET_NNODES"), env.get("PET_MASTER_ADDR", "")
    if count > 1 and not address:
        raise ArgumentError("PET_NNODES is set, and PET_MASTER_ADDR is not; give --nnodes, --node-rank, --master-addr")
    port = _number(env, "PET_MASTER_PORT") if "PET_MASTER_PORT" in env else None
    return Nodes(count, _number(env, "PET_NODE_RANK"), address, port, source="PET_NNODES")


def _slurm(env: Mapping[str, str]) -> Nodes:
    count, tasks = _number(env, "SLURM_STEP_NUM_NODES"), _number(env, "SLURM_STEP_NUM_TASKS")
    if tasks != count:
        raise ArgumentError(
            f"srun starts {tasks} launchers, and SLURM_STEP_NUM_NODES={count}; start one on each node with srun "
            "--ntasks-per-node=1, or the script itself without xdevice launch"
        )
    port = _port_of(f"{env.get('SLURM_JOB_ID', '')}.{env['SLURM_STEP_ID']}")
    return Nodes(count, _number(env, "SLURM_NODEID"), first_of(env["SLURM_STEP_NODELIST"]), port, source="srun")


_SOURCES: dict[str, Callable[[Mapping[str, str]], Nodes]] = {
    "SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES": _skypilot,
    "PET_NNODES PET_NODE_RANK": _kubeflow,
    "SLURM_STEP_ID SLURM_NODEID SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_NODELIST": _slurm,
}
"""By the variables that each sets. A batch script outside srun is a single process, and so is its launcher."""


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise ArgumentError(f"{name}={text!r} is not a number; give --nnodes, --node-rank, --master-addr")
    return int(text)


def _port_of(job: str) -> int | None:
    """A first port that is the same on all hosts of the job, and seldom that of another job."""
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS if job.strip(".") else None
