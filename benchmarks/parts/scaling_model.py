"""A small model of what a step costs in many processes, with constants that were measured on one host.

It says which part grows, and how; it does not predict a network that was not measured.
"""

from __future__ import annotations

from typing import NamedTuple

from xdevice.distributed.barrier_setup import FANOUT
from xdevice.distributed.process_info import block_size


class Network(NamedTuple):
    """What lies between two hosts."""

    bandwidth: float
    """Bytes per second, each way."""
    latency: float
    """Seconds that a message takes which has no length."""


TEN_GIGABIT = Network(1.25e9, 30e-6)

LEVEL = 40e-6
"""Seconds until a process that waits for a message runs again, there and back. See ``--barrier``."""

EACH = 10e-6
"""Seconds of a process for each of those below it that ask, and are answered. See ``--barrier``."""

GRADIENTS = {"LeNet, 1.7 MB": 1.7e6, "ResNet-50, 100 MB": 100e6}
STEP = 0.1
"""Seconds that a device computes in each step, for the efficiency."""


def barrier(processes: int, network: Network = TEN_GIGABIT) -> float:
    """Seconds until all are let into a collective, in a tree in which each reads from `FANOUT` below."""
    levels, last = 0, processes - 1
    while last > 0:
        levels, last = levels + 1, (last - 1) // FANOUT
    return levels * (LEVEL + EACH * min(FANOUT, processes - 1) + 2 * network.latency)


def ring(processes: int, size: float, network: Network = TEN_GIGABIT) -> float:
    """Seconds of an all-reduce in which each sends to the next: gloo, NCCL and TensorFlow.

    In 2 (n - 1) rounds every process sends 1 / n of the bytes (Patarasu and
    Yuan 2009, doi 10.1016/j.jpdc.2008.09.002).
    """
    rounds = 2 * (processes - 1)
    return rounds * (size / processes / network.bandwidth + network.latency)


def servers(processes: int, size: float, count: int = 1, network: Network = TEN_GIGABIT) -> float:
    """Seconds of an all-reduce through so many servers, which share the bytes of all processes: MXNet."""
    return 2 * (processes * size / count / network.bandwidth + network.latency)


def ports(processes: int) -> int:
    """Consecutive ports that the job has on every host."""
    return block_size(processes)


def efficiency(processes: int, size: float, step: float = STEP) -> float:
    """The part of the time that devices compute, if nothing is sent while they do."""
    return step / (step + barrier(processes) + ring(processes, size))


def table(counts: tuple[int, ...] = (2, 8, 64, 1024)) -> str:
    """What so many processes cost, one to a host, 10 Gbit/s between them."""
    head = ["processes", "ports", "barrier, ms"]
    for name in GRADIENTS:
        head += [f"ring, {name}, ms", f"computing, {STEP * 1000:.0f} ms a step"]
    head.append("one MXNet server on each of 8 hosts, 100 MB, ms")
    lines = [head, ["---:"] * len(head)]
    for n in counts:
        line = [str(n), str(ports(n)), f"{barrier(n) * 1e3:.2f}"]
        for size in GRADIENTS.values():
            line += [f"{ring(n, size) * 1e3:.1f}", f"{efficiency(n, size):.0%}"]
        line.append(f"{servers(n, 100e6, min(n, 8)) * 1e3:.0f}")
        lines.append(line)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
