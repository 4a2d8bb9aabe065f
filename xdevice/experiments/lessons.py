"""The lessons' experiments. Each timed computation depends on the one before it: waiting for the last waits for all.

A framework that queues its work needs one thread only. One that computes at once, as most do on a CPU, blocks its
caller, so where devices or copies work at once, each has its own thread.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import cycle, islice
from typing import Any

from xdevice import cpu, device_of, namespace, ones, synchronize, tensor, to_device, to_numpy
from xdevice import prefetch as ahead
from xdevice.device import Device
from xdevice.errors import ArgumentError, did_you_mean
from xdevice.experiments.work import (
    BYTES,
    Row,
    Run,
    Setting,
    Work,
    arrived,
    measured,
    named,
    random,
)

Experiment = Callable[[Setting], Iterator[Work]]


def elementwise(setting: Setting) -> Iterator[Work]:
    """result += a * b on large tensors"""
    depth = setting.fitting(
        setting.sized(100), 4 * BYTES * 10**6
    )  # a, b, their product and the result
    shape, times = (depth, 1000, 1000), setting.sized(1000)
    for name, where in setting.sides():
        result, a, b = (random(shape, where) for _ in range(3))
        yield Work(
            f"{depth} × 1000 × 1000 {name}", (where,), times, partial(accumulation, result, a, b)
        )


def large(setting: Setting) -> Iterator[Work]:
    """a @ b of large matrices"""
    size = setting.fitting(setting.sized(10_000), 4 * BYTES, power=2)
    for name, where in setting.sides():
        yield Work(f"{size} × {size} {name}", (where,), 10, products(matrix(size, where)))


def tiny(setting: Setting) -> Iterator[Work]:
    """a @ b of tiny matrices"""
    for name, where in setting.sides():
        yield Work(f"10 × 10 {name}", (where,), setting.sized(10_000), products(matrix(10, where)))


def log(setting: Setting) -> Iterator[Work]:
    """the norms of products of 100 × 100 matrices, logged"""
    times = setting.sized(1000)
    for name, where in setting.sides():
        one_by_one, together = logging(matrix(100, where), where)
        yield Work(f"fetched one by one {name}", (where,), times, one_by_one, BYTES, times)
        yield Work(
            f"kept there and fetched together {name}", (where,), times, together, BYTES, times
        )


def matrix(size: int, device: Device) -> Any:
    """A random matrix with powers that neither grow nor vanish: its rows sum to about 1."""
    return random((size, size), device, mean=1 / size)


def accumulation(result: Any, a: Any, b: Any, times: int) -> Any:
    where = device_of(result)
    for _ in range(times):
        result += a * b
    return arrived(result, where)


def products(a: Any, b: Any = None) -> Run:
    return partial(product, a, a if b is None else b)


def product(a: Any, b: Any, times: int) -> Any:
    """a @ b, a @ a @ b and so on: each needs the one before, so that none is skipped and the last one ends last."""
    where = device_of(a)
    for _ in range(times):
        b = a @ b
    return arrived(b, where)


def again(once: Callable[[], Any]) -> Run:
    """Do it that many times; only the last result is kept."""
    return lambda times: deque((once() for _ in range(times)), maxlen=1)


def logging(a: Any, where: Device) -> tuple[Run, Run]:
    left, right = ones((1, 100), device=where), ones((100, 1), device=where)
    stack = namespace(a).stack

    def norm(x: Any) -> Any:  # as a 1 × 1 matrix, by operators only, which all frameworks have
        return (left @ (x * x) @ right) ** 0.5

    return (
        lambda times: [to_numpy(norm(a @ a)).item() for _ in range(times)],
        lambda times: to_numpy(stack([norm(a @ a) for _ in range(times)])).ravel().tolist(),
    )


PIECES = 10_000


def transfer(setting: Setting) -> Iterator[Work]:
    """a @ b of 200 × 200: where are the operands?"""
    import numpy as np

    a, b = np.random.default_rng(0).random((2, 200, 200), dtype="float32")
    a /= 100  # its rows sum to about 1: products of products neither grow nor vanish
    times, where = setting.sized(PIECES), setting.device
    yield Work("in NumPy, on the CPU", (cpu(),), times, again(lambda: a @ b))
    stay = products(tensor(a, device=where), tensor(b, device=where))
    yield Work("the operands stay on the device", (where,), times, stay)
    there_and_back = again(lambda: to_numpy(tensor(a, device=where) @ tensor(b, device=where)))
    yield Work(
        "sent there and fetched each time", (where,), times, there_and_back, 3 * a.size * BYTES
    )


def copies(setting: Setting) -> Iterator[Work]:
    """the same numbers copied at once, and in many small pieces"""
    import numpy as np

    pieces, where = setting.sized(PIECES), setting.device
    length = setting.fitting(10 * 1024, 4 * BYTES * pieces)
    whole = np.ones((pieces, length), dtype="float32")
    moved = whole.size * BYTES
    in_pieces = again(lambda: [tensor(piece, device=where) for piece in whole])
    yield Work(
        "at once, from the CPU to the CPU", (cpu(),), 3, again(lambda: tensor(whole, device=cpu()))
    )
    yield Work(
        "at once, to the device", (where,), 3, again(lambda: tensor(whole, device=where)), moved
    )
    yield Work(f"in {pieces} pieces, to the device", (where,), 3, in_pieces, moved)
    there = [tensor(piece, device=where) for piece in whole]
    yield Work(
        f"in {pieces} pieces, back", (where,), 3, again(lambda: [to_numpy(x) for x in there]), moved
    )


ROWS = 128  # of w: computing takes about as long as sending does by a bus
KEPT = 8  # batches, which are used in turn


def prefetch(setting: Setting) -> Iterator[Work]:
    """w of 128 × 1024 @ batch of 1024 × 1024: are the next batches sent meanwhile?"""
    n, times, where = (
        setting.fitting(1024, 2 * KEPT * BYTES, power=2),
        setting.sized(500),
        setting.device,
    )
    batches = [random((n, n), cpu()) for _ in range(KEPT)]

    def sent(few: Iterable[Any]) -> Iterator[Any]:
        return (to_device(batch, where) for batch in few)

    def sent_ahead(few: Iterable[Any]) -> Iterator[Any]:
        return iter(ahead(few, where))

    # w's rows sum to about 1: the state neither grows nor vanishes
    on_cpu, w = random((ROWS, n), cpu(), 1 / n), random((ROWS, n), where, 1 / n)
    yield Work(
        "the batches and w on the CPU", (cpu(),), times, partial(steps, on_cpu, batches, iter)
    )
    for label, way in (
        ("each sent, then computed with", sent),
        ("the next two sent meanwhile", sent_ahead),
    ):
        yield Work(label, (where,), times, partial(steps, w, batches, way), n * n * BYTES)


def steps(
    w: Any, batches: list[Any], way: Callable[[Iterable[Any]], Iterator[Any]], times: int
) -> Any:
    """Half of ``w @ batch`` and half of what was there, so many times, each batch being got there in this way."""
    device = device_of(w)
    state = random(tuple(w.shape), device)
    for batch in way(islice(cycle(batches), times)):
        state = (w @ batch + state) / 2
    return arrived(state, device)


def parallel(setting: Setting) -> Iterator[Work]:
    """products of 100 × 100 matrices on two devices, in turn and at once"""
    pair, times = setting.pair(), setting.sized(20_000)
    yield Work("on the CPU", (cpu(),), times, products(matrix(100, cpu())))
    runs = [partial(on, device, products(matrix(100, device))) for device in pair]
    for device, run in zip(pair, runs, strict=True):
        yield Work(f"on {named(device)}", (device,), times, run)
    both = len(pair) * times
    yield Work(
        "as many on each, in turn", pair, both, lambda n: [run(n // 2) for run in runs], warm_up=6
    )
    yield Work("as many on each, at once", pair, both, partial(at_once, runs), warm_up=6)


def overlap(setting: Setting) -> Iterator[Work]:
    """computing on a device and fetching the results, apart and overlapped"""
    where = setting.device
    size = setting.fitting(setting.sized(5000, floor=64), 20 * BYTES, power=2)
    times, moved, on_cpu, a = 10, size * size * BYTES, matrix(size, cpu()), matrix(size, where)
    yield Work(
        "computed on the CPU", (cpu(),), times, lambda n: [on_cpu @ on_cpu for _ in range(n)]
    )
    yield Work(f"computed on {named(where)}", (where,), times, lambda n: [a @ a for _ in range(n)])
    yield Work("results fetched", (where,), times, again(lambda: fetched(a)), moved)
    yield Work("computed, then fetched", (where,), times, partial(apart, a, where), moved)
    yield Work("computed and fetched, overlapped", (where,), times, partial(overlapped, a), moved)


def on(device: Device, run: Run, times: int) -> Any:
    with device:
        return run(times)


def at_once(runs: Sequence[Run], times: int) -> Any:
    with ThreadPoolExecutor(len(runs)) as threads:
        # a new thread has no chosen framework and no scope: it runs in a copy of the context
        begun = [threads.submit(copy_context().run, run, times // len(runs)) for run in runs]
        return [one.result() for one in begun]


def fetched(x: Any) -> Any:
    return to_device(x, cpu(), copy=True, non_blocking=True)


def apart(a: Any, device: Device, times: int) -> Any:
    results = [a @ a for _ in range(times)]
    synchronize(device)
    return [fetched(x) for x in results]


def overlapped(a: Any, times: int) -> Any:
    with ThreadPoolExecutor(1) as courier:
        begun = [courier.submit(copy_context().run, fetched, a @ a) for _ in range(times)]
        return [one.result() for one in begun]


_ALL: tuple[Experiment, ...] = (
    elementwise,
    large,
    tiny,
    log,
    transfer,
    copies,
    prefetch,
    parallel,
    overlap,
)
EXPERIMENTS = {experiment.__name__: experiment for experiment in _ALL}


def find(name: str) -> Experiment:
    """The experiment of that name; an error that lists them if there is none."""
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS, "xdevice bench --list says what they compare")
        raise ArgumentError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}; {hint}")
    return EXPERIMENTS[name]


def title(experiment: Experiment) -> str:
    """What an experiment compares, in a line."""
    return (experiment.__doc__ or experiment.__name__).splitlines()[0]


def rows(
    experiment: Experiment, where: Setting, before: Callable[[Work], object] = lambda work: None
) -> list[Row]:
    """The rows of the result; ``before`` is called with each piece of work before each of its turns."""
    return measured(list(experiment(where)), before)
