"""Sending the next batches while this one is computed with."""

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from typing import Any

from xdevice import cpu, to_device
from xdevice import prefetch as ahead
from xdevice.device import Device
from xdevice.experiments.work import BYTES, Setting, Work, arrived, random

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

    yield Work("the batches and w on the CPU", (cpu(),), times, products(batches, cpu(), iter))
    for label, way in (("each sent, then computed with", sent), ("the next two sent meanwhile", sent_ahead)):
        yield Work(label, (where,), times, products(batches, where, way), n * n * BYTES)


def products(batches: list[Any], device: Device, way: Callable[[Iterable[Any]], Iterator[Any]]) -> Callable[[int], Any]:
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
