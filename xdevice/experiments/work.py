"""What an experiment is made of: a setting, and pieces of work that are timed in turn."""

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
from xdevice.hardware import devices as hardware
from xdevice.machine import host_memory

Row = dict[str, Any]  # one line of an experiment's result, as JSON can hold it
Run = Callable[[int], Any]

BYTES = 4  # of one number: all experiments compute in float32
SHARE = 4  # an experiment's tensors may take one part in this many of the free memory
LARGEST = 10.0  # scale
TURNS = 5  # how many turns a work's number of times is divided into
UNSTEADY = 2.0  # times of the same work that differ by more than this factor say nothing


@dataclass(frozen=True)
class Setting:
    """Where and how large: the device that is compared with the CPU, a second one if there is one."""

    device: Device
    second: Device | None
    scale: float
    memory: int | None  # free bytes of the scarcest memory that is used; None if unknown

    def sized(self, whole: int, floor: int = 1) -> int:
        return max(floor, round(whole * self.scale))

    def fitting(self, size: int, bytes_each: float, power: int = 1) -> int:
        """The size, or the largest that fits into memory where ``size ** power`` takes ``bytes_each`` times that."""
        if self.memory is None:
            return size
        return max(1, min(size, int((self.memory / SHARE / bytes_each) ** (1 / power))))

    def sides(self) -> tuple[tuple[str, Device], ...]:
        return ("on the CPU", cpu()), (f"on {named(self.device)}", self.device)

    def pair(self) -> tuple[Device, Device]:
        """The device and the second one; `NotSupportedError` if there is only one."""
        if self.second is None:
            cure = "XDEVICE_VIRTUAL_GPUS=2 gives two virtual GPUs to frameworks that can have them"
            raise NotSupportedError(f"{backend()} has no second {self.device.kind} here; {cure}")
        return self.device, self.second


@dataclass
class Work:
    """One line of a table: ``run(times)``, in the first device's scope, does the work and returns what to wait for."""

    label: str
    devices: tuple[Device, ...]
    times: int
    run: Run
    moved: int = 0  # bytes, each time
    warm_up: int = 3  # times before the clock starts: loading and compiling is not measured

    @property
    def share(self) -> int:
        """How many times in each turn: all turns together do the work's number, or nearly."""
        return max(1, round(self.times / TURNS))


def setting(device: Device | str | None = None, scale: float = 0.1) -> Setting:
    """The device asked for, or the first GPU, or the CPU; beside it the next GPU."""
    if not 0 < scale <= LARGEST:
        raise ArgumentError(
            f"a scale of {scale!r} is not between 0 and {LARGEST:g}; 1 is the lesson's own size"
        )
    first = as_device(device) if device is not None else try_gpu()
    properties(first)  # raises if it is not there
    alike = [] if first.kind == "cpu" else hardware.devices(first.kind)
    second = alike[(first.index + 1) % len(alike)] if len(alike) > 1 else None
    used = (first, second) if second else (first,)
    known = [host_memory()[1], *(memory_stats(device).get("free") for device in used)]
    return Setting(
        first, second, scale, min((free for free in known if free is not None), default=None)
    )


def measured(
    works: Sequence[Work], before: Callable[[Work], object] = lambda work: None
) -> list[Row]:
    """The rows of an experiment: each work has several turns, in which all take their part one after the other.

    So a machine that is busy for a while slows all of them, and not one. A row has the median of its turns, and
    the quartiles: a single turn that was disturbed does not count.
    """
    found: list[list[float]] = [[] for _ in works]
    for turn in range(TURNS):
        for work, each in zip(works, found, strict=True):
            if turn < work.times:
                before(work)
                each.append(_seconds(work, work.warm_up if turn == 0 else 0))
    return [
        _row(work, each, quartiles(found[0])[1]) for work, each in zip(works, found, strict=True)
    ]


def _seconds(work: Work, warm_up: int) -> float:
    with work.devices[0]:
        if warm_up:
            _ = work.run(warm_up)
        timer = Timer()
        kept = work.run(work.share)
        seconds = max(timer.stop(), 1e-9)  # no clock is finer
    del (
        kept
    )  # held until the clock is read: a framework may not wait for a result that is already freed
    return seconds / work.share


def _row(work: Work, each: Sequence[float], reference: float) -> Row:
    times = work.share * len(each)
    low, middle, high = quartiles(each)
    return {
        "label": work.label,
        "devices": [str(device) for device in work.devices],  # where it is computed
        "times": times,
        "turns": len(each),  # in which they were done, in turn with the experiment's other work
        "seconds": sum(each) * work.share,  # for all of them
        "seconds_each": middle,  # the median of the turns; half of them are between the quartiles
        "seconds_low": low,
        "seconds_high": high,
        "ratio_to_cpu": reference / middle,  # above 1 is faster than the CPU
        "bytes_moved": work.moved * times,  # between the host's arrays or the CPU and the device
    }


def quartiles(each: Sequence[float]) -> tuple[float, float, float]:
    """The first quartile, the median and the third quartile; of one time, itself three times."""
    low, middle, high = quantiles(
        [*each, *each] if len(each) == 1 else each, n=4, method="inclusive"
    )
    return low, middle, high


def too_busy(found: Iterable[Row]) -> str | None:
    """Why the times of an experiment say nothing, if the machine was too busy; else ``None``."""
    factor, label = max((row["seconds_high"] / row["seconds_low"], row["label"]) for row in found)
    if factor <= UNSTEADY:
        return None
    why = f"those of {label!r} differ by a factor of {factor:.1f}; close other programs, or give a larger --scale"
    return f"the machine is too busy for these times to say anything: {why}"


def random(shape: tuple[int, ...], device: Device, mean: float = 0.5) -> Any:
    """Numbers between 0 and twice the mean, in float32."""
    with device:  # one framework computes in the scope, and the others where the operands are
        return rand(shape, dtype="float32", device=device) * (2 * mean)


def arrived(tensor: Any, device: Device) -> Any:
    """The tensor, checked to be on the device that the timing is reported for."""
    found = device_of(tensor)
    if found != device:
        where = f"the result is on {found} although its operands are on {device}"
        raise MisplacedError(f"{where}; the time would be that of another device")
    return tensor


def named(device: Device) -> str:
    """The device for a label: ``virtual gpu:0``, where it is that."""
    return f"virtual {device}" if properties(device)["virtual"] else str(device)
