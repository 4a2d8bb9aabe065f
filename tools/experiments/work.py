"""The parts of an experiment: a setting, and works timed in turn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from xdevice import (
    Timer,
    as_device,
    backend,
    cpu,
    device_of,
    memory_stats,
    properties,
    rand,
    try_gpu,
)
from xdevice.device import Device
from xdevice.errors import ArgumentError, MisplacedError, NotSupportedError
from xdevice.hardware import questions as hardware
from xdevice.machine import host_memory

Row = dict[str, Any]  # one line of an experiment's result, as JSON can hold it
Run = Callable[[int], Any]

BYTES = 4  # of one number: all experiments compute in float32
SHARE = 4  # an experiment's tensors take at most 1/SHARE of the free memory
LARGEST = 10.0  # the largest scale
TURNS = 5  # the repetitions of a work are divided into so many turns
UNSTEADY = 2.0  # quartiles of a work's times that differ by a larger factor are unusable


@dataclass(frozen=True)
class Setting:
    """The devices, the scale and the memory.

    The first device is compared with the CPU.
    """

    device: Device
    second: Device | None
    scale: float
    memory: int | None  # free bytes of the scarcest memory that is used; None if unknown

    def sized(self, full_size: int, floor: int = 1) -> int:
        return max(floor, round(full_size * self.scale))

    def fitting(self, size: int, bytes_each: float, power: int = 1) -> int:
        """The size, or the largest that fits into memory.

        A size takes ``bytes_each * size ** power`` bytes.
        """
        if self.memory is None:
            return size
        return max(1, min(size, int((self.memory / SHARE / bytes_each) ** (1 / power))))

    def sides(self) -> tuple[tuple[str, Device], ...]:
        return ("on the CPU", cpu()), (f"on {named(self.device)}", self.device)

    def pair(self) -> tuple[Device, Device]:
        """The device and the second one.

        `NotSupportedError` if there is only one.
        """
        if self.second is None:
            raise NotSupportedError(
                f"{backend()} has no second {self.device.kind} here; "
                "XDEVICE_VIRTUAL_GPUS=2 gives two virtual GPUs to frameworks that can have them"
            )
        return self.device, self.second


@dataclass
class Work:
    """One line of a table.

    ``run(times)`` does the work, in the first device's scope.

    The timer waits for the result of ``run``.
    """

    label: str
    devices: tuple[Device, ...]
    times: int
    run: Run
    moved: int = 0  # bytes, each time
    warm_up: int = 3  # times before the clock starts: loading and compiling is not measured

    @property
    def share(self) -> int:
        """The repetitions in each turn.

        All turns together do about as many as ``times``.
        """
        return max(1, round(self.times / TURNS))


def setting(device: Device | str | None = None, scale: float = 0.1) -> Setting:
    """The device asked for, or the first GPU, or the CPU.

    Beside it the next GPU.
    """
    if not 0 < scale <= LARGEST:
        raise ArgumentError(
            f"a scale of {scale!r} is not between 0 and {LARGEST:g}; 1 is the lesson's own size"
        )
    first = as_device(device) if device is not None else try_gpu()
    properties(first)  # raises if the device does not exist
    second = _next_of_kind(first)
    free_memory = [host_memory()[1], memory_stats(first).get("free")]
    if second is not None:
        free_memory.append(memory_stats(second).get("free"))
    scarcest = min((free for free in free_memory if free is not None), default=None)
    return Setting(first, second, scale, scarcest)


def _next_of_kind(device: Device) -> Device | None:
    """The next device of the same kind, the first after the last.

    ``None`` for a CPU.
    """
    if device.kind == "cpu":
        return None
    devices = hardware.devices(device.kind)
    return devices[(device.index + 1) % len(devices)] if len(devices) > 1 else None


def measured(
    works: Sequence[Work], before_turn: Callable[[Work], object] = lambda work: None
) -> list[Row]:
    """The rows of an experiment.

    All works are timed one after the other, in several turns.

    If the machine is busy for a while, all works get slower, and not one
    alone. A row has the median and the quartiles of its turns, so a single
    disturbed turn does not count.
    """
    times_of_works: list[list[float]] = [[] for _ in works]
    for turn in range(TURNS):
        for work, times in zip(works, times_of_works, strict=True):
            if turn < work.times:
                before_turn(work)
                times.append(_seconds(work, work.warm_up if turn == 0 else 0))
    _, reference, _ = quartiles(times_of_works[0])
    return [_row(work, times, reference) for work, times in zip(works, times_of_works, strict=True)]


def _seconds(work: Work, warm_up: int) -> float:
    with work.devices[0]:
        if warm_up:
            _ = work.run(warm_up)
        timer = Timer()
        # Keep the result until the clock is read: a framework may not wait for
        # one that is freed.
        result = work.run(work.share)
        seconds = max(timer.stop(), 1e-9)  # no clock is finer
        del result
    return seconds / work.share


def _row(work: Work, seconds: Sequence[float], reference: float) -> Row:
    times = work.share * len(seconds)
    low, middle, high = quartiles(seconds)
    return {
        "label": work.label,
        "devices": [str(device) for device in work.devices],  # that compute it
        "times": times,
        "turns": len(seconds),
        "seconds": sum(seconds) * work.share,  # for all times
        "seconds_each": middle,  # the median of the turns; half of them are between the quartiles
        "seconds_low": low,
        "seconds_high": high,
        "ratio_to_cpu": reference / middle,  # above 1 is faster than the CPU
        "bytes_moved": work.moved * times,  # between the host's arrays or the CPU and the device
    }


def quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    """The first quartile, the median and the third quartile.

    Of a single time, itself.
    """
    if len(times) == 1:
        return times[0], times[0], times[0]
    low, middle, high = quantiles(times, n=4, method="inclusive")
    return low, middle, high


def too_busy(rows: Iterable[Row]) -> str | None:
    """Why the times of an experiment are unusable, or ``None``.

    They are unusable if the machine was too busy.
    """
    factor, label = max((row["seconds_high"] / row["seconds_low"], row["label"]) for row in rows)
    if factor <= UNSTEADY:
        return None
    return (
        "the machine is too busy for these times to say anything: "
        f"those of {label!r} differ by a factor of {factor:.1f}; "
        "close other programs, or give a larger --scale"
    )


def random(shape: tuple[int, ...], device: Device, mean: float = 0.5) -> Any:
    """Numbers between 0 and twice the mean, in float32."""
    with device:  # one framework computes in the scope, and the others where the operands are
        return rand(shape, dtype="float32", device=device) * (2 * mean)


def arrived(tensor: Any, device: Device) -> Any:
    """The tensor, which must be on the device that is timed."""
    actual = device_of(tensor)
    if actual != device:
        raise MisplacedError(
            f"the result is on {actual} although its operands are on {device}; "
            "the time would be that of another device"
        )
    return tensor


def named(device: Device) -> str:
    """The device's name in a label: ``gpu:0``, ``virtual gpu:0``."""
    return f"virtual {device}" if properties(device)["virtual"] else str(device)
