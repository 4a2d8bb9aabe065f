"""What it costs to send data to a device and back, and sending the next batches while this one is computed with."""

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from typing import Any

from xdevice import cpu, tensor, to_device, to_numpy
from xdevice import prefetch as ahead
from xdevice.device import Device
from xdevice.experiments.arithmetic import products
from xdevice.experiments.work import BYTES, Setting, Work, arrived, random

PIECES = 10_000


def transfer(setting: Setting) -> Iterator[Work]:
    """a @ b of 200 × 200: where are the operands?"""
    import numpy as np

    a, b = np.random.default_rng(0).random((2, 200, 200), dtype="float32")
    a /= 100  # its rows sum to about 1: products of products neither grow nor vanish
    times, where = setting.sized(PIECES), setting.device
    yield Work("in NumPy, on the CPU", (cpu(),), times, again(lambda: a @ b))
    yield Work("the operands stay on the device", (where,), times, products(sent(a, where), sent(b, where)))
    moved = 3 * a.size * BYTES
    yield Work("sent there and fetched each time", (where,), times, round_trips(a, b, where), moved)


def copies(setting: Setting) -> Iterator[Work]:
    """the same numbers copied at once, and in many small pieces"""
    import numpy as np

    pieces, where = setting.sized(PIECES), setting.device
    length = setting.fitting(10 * 1024, 4 * BYTES * pieces)
    whole = np.ones((pieces, length), dtype="float32")
    yield Work("at once, from the CPU to the CPU", (cpu(),), 3, again(lambda: sent(whole, cpu())))
    for label, send in (
        ("at once, to the device", lambda: sent(whole, where)),
        (f"in {pieces} pieces, to the device", lambda: [sent(piece, where) for piece in whole]),
    ):
        yield Work(label, (where,), 3, again(send), whole.size * BYTES)
    there = [sent(piece, where) for piece in whole]
    yield Work(
        f"in {pieces} pieces, back", (where,), 3, again(lambda: [to_numpy(x) for x in there]), whole.size * BYTES
    )


def sent(array: Any, device: Device) -> Any:
    return tensor(array, device=device)


def again(once: Callable[[], Any]) -> Callable[[int], Any]:
    """Do it that many times; only the last result is kept."""

    def run(times: int) -> Any:
        kept = None
        for _ in range(times):
            kept = once()
        return kept

    return run


def round_trips(a: Any, b: Any, device: Device) -> Callable[[int], Any]:
    there_and_back = again(lambda: to_numpy(sent(a, device) @ sent(b, device)))

    def run(times: int) -> Any:
        with device:
            return there_and_back(times)

    return run


BATCHES = 500
ROWS = 128  # of w: computing takes about as long as sending does by a bus
KEPT = 8  # batches, which are used in turn


def prefetch(setting: Setting) -> Iterator[Work]:
    """w of 128 × 1024 @ batch of 1024 × 1024: are the next batches sent meanwhile?"""
    n, times, where = setting.fitting(1024, 2 * KEPT * BYTES, power=2), setting.sized(BATCHES), setting.device
    batches = [random((n, n), cpu()) for _ in range(KEPT)]

    def sent(few: Iterable[Any]) -> Iterator[Any]:
        return (to_device(batch, where) for batch in few)

    def sent_ahead(few: Iterable[Any]) -> Iterator[Any]:
        return iter(ahead(few, where))

    yield Work("the batches and w on the CPU", (cpu(),), times, steps(batches, cpu(), iter))
    for label, way in (("each sent, then computed with", sent), ("the next two sent meanwhile", sent_ahead)):
        yield Work(label, (where,), times, steps(batches, where, way), n * n * BYTES)


def steps(batches: list[Any], device: Device, way: Callable[[Iterable[Any]], Iterator[Any]]) -> Callable[[int], Any]:
    """Half of ``w @ batch`` and half of what was there, so many times, each batch being got there in this way."""
    n = batches[0].shape[0]
    weights = random((ROWS, n), device, 1 / n)  # its rows sum to about 1: the state neither grows nor vanishes

    def run(times: int) -> Any:
        with device:
            state = random((ROWS, n), device)
            for batch in way(islice(cycle(batches), times)):
                state = (weights @ batch + state) / 2
            return arrived(state, device)

    return run
