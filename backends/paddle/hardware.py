"""The devices that PaddlePaddle sees."""

from __future__ import annotations

import platform
from threading import Lock
from typing import TYPE_CHECKING, Any

import paddle
from paddle import version
from paddle.base import core

from xdevice.device import Device
from xdevice.errors import DeviceTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xdevice.contract import Build, Properties


WORD = "vgpu"  # what PaddlePaddle calls a virtual GPU
_virtual = 0  # how many stand for the GPUs


def build() -> Build:
    compute, toolkit = "cpu", None
    if paddle.is_compiled_with_rocm():
        compute = "rocm"
    elif paddle.is_compiled_with_cuda():
        compute, toolkit = "cuda", str(version.cuda())
    elif paddle.is_compiled_with_xpu():
        compute = "xpu"
    return {"version": paddle.__version__, "compute": compute, "toolkit": toolkit}


def kinds() -> tuple[str, ...]:
    return "cpu", "gpu", *(kind for kind in core.get_all_custom_device_type() if kind != WORD)


def count(kind: str) -> int:
    if kind == "cpu":
        return 1
    if kind == "gpu":
        return _virtual or real_gpus()
    return 0 if kind == WORD else _custom(kind)


def real_gpus() -> int:
    try:
        return int((paddle.device.xpu if _xpu() else paddle.device.cuda).device_count())
    except (RuntimeError, OSError):  # a driver that is missing or too old; OSError is Paddle's for the GPU library's
        return 0


def plugged_in() -> int:
    """How many virtual GPUs PaddlePaddle was imported with."""
    return _custom(WORD)


def name_virtual(n: int) -> None:
    """From now on these are the GPUs."""
    global _virtual
    _virtual = n


def is_virtual() -> bool:
    """Whether GPUs are custom devices."""
    return _virtual > 0


def _custom(kind: str) -> int:
    try:
        if kind in core.get_all_custom_device_type():
            return int(core.get_custom_device_count(kind))
    except (RuntimeError, OSError):  # a plug-in may raise what it likes
        pass
    return 0


def native(device: Device) -> Any:
    if device.kind == "cpu":
        return core.CPUPlace()
    if device.kind == "gpu" and _virtual:
        return core.CustomPlace(WORD, device.index)
    if device.kind == "gpu":
        return core.XPUPlace(device.index) if _xpu() else core.CUDAPlace(device.index)
    return core.CustomPlace(device.kind, device.index)


def as_device(native: Any) -> Device:
    place = core.Place()  # only this class answers what it is under every 3.x
    place.set_place(native)
    found = device_at(place)
    if found is None:
        raise DeviceTypeError(f"{native!r} stands for no device; write paddle.CPUPlace() or paddle.CUDAPlace(0)")
    return found


def device_at(place: Any) -> Device | None:
    """The device of a ``core.Place``, asked of its own methods; ``None`` for one not set yet."""
    if place.is_cpu_place():
        return Device("cpu", 0)
    if place.is_gpu_place():
        return Device("gpu", place.gpu_device_id())
    if place.is_xpu_place():
        return Device("gpu", place.xpu_device_id())
    if place.is_custom_place():
        return Device(place.custom_device_type(), place.custom_device_id())
    if place.is_cuda_pinned_place():
        return Device("gpu_pinned", 0)
    return None


def spelling(device: Device) -> str:
    """The device as `paddle.set_device` wants it, which takes no ``cpu:0``."""
    if device.kind == "cpu":
        return "cpu"
    if device.kind == "gpu" and _virtual:
        return f"{WORD}:{device.index}"
    return f"xpu:{device.index}" if device.kind == "gpu" and _xpu() else str(device)


class scope:  # noqa: N801  (reads as a verb, as in the contract)
    """The whole process's default device, for a block.

    Threads may leave in another order than they came: whoever leaves early hands on what was before.
    """

    def __init__(self, device: Device) -> None:
        self.device = spelling(device)

    def __enter__(self) -> None:
        with _lock:
            self.before = paddle.device.get_device()
            paddle.device.set_device(self.device)
            _open.append(self)

    def __exit__(self, *error: object) -> None:
        with _lock:
            i = next(i for i, entered in enumerate(_open) if entered is self)
            del _open[i]
            if i < len(_open):
                _open[i].before = self.before
            else:
                paddle.device.set_device(self.before)


_lock = Lock()
_open: list[scope] = []


def synchronize(devices: Sequence[Device]) -> None:
    for device in devices:
        if device.kind != "cpu" and _in_use(device):  # a CPU computes at once, and Paddle raises for it
            paddle.device.synchronize(spelling(device))


def properties(device: Device) -> Properties:
    if device.kind == "gpu" and not _xpu():
        found = paddle.device.cuda.get_device_properties(device.index)
        return {
            "name": found.name,
            "total_memory": found.total_memory,
            "compute_capability": f"{found.major}.{found.minor}",
            "uuid": None,  # Paddle does not tell
            "virtual": False,
        }
    name = (platform.processor() or platform.machine()) if device.kind == "cpu" else device.kind
    return {"name": name, "total_memory": None, "compute_capability": None, "uuid": None, "virtual": False}


def _in_use(device: Device) -> bool:
    """Whether a GPU has ever held a tensor; waiting for one that has not would create a context."""
    if device.kind == "gpu" and _virtual:
        return False  # it computes at once
    if device.kind != "gpu" or _xpu():
        return True
    return bool(paddle.device.cuda.max_memory_allocated(device.index))


def _xpu() -> bool:
    """Whether this build's GPU is Baidu's Kunlun XPU; one build never has CUDA and XPU."""
    return bool(paddle.is_compiled_with_xpu())
