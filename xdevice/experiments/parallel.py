"""Two devices at once, and computing while results travel.

A framework that queues its work needs one thread only. One that computes at once, as most do on a CPU,
blocks its caller, so here each device, and the copying, has its own thread.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from xdevice import cpu, synchronize, to_device
from xdevice.device import Device
from xdevice.experiments.arithmetic import matrix, products
from xdevice.experiments.work import BYTES, Setting, Work, named

Run = Callable[[int], Any]

SIZE, TIMES = 100, 20_000  # the lesson's


def parallel(setting: Setting) -> Iterator[Work]:
    """products of 100 × 100 matrices on two devices, in turn and at once"""
    pair, times = setting.pair(), setting.sized(TIMES)
    yield Work("on the CPU", (cpu(),), times, products(matrix(SIZE, cpu())))
    runs = [products(matrix(SIZE, device)) for device in pair]
    for device, run in zip(pair, runs, strict=True):
        yield Work(f"on {named(device)}", (device,), times, run)
    both = len(pair) * times
    yield Work("as many on each, in turn", pair, both, in_turn(runs), warm_up=6)
    yield Work("as many on each, at once", pair, both, at_once(runs), warm_up=6)


def overlap(setting: Setting) -> Iterator[Work]:
    """computing on a device and fetching the results, apart and overlapped"""
    where = setting.device
    size = setting.fitting(setting.sized(5000, floor=64), 20 * BYTES, power=2)
    times, moved = 10, size * size * BYTES
    yield Work("computed on the CPU", (cpu(),), times, computed(matrix(size, cpu()), cpu()))
    a = matrix(size, where)
    yield Work(f"computed on {named(where)}", (where,), times, computed(a, where))
    yield Work("results fetched", (where,), times, lambda n: [fetched(a) for _ in range(n)][-1], moved)
    yield Work("computed, then fetched", (where,), times, apart(a, where), moved)
    yield Work("computed and fetched, overlapped", (where,), times, overlapped(a, where), moved)


def in_turn(runs: Sequence[Run]) -> Run:
    """An equal share of the work for each, one after the other."""
    return lambda times: [run(times // len(runs)) for run in runs]


def at_once(runs: Sequence[Run]) -> Run:
    """An equal share of the work for each, in threads."""

    def run_all(times: int) -> list[Any]:
        with ThreadPoolExecutor(len(runs)) as threads:
            # a new thread has no chosen framework and no scope: it runs in a copy of the context
            begun = [threads.submit(copy_context().run, run, times // len(runs)) for run in runs]
            return [one.result() for one in begun]

    return run_all


def computed(a: Any, device: Device) -> Run:
    def run(times: int) -> Any:
        with device:
            return [a @ a for _ in range(times)]

    return run


def fetched(x: Any) -> Any:
    return to_device(x, cpu(), copy=True, non_blocking=True)


def apart(a: Any, device: Device) -> Run:
    compute = computed(a, device)

    def run(times: int) -> list[Any]:
        results = compute(times)
        synchronize(device)
        return [fetched(x) for x in results]

    return run


def overlapped(a: Any, device: Device) -> Run:
    """Fetch each result while the next is computed."""

    def run(times: int) -> list[Any]:
        with ThreadPoolExecutor(1) as courier, device:
            begun = [courier.submit(copy_context().run, fetched, a @ a) for _ in range(times)]
            return [one.result() for one in begun]

    return run
