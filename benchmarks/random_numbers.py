"""What random numbers cost on a virtual GPU that stands in, beside the CPU's own.

    OMP_NUM_THREADS=1 python benchmarks/random_numbers.py --rounds 31
    OMP_NUM_THREADS=1 python benchmarks/random_numbers.py --backend paddle

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


def functions_of_torch(torch: Any, n: int, device: str) -> dict[str, Callable[[], Any]]:
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


def functions_of_paddle(paddle: Any, n: int, device: str) -> dict[str, Callable[[], Any]]:
    paddle.set_device(device)
    x = paddle.ones([n])
    column = paddle.ones([n, 1])
    probabilities = x / 3
    calls = {
        "rand": lambda: paddle.rand([n]),
        "rand, float64": lambda: paddle.rand([n], dtype="float64"),
        "randn": lambda: paddle.randn([n]),
        "randn, float64": lambda: paddle.randn([n], dtype="float64"),
        "randint": lambda: paddle.randint(0, 1000, [n]),
        "bernoulli": lambda: paddle.bernoulli(probabilities),
        "exponential_": x.exponential_,
        "dropout": lambda: paddle.nn.functional.dropout(x),
        "randperm": lambda: paddle.randperm(n),
        "Normal": lambda: paddle.nn.initializer.Normal()(x),
        "XavierNormal": lambda: paddle.nn.initializer.XavierNormal()(column),
        "KaimingUniform": lambda: paddle.nn.initializer.KaimingUniform()(column),
    }

    def on_the_device(call: Callable[[], Any]) -> Callable[[], Any]:
        def timed() -> None:
            paddle.set_device(device)
            call()

        return timed

    return {name: on_the_device(call) for name, call in calls.items()}


def functions(backend: str, n: int, device: str) -> dict[str, Callable[[], Any]]:
    framework = xdevice.backend(backend).framework
    if backend == "paddle":
        return functions_of_paddle(framework, n, {"cuda": "gpu:0"}.get(device, device))
    framework.set_num_threads(1)
    return functions_of_torch(framework, n, device)


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
    parser.add_argument("--backend", choices=("torch", "paddle"), default="torch")
    options = parser.parse_args()
    xdevice.use(options.backend)
    xdevice.virtual_gpus(1, stand_in=True)
    on_cpu, on_gpu = (
        {n: functions(options.backend, n, device) for n in SIZES} for device in ("cpu", "cuda")
    )
    print("elements".ljust(20), *(f"{n:>10,}" for n in SIZES))
    for name in on_cpu[SIZES[0]]:
        ratios = [ratio(on_cpu[n][name], on_gpu[n][name], options.rounds) for n in SIZES]
        print(name.ljust(20), *(f"{value:>10.2f}" for value in ratios))


if __name__ == "__main__":
    main()
