"""A process of `scaling.py`: ``scaling_worker.py processes|devices ROUNDS SECONDS FILE``.

All contenders of a job take turns in the same processes, in a new random order
in each round. Rank 0 writes the measurements into the file.
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
from xdevice import Device, data_parallel, distributed, replicate, to_numpy

ROWS = 64
"""The images of each device, or process, in each step."""

RATE = 0.1


Loss = Callable[..., Any]
Compiled = Callable[[Any], Any]


class Contender(NamedTuple):
    training: Training
    parts: int
    """The number of devices, or processes, that it trains on."""


def task_of(rows: int, seed: int) -> Task:
    """A task with random images and labels of the digits' shapes, since only the time counts."""
    generator = np.random.default_rng(seed)
    images = generator.random((rows, 1, 28, 28), "float32")
    labels = generator.integers(0, 10, (rows, 1))
    return Task(get_params(0), images, labels, RATE)


# Training with xdevice


def training_with_xdevice(
    loss: Loss, compiled: Compiled, devices: list[Device], task: Task, together: bool = False
) -> Training:
    """The lesson's `train_batch`; the loss is a mean over the rows, and its value is not used.

    ``together`` averages the gradients over all processes.
    """
    step_on_devices = data_parallel(compiled(loss), devices)
    start = {
        name: xdevice.tensor(values, device=devices[0]) for name, values in task.params.items()
    }
    replicas = replicate(start, devices)
    source = devices[0]
    if len(devices) > 1:  # a batch comes from the host, and each device gets a part of it
        source = xdevice.cpu()
    x = xdevice.tensor(task.images, device=source)
    y = xdevice.tensor(task.labels, device=source)
    update = compiled(descended)

    def step() -> None:
        nonlocal replicas
        _, gradients = step_on_devices(replicas, x, y)
        if together:
            gradients = [distributed.all_reduce(gradients[0], "mean")]
        replicas = replicas.map(update, gradients)

    def wait() -> None:
        for device in devices:
            xdevice.synchronize(device)

    def parameters() -> dict[str, Any]:
        return {name: to_numpy(values) for name, values in replicas[0].items()}

    return Training(step, wait, parameters)


def lesson(params: Any, x: Any, labels: Any) -> Any:
    """The lesson's own loss, with its network written with `namespace`."""
    return cross_entropy(params, x, labels) / x.shape[0]


def descended(params: dict[str, Any], gradients: dict[str, Any]) -> dict[str, Any]:
    return {name: params[name] - RATE * gradients[name] for name in params}


# The contenders of a job


def of_processes(native: Any) -> dict[str, Contender]:
    """One process while the others are idle, each process by itself, and all together."""
    size = distributed.world_size()
    task = task_of(ROWS, distributed.rank())

    def with_xdevice(loss: Loss, together: bool = False) -> Training:
        return training_with_xdevice(loss, native.compiled, [xdevice.cpu()], task, together)

    return {
        "native, 1": Contender(native.alone(task), 1),
        "xdevice, 1": Contender(with_xdevice(native.loss), 1),
        "lesson, 1": Contender(with_xdevice(lesson), 1),
        "native, apart": Contender(native.alone(task), size),
        "xdevice, apart": Contender(with_xdevice(native.loss), size),
        "native, 2": Contender(native.processes(task), size),
        "xdevice, 2": Contender(with_xdevice(native.loss, together=True), size),
    }


def of_devices(native: Any) -> dict[str, Contender]:
    """One device on one core, and two devices on two."""
    devices = [xdevice.cpu()] * 2
    if native.VIRTUAL:
        devices = xdevice.virtual_gpus(2)
    single_task = task_of(ROWS, 0)
    double_task = task_of(2 * ROWS, 0)

    def with_xdevice(devices: list[Device], task: Task) -> Training:
        return training_with_xdevice(native.loss, native.compiled, devices, task)

    contenders = {
        "native, 1": Contender(native.alone(single_task), 1),
        "xdevice, 1": Contender(with_xdevice(devices[:1], single_task), 1),
        "xdevice, 2": Contender(with_xdevice(devices, double_task), 2),
    }
    if native.THREADS:
        trainings = [with_xdevice([device], single_task) for device in devices]
        contenders["xdevice, apart"] = Contender(side_by_side(*trainings), 2)
    if hasattr(native, "devices"):
        contenders["native, 2"] = Contender(native.devices(double_task), 2)
    return contenders


def side_by_side(first: Training, second: Training) -> Training:
    """Two independent trainings in two threads: the most that two devices can gain."""
    pool = ThreadPoolExecutor(1)

    def step() -> None:
        second_step = pool.submit(second.step)
        first.step()
        second_step.result()

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


def check_that_they_agree(contenders: dict[str, Contender]) -> None:
    """Take a step with each, and check that xdevice gets the same parameters as the native code."""
    parameters_of = {
        name: after_a_step(contender.training) for name, contender in contenders.items()
    }
    for name, parameters in parameters_of.items():
        native = parameters_of.get(COMPARED.get(name, ""), parameters)
        difference = max(float(abs(parameters[key] - native[key]).max()) for key in parameters)
        if difference > 1e-4:
            raise SystemExit(
                f"{name}: after one step the parameters are {difference:.1e} from the native ones"
            )


def after_a_step(training: Training) -> dict[str, Any]:
    training.step()
    training.wait()
    return {name: np.array(values) for name, values in training.parameters().items()}


# Turns


class Rates(NamedTuple):
    """Samples per second of each contender, round by round."""

    wall: dict[str, list[float]]
    cpu: dict[str, list[float]]  # per second of rank 0's CPU time


def measure(contenders: dict[str, Contender], rounds: int, seconds: float) -> Rates:
    steps_of = {name: number_of_steps(contender, seconds) for name, contender in contenders.items()}
    rates = Rates({name: [] for name in contenders}, {name: [] for name in contenders})
    generator = random.Random(0)  # alike in all processes
    for _ in range(rounds):
        for name in generator.sample(list(contenders), len(contenders)):
            cpu_time = process_time()
            wall_time = turn(contenders[name], steps_of[name])
            cpu_time = process_time() - cpu_time
            samples = contenders[name].parts * ROWS * steps_of[name]
            rates.wall[name].append(samples / wall_time)
            rates.cpu[name].append(samples / cpu_time)
    return rates


def number_of_steps(contender: Contender, seconds: float) -> int:
    """The number of steps that take about so many seconds; the same in all processes."""
    turn(contender, 3)
    steps = max(2, round(4 * seconds / turn(contender, 4)))
    rank_0_steps = distributed.broadcast(xdevice.tensor([steps], device=xdevice.cpu()))
    return int(to_numpy(rank_0_steps)[0])


def turn(contender: Contender, steps: int) -> float:
    """Seconds of so many steps, from the common start until the last process has ended."""
    cores = 1
    if distributed.world_size() == 1:
        cores = contender.parts
    use_cores(cores)
    training = contender.training
    distributed.barrier()
    began = perf_counter()
    if distributed.rank() < contender.parts:
        for _ in range(steps):
            training.step()
        training.wait()
    distributed.barrier()
    return perf_counter() - began


CORES: list[int] = []
if hasattr(os, "sched_getaffinity"):
    CORES = sorted(os.sched_getaffinity(0))


def use_cores(count: int) -> None:
    """Keep all threads of this process, those of the framework too, on so many of its cores."""
    if not CORES:
        return
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), CORES[:count])
        except ProcessLookupError:
            continue  # it has just ended


def main() -> None:
    job, rounds, seconds, file = sys.argv[1:]
    _ = xdevice.backend().framework  # xdevice imports it: the order of imports matters to some
    native = import_module(f"scaling_native.{xdevice.backend()}")
    if job == "devices" and native.VIRTUAL:
        xdevice.virtual_gpus(2)  # before the framework makes its first tensor
    with distributed.process_group(120):
        if job == "processes":
            contenders = of_processes(native)
        else:
            contenders = of_devices(native)
        check_that_they_agree(contenders)
        rates = measure(contenders, int(rounds), float(seconds))
        if distributed.rank() == 0:
            Path(file).write_text(json.dumps(rates._asdict()), encoding="utf-8")


if __name__ == "__main__":
    main()
