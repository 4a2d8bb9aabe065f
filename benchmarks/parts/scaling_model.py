"""A model of what a step costs in many processes, with constants from one host.

It shows which part of the cost grows, and how fast. It does not predict the
speed of a network that was not measured.
"""

from __future__ import annotations

from typing import NamedTuple

from xdevice.distributed.barrier_setup import FANOUT
from xdevice.distributed.process_info import block_size


class Network(NamedTuple):
    """The network between two hosts."""

    bandwidth: float
    """Bytes per second, each way."""
    latency: float
    """Seconds that an empty message takes."""


TEN_GIGABIT = Network(1.25e9, 30e-6)

LEVEL = 40e-6
"""Seconds of each level of the tree: a waiting process wakes up for a message, there and back.

Measured with ``--barrier``.
"""

CHILD = 10e-6
"""Seconds that a process takes to read from one process below it, and to answer it.

Measured with ``--barrier``.
"""

GRADIENTS = {"LeNet, 1.7 MB": 1.7e6, "ResNet-50, 100 MB": 100e6}
STEP = 0.1
"""Seconds that a device computes in each step, for the efficiency."""


def barrier(processes: int, network: Network = TEN_GIGABIT) -> float:
    """Seconds of a barrier by a tree, in which each process reads from `FANOUT` others."""
    levels = 0
    last = processes - 1
    while last > 0:
        levels += 1
        last = (last - 1) // FANOUT
    children = min(FANOUT, processes - 1)
    return levels * (LEVEL + CHILD * children + 2 * network.latency)


def ring(processes: int, size: float, network: Network = TEN_GIGABIT) -> float:
    """Seconds of an all-reduce in a ring, as gloo, NCCL and TensorFlow do it.

    In 2 (n - 1) rounds every process sends 1 / n of the bytes to the next one
    (Patarasuk and Yuan 2009, doi 10.1016/j.jpdc.2008.09.002).
    """
    rounds = 2 * (processes - 1)
    return rounds * (size / processes / network.bandwidth + network.latency)


def servers(processes: int, size: float, count: int = 1, network: Network = TEN_GIGABIT) -> float:
    """Seconds of an all-reduce through servers, as MXNet does it.

    The servers share the bytes of all processes.
    """
    return 2 * (processes * size / count / network.bandwidth + network.latency)


def ports(processes: int) -> int:
    """The number of consecutive ports that the job has on every host."""
    return block_size(processes)


def efficiency(processes: int, size: float, step: float = STEP) -> float:
    """The share of the time in which devices compute.

    Nothing is sent while they compute.
    """
    return step / (step + barrier(processes) + ring(processes, size))


def table(counts: tuple[int, ...] = (2, 8, 64, 1024)) -> str:
    """The cost for each number of processes: one on each host, 10 Gbit/s between the hosts."""
    head = ["processes", "ports", "barrier, ms"]
    for name in GRADIENTS:
        head += [f"ring, {name}, ms", f"computing, {STEP * 1000:.0f} ms a step"]
    head.append("one MXNet server on each of 8 hosts, 100 MB, ms")
    rows = [head, ["---:"] * len(head), *map(table_row, counts)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def table_row(processes: int) -> list[str]:
    row = [str(processes), str(ports(processes)), f"{barrier(processes) * 1e3:.2f}"]
    for size in GRADIENTS.values():
        row += [f"{ring(processes, size) * 1e3:.1f}", f"{efficiency(processes, size):.0%}"]
    row.append(f"{servers(processes, 100e6, min(processes, 8)) * 1e3:.0f}")
    return row
