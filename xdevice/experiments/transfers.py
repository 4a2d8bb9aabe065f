"""What it costs to send data to a device and back."""

from collections.abc import Callable, Iterator
from typing import Any

from xdevice import cpu, tensor, to_numpy
from xdevice.device import Device
from xdevice.experiments.arithmetic import products
from xdevice.experiments.work import BYTES, Setting, Work

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
