"""What random numbers cost on a virtual GPU that stands in, beside the CPU's own.

    OMP_NUM_THREADS=1 python benchmarks/random_numbers.py --rounds 31

A virtual GPU draws CUDA's numbers. As in `overhead.py`, both take turns, in an
order that is shuffled anew in each round, and a ratio is the median of the
rounds' ratios of processor time.
"""

from __future__ import annotations

import argparse
import random
from statistics import median
from time import process_time_ns
from typing import TYPE_CHECKING, Any

import xdevice

if TYPE_CHECKING:
    from collections.abc import Callable

FILLING = ("uniform_", "normal_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_")
SIZES = (10, 1_000, 100_000, 1_000_000)


def functions(torch: Any, n: int, device: str) -> dict[str, Callable[[], Any]]:
    """The functions to be timed, by name, with tensors of n elements."""
    x = torch.empty(n, device=device)
    filling: dict[str, Callable[[], Any]] = {name: getattr(x, name) for name in FILLING}
    ones = torch.ones(n, device=device)
    return filling | {
        "uniform_, float64": torch.empty(n, device=device, dtype=torch.float64).uniform_,
        "normal_, float64": torch.empty(n, device=device, dtype=torch.float64).normal_,
        "dropout": lambda: torch.nn.functional.dropout(ones),
        "randperm": lambda: torch.randperm(n, device=device),
    }


def ratio(cpu: Callable[[], Any], virtual: Callable[[], Any], rounds: int) -> float:
    """The median of the rounds' ratios of the time on the virtual GPU to that on the CPU."""
    contenders = [cpu, virtual]
    ratios = []
    for _ in range(rounds):
        times = {}
        for call in random.sample(contenders, 2):
            began = process_time_ns()
            call()
            times[call] = process_time_ns() - began
        ratios.append(times[virtual] / times[cpu])
    return median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    xdevice.use("torch")
    xdevice.virtual_gpus(1, stand_in=True)
    torch: Any = xdevice.backend("torch").framework
    torch.set_num_threads(1)
    on_cpu, on_gpu = ({n: functions(torch, n, device) for n in SIZES} for device in ("cpu", "cuda"))
    print("elements".ljust(20), *(f"{n:>10,}" for n in SIZES))
    for name in on_cpu[SIZES[0]]:
        ratios = [ratio(on_cpu[n][name], on_gpu[n][name], options.rounds) for n in SIZES]
        print(name.ljust(20), *(f"{value:>10.2f}" for value in ratios))


if __name__ == "__main__":
    main()
