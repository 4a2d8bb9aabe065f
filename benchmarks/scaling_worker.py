"""What a process of `scaling.py` does: ``scaling_worker.py processes|devices ROUNDS SECONDS FILE``.

All contenders of a job live in the same processes and take turns in them, in an order that is shuffled in every
round. Rank 0 writes what it has measured into the file.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
from scaling_native import Task, Training
from train_multi_gpu import cross_entropy, get_params

import xdevice
from xdevice import Replicas, data_parallel, distributed, replicate, scope, to_numpy

ROWS = 64
"""The images of each device, or process, in each step."""

RATE = 0.1


Loss = Callable[..., Any]
Compiled = Callable[[Any], Any]


class Contender(NamedTuple):
    training: Training
    parts: int
    """How many devices, or processes, it trains on."""


def task_of(rows: int, seed: int) -> Task:
    """With images and labels of the digits' shapes, and of no meaning: what counts here is time."""
    numbers = np.random.default_rng(seed)
    images, labels = (
        numbers.random((rows, 1, 28, 28), "float32"),
        numbers.integers(0, 10, (rows, 1)),
    )
    return Task(get_params(0), images, labels, RATE)


# How one trains with xdevice


def ours(
    loss: Loss, compiled: Compiled, devices: list[Any], task: Task, together: bool = False
) -> Training:
    """The lesson's `train_batch`, with a loss that is a mean over the rows and is not looked at."""
    step_on_devices = data_parallel(compiled(loss), devices)
    start = {
        name: xdevice.tensor(values, device=devices[0]) for name, values in task.params.items()
    }
    replicas = replicate(start, devices)
    where = (
        xdevice.cpu() if len(devices) > 1 else devices[0]
    )  # a batch comes from the host and is shared out
    x, y = (xdevice.tensor(array, device=where) for array in (task.images, task.labels))
    update = compiled(descended)

    def step() -> None:
        nonlocal replicas
        _, gradients = step_on_devices(replicas, x, y)
        if together:
            gradients = [distributed.all_reduce(gradients[0], "mean")]
        replicas = Replicas(map(updated, devices, replicas, gradients))

    def updated(device: Any, params: Any, gradients: Any) -> Any:
        with scope(device):
            return update(params, gradients)

    def wait() -> None:
        for device in devices:
            xdevice.synchronize(device)

    return Training(
        step, wait, lambda: {name: to_numpy(values) for name, values in replicas[0].items()}
    )


def lesson(params: Any, x: Any, labels: Any) -> Any:
    """The lesson's own loss, and the network that it has on `namespace`."""
    return cross_entropy(params, x, labels) / x.shape[0]


def descended(params: dict[str, Any], gradients: dict[str, Any]) -> dict[str, Any]:
    return {name: params[name] - RATE * gradients[name] for name in params}


# The contenders of a job


def of_processes(native: Any) -> dict[str, Contender]:
    """One process with the others idle, each process by itself, and all together."""
    size, task = distributed.world_size(), task_of(ROWS, distributed.rank())
    where = native.compiled, [xdevice.cpu()], task
    return {
        "native, 1": Contender(native.alone(task), 1),
        "xdevice, 1": Contender(ours(native.loss, *where), 1),
        "lesson, 1": Contender(ours(lesson, *where), 1),
        "native, apart": Contender(native.alone(task), size),
        "xdevice, apart": Contender(ours(native.loss, *where), size),
        "native, 2": Contender(native.processes(task), size),
        "xdevice, 2": Contender(ours(native.loss, *where, together=True), size),
    }


def of_devices(native: Any) -> dict[str, Contender]:
    """One device on one core, and two devices on two."""
    two = xdevice.virtual_gpus(2) if native.VIRTUAL else [xdevice.cpu()] * 2
    single, double = task_of(ROWS, 0), task_of(2 * ROWS, 0)
    found = {
        "native, 1": Contender(native.alone(single), 1),
        "xdevice, 1": Contender(ours(native.loss, native.compiled, two[:1], single), 1),
        "xdevice, 2": Contender(ours(native.loss, native.compiled, two, double), 2),
    }
    if native.THREADS:
        both = [ours(native.loss, native.compiled, [device], single) for device in two]
        found["xdevice, apart"] = Contender(side_by_side(*both), 2)
    if hasattr(native, "devices"):
        found["native, 2"] = Contender(native.devices(double), 2)
    return found


def side_by_side(first: Training, second: Training) -> Training:
    """Two trainings in two threads, which tell each other nothing: what there is to gain."""
    pool = ThreadPoolExecutor(1)

    def step() -> None:
        other = pool.submit(second.step)
        first.step()
        other.result()

    def wait() -> None:
        first.wait()
        second.wait()

    return Training(step, wait, first.parameters)


COMPARED = {
    "xdevice, 1": "native, 1",
    "lesson, 1": "native, 1",
    "xdevice, apart": "native, apart",
    "xdevice, 2": "native, 2",
}


def agree(contenders: dict[str, Contender]) -> None:
    """Let each take a step, and see that the native way and ours come to the same."""
    reached = {name: after_a_step(contender.training) for name, contender in contenders.items()}
    for name, parameters in reached.items():
        native = reached.get(COMPARED.get(name, ""), parameters)
        apart = max(float(abs(parameters[key] - native[key]).max()) for key in parameters)
        if apart > 1e-4:
            raise SystemExit(
                f"{name}: after one step the parameters are {apart:.1e} from the native ones"
            )


def after_a_step(training: Training) -> dict[str, Any]:
    training.step()
    training.wait()
    return {name: np.array(values) for name, values in training.parameters().items()}


# Turns


def measured(
    contenders: dict[str, Contender], rounds: int, seconds: float
) -> dict[str, dict[str, list[float]]]:
    """Samples per second of each contender, round by round; and per second of rank 0's CPU time."""
    steps = {name: steps_in(contender, seconds) for name, contender in contenders.items()}
    found: dict[str, dict[str, list[float]]] = {"wall": {}, "cpu": {}}
    shuffled = random.Random(0)  # alike in all processes
    for _ in range(rounds):
        for name in shuffled.sample(list(contenders), len(contenders)):
            began = process_time()
            wall = turn(contenders[name], steps[name])
            samples = contenders[name].parts * ROWS * steps[name]
            found["wall"].setdefault(name, []).append(samples / wall)
            found["cpu"].setdefault(name, []).append(samples / (process_time() - began))
    return found


def steps_in(contender: Contender, seconds: float) -> int:
    """As many steps as take so long; rank 0 says how many."""
    turn(contender, 3)
    found = max(2, round(4 * seconds / turn(contender, 4)))
    return int(to_numpy(distributed.broadcast(xdevice.tensor([found], device=xdevice.cpu())))[0])


def turn(contender: Contender, steps: int) -> float:
    """The seconds that so many steps take, from when all begin to when the last has ended."""
    use_cores(contender.parts if distributed.world_size() == 1 else 1)
    training = contender.training
    distributed.barrier()
    began = perf_counter()
    if distributed.rank() < contender.parts:
        for _ in range(steps):
            training.step()
        training.wait()
    distributed.barrier()
    return perf_counter() - began


CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def use_cores(count: int) -> None:
    """Keep all threads of this process, also the frameworks' own, on so many of its cores."""
    for thread in Path("/proc/self/task").iterdir() if CORES else ():
        try:
            os.sched_setaffinity(int(thread.name), CORES[:count])
        except ProcessLookupError:
            continue  # it has ended meanwhile


def main() -> None:
    job, rounds, seconds, file = (
        sys.argv[1],
        int(sys.argv[2]),
        float(sys.argv[3]),
        Path(sys.argv[4]),
    )
    _ = xdevice.backend().framework  # imported by way of xdevice, as some must be
    native = import_module(f"scaling_native.{xdevice.backend()}")
    if job == "devices" and native.VIRTUAL:
        xdevice.virtual_gpus(2)  # before the framework makes its first tensor
    with distributed.process_group(120):
        contenders = of_processes(native) if job == "processes" else of_devices(native)
        agree(contenders)
        found = measured(contenders, rounds, seconds)
        if distributed.rank() == 0:
            file.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
