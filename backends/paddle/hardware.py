"""The devices that PaddlePaddle sees."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import paddle
from paddle import version
from paddle.base import core

from xdevice.backends.paddle.private_names import names
from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import DeviceTypeError
from xdevice.kit.places import ReplacedGpus

WORD = "vgpu"  # the device type of virtual GPUs
replaced_gpus = ReplacedGpus()
_custom_kinds: Any = names.optional("paddle.base.core:get_all_custom_device_type", otherwise=list)
_count_custom: Any = names.value("paddle.base.core:get_custom_device_count")
_lock, _open = Lock(), list[dict[str, str]]()  # the blocks of `scope` that are open


def build() -> Build:
    words = (
        word for word in ("rocm", "cuda", "xpu") if getattr(paddle, f"is_compiled_with_{word}")()
    )
    compute = next(words, "cpu")
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
    return _counted(
        (paddle.device.xpu if paddle.is_compiled_with_xpu() else paddle.device.cuda).device_count
    )


def plugged_in(word: str) -> int:
    """The number of devices from a plug-in; virtual GPUs are such, with which PaddlePaddle was imported."""
    known = word in _custom_kinds()
    return _counted(lambda: _count_custom(word)) if known else 0


def _counted(count: Callable[[], int]) -> int:
    try:
        return int(count())
    except (
        RuntimeError,
        OSError,
    ):  # a missing or old driver; Paddle raises OSError for errors of the GPU library
        return 0


def native(device: Device) -> Any:
    if device.kind == "cpu":
        return core.CPUPlace()
    if device.kind != "gpu":
        return core.CustomPlace(device.kind, device.index)
    if replaced_gpus.number and not replaced_gpus.under_own_names:
        return core.CustomPlace(WORD, device.index)
    return (
        core.XPUPlace(device.index)
        if paddle.is_compiled_with_xpu()
        else core.CUDAPlace(device.index)
    )


def as_device(native: Any) -> Device:
    place = core.Place()  # only this class can be queried in every 3.x
    place.set_place(native)
    found = device_at(place)
    if found is None:
        raise DeviceTypeError(
            f"{native!r} is not a device; write paddle.CPUPlace() or paddle.CUDAPlace(0)"
        )
    return found


def device_at(place: Any) -> Device | None:
    """The device of a ``core.Place``; ``None`` if it is not set."""
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
    if device.kind == "gpu" and replaced_gpus.number and not replaced_gpus.under_own_names:
        return f"{WORD}:{device.index}"
    return (
        f"xpu:{device.index}"
        if device.kind == "gpu" and paddle.is_compiled_with_xpu()
        else str(device)
    )


@contextmanager
def scope(device: Device) -> Generator[None]:
    """Sets the default device of the whole process for a block; threads may leave their blocks in any order."""
    with _lock:
        block = {"before": paddle.device.get_device()}
        paddle.device.set_device(spelling(device))
        _open.append(block)
    try:
        yield
    finally:
        with _lock:
            i = next(i for i, each in enumerate(_open) if each is block)
            del _open[i]
            if i < len(_open):
                _open[i].update(block)  # the next open block is to restore what was before this one
            else:
                paddle.device.set_device(block["before"])


def synchronize(devices: Sequence[Device]) -> None:
    for device in devices:
        is_gpu = device.kind == "gpu"
        if device.kind == "cpu" or (is_gpu and replaced_gpus.number):
            continue  # they are synchronous, and Paddle raises for the CPU
        # waiting for a GPU that has held no tensor would create a context
        if (
            not is_gpu
            or paddle.is_compiled_with_xpu()
            or paddle.device.cuda.max_memory_allocated(device.index)
        ):
            paddle.device.synchronize(spelling(device))


def properties(device: Device) -> dict[str, Any]:
    if device.kind == "gpu" and not paddle.is_compiled_with_xpu():
        found = paddle.device.cuda.get_device_properties(device.index)
        capability = f"{found.major}.{found.minor}"
        return {
            "name": found.name,
            "total_memory": found.total_memory,
            "compute_capability": capability,
        }
    return {} if device.kind == "cpu" else {"name": device.kind}
