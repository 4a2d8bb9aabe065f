"""The lessons' experiments.

Each timed computation depends on the previous one, so that waiting for the
last waits for all.

A framework that queues its work needs one thread only. A framework that
computes at once, as most do on a CPU, blocks its caller. Therefore devices or
copies that work at the same time have a thread each.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import cycle, islice
from typing import Any, TypeAlias

from xdevice import cpu, device_of, namespace, ones, synchronize, tensor, to_device, to_numpy
from xdevice import prefetch as batches_ahead
from xdevice.device import Device
from xdevice.errors import ArgumentError, did_you_mean
from xdevice.tools.experiments.work import (
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

Experiment: TypeAlias = Callable[[Setting], Iterator[Work]]
Tensor: TypeAlias = Any
Norm: TypeAlias = Callable[[Tensor], Tensor]
Transfer: TypeAlias = Callable[[Iterable[Tensor]], Iterator[Tensor]]
"""A way in which batches come to the device, one after the other."""


def elementwise(setting: Setting) -> Iterator[Work]:
    """result += a * b on large tensors"""
    tensors = 4  # a, b, their product and the result
    depth = setting.fitting(setting.sized(100), tensors * BYTES * 10**6)
    shape = (depth, 1000, 1000)
    times = setting.sized(1000)
    for name, device in setting.sides():
        result, a, b = (random(shape, device) for _ in range(3))
        run = partial(accumulation, result, a, b)
        yield Work(f"{depth} × 1000 × 1000 {name}", (device,), times, run)


def large(setting: Setting) -> Iterator[Work]:
    """a @ b of large matrices"""
    size = setting.fitting(setting.sized(10_000), 4 * BYTES, power=2)
    for name, device in setting.sides():
        yield Work(f"{size} × {size} {name}", (device,), 10, powers(matrix(size, device)))


def tiny(setting: Setting) -> Iterator[Work]:
    """a @ b of tiny matrices"""
    times = setting.sized(10_000)
    for name, device in setting.sides():
        yield Work(f"10 × 10 {name}", (device,), times, powers(matrix(10, device)))


def log(setting: Setting) -> Iterator[Work]:
    """the norms of products of 100 × 100 matrices, logged"""
    times = setting.sized(1000)
    for name, device in setting.sides():
        a = matrix(100, device)
        norm = norm_on(device)
        yield Work(
            f"fetched one by one {name}",
            (device,),
            times,
            partial(norms_one_by_one, a, norm),
            moved=BYTES,
            warm_up=times,
        )
        yield Work(
            f"kept there and fetched together {name}",
            (device,),
            times,
            partial(norms_together, a, norm),
            moved=BYTES,
            warm_up=times,
        )


def matrix(size: int, device: Device) -> Tensor:
    """A random matrix whose rows sum to about 1.

    Its powers neither grow nor vanish.
    """
    return random((size, size), device, mean=1 / size)


def accumulation(result: Tensor, a: Tensor, b: Tensor, times: int) -> Tensor:
    device = device_of(result)
    for _ in range(times):
        result += a * b
    return arrived(result, device)


def powers(a: Tensor) -> Run:
    """Compute a @ a, a @ a @ a and so on."""
    return partial(products, a, a)


def products(a: Tensor, b: Tensor, times: int) -> Tensor:
    """a @ b, a @ a @ b and so on.

    Each product needs the previous one, so that none is left out, and the last
    one ends last.
    """
    device = device_of(a)
    for _ in range(times):
        b = a @ b
    return arrived(b, device)


def repeated(function: Callable[[], Any]) -> Run:
    """Call the function that many times; only the last result is kept."""
    return lambda times: deque((function() for _ in range(times)), maxlen=1)


def norms_one_by_one(a: Tensor, norm: Norm, times: int) -> list[float]:
    return [to_numpy(norm(a @ a)).item() for _ in range(times)]


def norms_together(a: Tensor, norm: Norm, times: int) -> list[float]:
    norms = namespace(a).stack([norm(a @ a) for _ in range(times)])
    numbers: list[float] = to_numpy(norms).ravel().tolist()
    return numbers


def norm_on(device: Device) -> Norm:
    """The norm of a 100 × 100 matrix, as a 1 × 1 matrix.

    It is computed with operators alone, because all frameworks have them.
    """
    left = ones((1, 100), device=device)
    right = ones((100, 1), device=device)
    return lambda x: (left @ (x * x) @ right) ** 0.5


PIECES = 10_000


def transfer(setting: Setting) -> Iterator[Work]:
    """a @ b of 200 × 200: where are the operands?"""
    import numpy as np

    a, b = np.random.default_rng(0).random((2, 200, 200), dtype="float32")
    a /= 100  # its rows sum to about 1: products of products neither grow nor vanish
    times = setting.sized(PIECES)
    device = setting.device
    yield Work("in NumPy, on the CPU", (cpu(),), times, repeated(lambda: a @ b))
    on_device = partial(products, tensor(a, device=device), tensor(b, device=device))
    yield Work("the operands stay on the device", (device,), times, on_device)
    there_and_back = repeated(lambda: to_numpy(tensor(a, device=device) @ tensor(b, device=device)))
    moved = 3 * a.size * BYTES  # a, b and their product
    yield Work("sent there and fetched each time", (device,), times, there_and_back, moved)


def copies(setting: Setting) -> Iterator[Work]:
    """the same numbers copied at once, and in many small pieces"""
    import numpy as np

    device = setting.device
    pieces = setting.sized(PIECES)
    length = setting.fitting(10 * 1024, 4 * BYTES * pieces)
    array = np.ones((pieces, length), dtype="float32")
    moved = array.size * BYTES
    to_cpu = repeated(lambda: tensor(array, device=cpu()))
    to_the_device = repeated(lambda: tensor(array, device=device))
    in_pieces = repeated(lambda: [tensor(piece, device=device) for piece in array])
    yield Work("at once, from the CPU to the CPU", (cpu(),), 3, to_cpu)
    yield Work("at once, to the device", (device,), 3, to_the_device, moved)
    yield Work(f"in {pieces} pieces, to the device", (device,), 3, in_pieces, moved)
    tensors = [tensor(piece, device=device) for piece in array]
    back = repeated(lambda: [to_numpy(x) for x in tensors])
    yield Work(f"in {pieces} pieces, back", (device,), 3, back, moved)


ROWS = 128  # of w: computing takes about as long as sending does by a bus
BATCHES = 8  # different ones, which are used in turn


def prefetch(setting: Setting) -> Iterator[Work]:
    """w of 128 × 1024 @ batch of 1024 × 1024: are the next batches sent meanwhile?"""
    n = setting.fitting(1024, 2 * BATCHES * BYTES, power=2)
    times = setting.sized(500)
    device = setting.device
    batches = [random((n, n), cpu()) for _ in range(BATCHES)]

    def one_by_one(batches: Iterable[Tensor]) -> Iterator[Tensor]:
        return (to_device(batch, device) for batch in batches)

    def ahead(batches: Iterable[Tensor]) -> Iterator[Tensor]:
        return iter(batches_ahead(batches, device))

    # w's rows sum to about 1: the state neither grows nor vanishes
    w_on_cpu = random((ROWS, n), cpu(), 1 / n)
    w = random((ROWS, n), device, 1 / n)
    moved = n * n * BYTES
    on_cpu = partial(steps, w_on_cpu, batches, iter)
    yield Work("the batches and w on the CPU", (cpu(),), times, on_cpu)
    send_each = partial(steps, w, batches, one_by_one)
    yield Work("each sent, then computed with", (device,), times, send_each, moved)
    send_ahead = partial(steps, w, batches, ahead)
    yield Work("the next two sent meanwhile", (device,), times, send_ahead, moved)


def steps(w: Tensor, batches: list[Tensor], transfer: Transfer, times: int) -> Tensor:
    """Repeat: the mean of ``w @ batch`` and the state; the next batch."""
    device = device_of(w)
    state = random(tuple(w.shape), device)
    for batch in transfer(islice(cycle(batches), times)):
        state = (w @ batch + state) / 2
    return arrived(state, device)


def parallel(setting: Setting) -> Iterator[Work]:
    """products of 100 × 100 matrices on two devices, in turn and at once"""
    pair = setting.pair()
    times = setting.sized(20_000)
    yield Work("on the CPU", (cpu(),), times, powers(matrix(100, cpu())))
    runs = [partial(on, device, powers(matrix(100, device))) for device in pair]
    for device, run in zip(pair, runs, strict=True):
        yield Work(f"on {named(device)}", (device,), times, run)
    times_on_both = len(pair) * times
    yield Work("as many on each, in turn", pair, times_on_both, partial(in_turn, runs), warm_up=6)
    yield Work("as many on each, at once", pair, times_on_both, partial(at_once, runs), warm_up=6)


def overlap(setting: Setting) -> Iterator[Work]:
    """computing on a device and fetching the results, apart and overlapped"""
    device = setting.device
    size = setting.fitting(setting.sized(5000, floor=64), 20 * BYTES, power=2)
    times = 10
    moved = size * size * BYTES
    on_cpu = matrix(size, cpu())
    a = matrix(size, device)
    yield Work("computed on the CPU", (cpu(),), times, partial(squares, on_cpu))
    yield Work(f"computed on {named(device)}", (device,), times, partial(squares, a))
    yield Work("results fetched", (device,), times, repeated(lambda: fetched(a)), moved)
    yield Work("computed, then fetched", (device,), times, partial(apart, a), moved)
    yield Work("computed and fetched, overlapped", (device,), times, partial(overlapped, a), moved)


def on(device: Device, run: Run, times: int) -> Any:
    with device:
        return run(times)


def in_turn(runs: Sequence[Run], times: int) -> list[Any]:
    return [run(times // len(runs)) for run in runs]


def at_once(runs: Sequence[Run], times: int) -> list[Any]:
    with ThreadPoolExecutor(len(runs)) as threads:
        # a new thread has no chosen framework and no scope: it runs in a copy
        # of the context
        futures = [threads.submit(copy_context().run, run, times // len(runs)) for run in runs]
        return [future.result() for future in futures]


def squares(a: Tensor, times: int) -> list[Tensor]:
    return [a @ a for _ in range(times)]


def fetched(x: Tensor) -> Tensor:
    return to_device(x, cpu(), copy=True, non_blocking=True)


def apart(a: Tensor, times: int) -> list[Tensor]:
    results = squares(a, times)
    synchronize(device_of(a))
    return [fetched(x) for x in results]


def overlapped(a: Tensor, times: int) -> list[Tensor]:
    with ThreadPoolExecutor(1) as copier:
        futures = [copier.submit(copy_context().run, fetched, a @ a) for _ in range(times)]
        return [future.result() for future in futures]


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
    """The experiment of that name.

    `ArgumentError` lists them if there is none.
    """
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS, "xdevice bench --list says what they compare")
        raise ArgumentError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}; {hint}")
    return EXPERIMENTS[name]


def title(experiment: Experiment) -> str:
    """What an experiment compares, in one line."""
    return (experiment.__doc__ or experiment.__name__).splitlines()[0]


def rows(
    experiment: Experiment,
    setting: Setting,
    before_turn: Callable[[Work], object] = lambda work: None,
) -> list[Row]:
    """The rows of the result.

    ``before_turn`` is called with each work before each of its turns.
    """
    return measured(list(experiment(setting)), before_turn)
