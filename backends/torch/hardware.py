"""The devices that PyTorch sees."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import NotSupportedError
from xdevice.tracing import constant

_cuda: str | None = getattr(
    torch.version, "cuda", None
)  # the build's; virtual GPUs that stand in have a version too
_replacement: tuple[str, int] = "", 0  # see `replace_gpus`


def replace_gpus(kind: str, number: int) -> None:
    """Let so many devices of that device type take the place of the GPUs."""
    global _replacement
    _replacement = kind, number


def are_replaced() -> bool:
    """Whether other devices have taken the place of the GPUs."""
    return bool(_replacement[1])


def is_hidden(kind: str) -> bool:
    """Whether GPUs of that device type are real ones, whose place other devices have taken."""
    return are_replaced() and kind in ("cuda", "xpu", "mps") and kind != _replacement[0]


def build() -> Build:
    built = {"rocm": torch.version.hip, "cuda": _cuda, "mps": torch.backends.mps.is_built()}
    built["xpu"] = getattr(torch.version, "xpu", None)
    compute = next((word for word, toolkit in built.items() if toolkit), "cpu")
    return {"version": torch.__version__, "compute": compute, "toolkit": torch.version.hip or _cuda}


def kinds() -> tuple[str, ...]:
    return "cpu", "gpu"


def count(kind: str) -> int:
    return gpus()[1] if kind == "gpu" else int(kind == "cpu")


def native(device: Device) -> torch.device:
    if device.kind == "cpu":
        return torch.device("cpu")
    return torch.device(gpus()[0] if device.kind == "gpu" else device.kind, device.index)


def as_device(native: torch.device) -> Device:
    if native.type == "cpu":
        return Device("cpu", 0)  # torch accepts cpu:1 and means the CPU
    index = _current(native.type) if native.index is None else native.index
    return Device("gpu" if native.type == _replacement[0] else native.type, index)


def scope(device: Device) -> AbstractContextManager[Any]:
    return native(device)  # a new object each time; a context manager since 2.0


def synchronize(devices: Sequence[Device]) -> None:
    kind, seen = gpus()
    if not seen or not _in_use(kind):
        return  # the CPU is synchronous; an unused GPU has nothing queued
    for device in devices:
        if device.kind != "cpu":
            getattr(torch, kind).synchronize(*(() if kind == "mps" else (device.index,)))


def properties(device: Device) -> dict[str, object]:
    kind = gpus()[0]
    if device.kind == "cpu" or kind == "mps":
        return {}
    found = runtime(kind, device).get_device_properties(device.index)
    capability = f"{found.major}.{found.minor}" if hasattr(found, "major") else None
    uuid = str(found.uuid) if hasattr(found, "uuid") else None
    return {
        "name": found.name,
        "total_memory": found.total_memory,
        "compute_capability": capability,
        "uuid": uuid,
    }


def gpus() -> tuple[str, int]:
    """The framework's name for its GPUs, and their number; asks NVML, so it creates no context."""
    return _replacement if _replacement[1] and _replacement[0] != "cuda" else _real_gpus()


@constant  # torch.compile cannot trace the questions
def _real_gpus() -> tuple[str, int]:
    seen = torch.cuda.device_count()
    if not seen and torch.backends.mps.is_available():
        return "mps", 1
    others = torch.xpu.device_count() if not seen and hasattr(torch, "xpu") else 0
    return ("xpu", others) if others else ("cuda", seen)


def runtime(kind: str, device: Device) -> Any:
    """``torch.cuda``, or the module of that kind of GPU, to be asked about the device."""
    if kind == "cuda" and not (
        _replacement[1] or _cuda or torch.version.hip
    ):  # FakeTensorMode and tests replace the count
        raise NotSupportedError(
            f"{device} is counted, but torch {torch.__version__} is built for the CPU only and cannot be asked "
            "about it; install a build for CUDA"
        )
    return getattr(torch, kind)


def _current(kind: str) -> int:
    if kind in ("cuda", "xpu", _replacement[0]) and _in_use(kind):
        return int(getattr(torch, kind).current_device())
    return 0  # the initial value; and the only one where there is a single device


def _in_use(kind: str) -> bool:
    """Whether the GPUs have been used; asking more would create a context."""
    return kind == "mps" or bool(getattr(torch, kind).is_initialized())
