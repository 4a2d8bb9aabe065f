"""The devices that PaddlePaddle sees."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeAlias

import paddle
from paddle import version
from paddle.base import core

from xdevice.backends.kit.places import ReplacedGpus
from xdevice.backends.paddle.private_names import names
from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import DeviceTypeError

NativePlace: TypeAlias = Any

WORD = "vgpu"  # the device type of virtual GPUs
replaced_gpus = ReplacedGpus()
_custom_kinds: Any = names.optional("paddle.base.core:get_all_custom_device_type", otherwise=list)
_count_custom: Any = names.value("paddle.base.core:get_custom_device_count")


class _Scope:
    """An open block of `scope`."""

    def __init__(self, previous: str) -> None:
        self.previous = previous  # the default device to set when the block ends


_lock = Lock()
_open_scopes: list[_Scope] = []


def build() -> Build:
    platforms = ("rocm", "cuda", "xpu")
    compiled = (name for name in platforms if getattr(paddle, f"is_compiled_with_{name}")())
    compute = next(compiled, "cpu")
    toolkit = str(version.cuda()) if compute == "cuda" else None
    return {"version": paddle.__version__, "compute": compute, "toolkit": toolkit}


def kinds() -> tuple[str, ...]:
    return "cpu", "gpu", *(kind for kind in _custom_kinds() if kind != WORD)


def count(kind: str) -> int:
    if kind == "cpu":
        return 1
    if kind == "gpu":
        return replaced_gpus.number or real_gpus()
    return 0 if kind == WORD else plugged_in(kind)


def real_gpus() -> int:
    # no build has both CUDA and Kunlun's XPU
    if paddle.is_compiled_with_xpu():
        return _call_or_zero(paddle.device.xpu.device_count)
    return _call_or_zero(paddle.device.cuda.device_count)


def plugged_in(word: str) -> int:
    """The number of devices of a plug-in.

    Virtual GPUs are a plug-in that PaddlePaddle loads when it is imported.
    """
    if word not in _custom_kinds():
        return 0
    return _call_or_zero(lambda: _count_custom(word))


def _call_or_zero(count: Callable[[], int]) -> int:
    # the errors of a missing or old driver; Paddle raises OSError for errors of the GPU library
    try:
        return int(count())
    except (RuntimeError, OSError):
        return 0


@replaced_gpus.cached
def native(device: Device) -> NativePlace:
    if device.kind == "cpu":
        return core.CPUPlace()
    if device.kind != "gpu":
        return core.CustomPlace(device.kind, device.index)
    if replaced_gpus.number and not replaced_gpus.under_own_names:
        return core.CustomPlace(WORD, device.index)
    if paddle.is_compiled_with_xpu():
        return core.XPUPlace(device.index)
    return core.CUDAPlace(device.index)


def as_device(native: NativePlace) -> Device:
    place = core.Place()  # the only class with methods to query it in every 3.x
    place.set_place(native)
    device = device_at(place)
    if device is None:
        raise DeviceTypeError(
            f"{native!r} is not a device; write paddle.CPUPlace() or paddle.CUDAPlace(0)"
        )
    return device


def device_at(place: NativePlace) -> Device | None:
    """The device of a ``core.Place``; ``None`` if the place has no value."""
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
    """The device as a string for `paddle.set_device`, which does not accept ``cpu:0``."""
    if device.kind == "cpu":
        return "cpu"
    if device.kind != "gpu":
        return str(device)
    if replaced_gpus.number and not replaced_gpus.under_own_names:
        return f"{WORD}:{device.index}"
    return f"xpu:{device.index}" if paddle.is_compiled_with_xpu() else str(device)


@contextmanager
def scope(device: Device) -> Generator[None]:
    """A block in which the device is the default of the whole process.

    Threads may leave their blocks in any order.
    """
    with _lock:
        block = _Scope(previous=paddle.device.get_device())
        paddle.device.set_device(spelling(device))
        _open_scopes.append(block)
    try:
        yield
    finally:
        with _lock:
            _close(block)


def _close(block: _Scope) -> None:
    index = _open_scopes.index(block)
    del _open_scopes[index]
    if index == len(_open_scopes):
        paddle.device.set_device(block.previous)
    else:
        # the next block was opened later; it restores the device from before this one
        _open_scopes[index].previous = block.previous


def synchronize(devices: Sequence[Device]) -> None:
    for device in devices:
        is_virtual = device.kind == "gpu" and replaced_gpus.number
        # the CPU and virtual GPUs are synchronous, and Paddle raises an error for the CPU
        if device.kind != "cpu" and not is_virtual and _may_have_work(device):
            paddle.device.synchronize(spelling(device))


def _may_have_work(device: Device) -> bool:
    """Whether to wait for the device; for a CUDA GPU without tensors, this would create a context."""
    if device.kind != "gpu" or paddle.is_compiled_with_xpu():
        return True
    return bool(paddle.device.cuda.max_memory_allocated(device.index))


def properties(device: Device) -> dict[str, Any]:
    if device.kind == "cpu":
        return {}
    if device.kind != "gpu" or paddle.is_compiled_with_xpu():
        return {"name": device.kind}
    native_properties = paddle.device.cuda.get_device_properties(device.index)
    return {
        "name": native_properties.name,
        "total_memory": native_properties.total_memory,
        "compute_capability": f"{native_properties.major}.{native_properties.minor}",
    }
