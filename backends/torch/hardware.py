"""The devices that PyTorch sees."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType

import torch

from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import NotSupportedError

# The build's version of CUDA: devices that replace the GPUs may set torch.version.cuda.
_cuda: str | None = getattr(torch.version, "cuda", None)
_replacement: tuple[str, int] = "", 0  # the device type and the number: see `replace_gpus`
_native_devices: dict[Device, torch.device] = {}


def replace_gpus(kind: str, number: int) -> None:
    """Let ``number`` devices of the device type ``kind`` take the place of the GPUs."""
    global _replacement
    _replacement = kind, number
    _native_devices.clear()


def are_replaced() -> bool:
    """Whether other devices have taken the place of the GPUs."""
    return bool(_replacement[1])


def is_hidden(kind: str) -> bool:
    """Whether devices of this type are GPUs whose place other devices have taken."""
    is_gpu = kind in ("cuda", "xpu", "mps")
    return are_replaced() and is_gpu and kind != _replacement[0]


def build() -> Build:
    toolkits = {
        "rocm": torch.version.hip,
        "cuda": _cuda,
        "mps": torch.backends.mps.is_built(),
        "xpu": getattr(torch.version, "xpu", None),
    }
    compute = next((platform for platform, toolkit in toolkits.items() if toolkit), "cpu")
    return {"version": torch.__version__, "compute": compute, "toolkit": torch.version.hip or _cuda}


def kinds() -> tuple[str, ...]:
    return "cpu", "gpu"


def count(kind: str) -> int:
    return gpus()[1] if kind == "gpu" else int(kind == "cpu")


def native(device: Device) -> torch.device:
    native_device = _native_devices.get(device)
    if native_device is None:
        native_device = _native_devices.setdefault(device, _new_native(device))
    return native_device


def _new_native(device: Device) -> torch.device:
    if device.kind == "cpu":
        return torch.device("cpu")
    return torch.device(gpus()[0] if device.kind == "gpu" else device.kind, device.index)


def as_device(native: torch.device) -> Device:
    if native.type == "cpu":
        return Device("cpu", 0)  # torch accepts cpu:1 and means the CPU
    index = _current(native.type) if native.index is None else native.index
    if native.type == _replacement[0]:
        return Device("gpu", index)
    return Device(native.type, index)


# a native device is a context manager since 2.0, which may be entered again
scope: Callable[[Device], AbstractContextManager[object]] = native


def synchronize(devices: Sequence[Device]) -> None:
    kind, number = gpus()
    if not number or not _in_use(kind):
        return  # the CPU is synchronous; an unused GPU has nothing queued
    for device in devices:
        if device.kind == "cpu":
            continue
        if kind == "mps":
            torch.mps.synchronize()  # there is one device
        else:
            getattr(torch, kind).synchronize(device.index)


def properties(device: Device) -> dict[str, object]:
    kind, _ = gpus()
    if device.kind == "cpu" or kind == "mps":
        return {}
    values = runtime(kind, device).get_device_properties(device.index)
    properties = {"name": values.name, "total_memory": values.total_memory}
    if hasattr(values, "major"):
        properties["compute_capability"] = f"{values.major}.{values.minor}"
    if hasattr(values, "uuid"):
        properties["uuid"] = str(values.uuid)
    return properties


def gpus() -> tuple[str, int]:
    """torch's type of its GPUs, and their number."""
    device_type, number = _replacement
    if number and device_type != "cuda":
        return _replacement
    return _counted_by_torch()


def _counted_by_torch() -> tuple[str, int]:
    """The same, as torch counts them: it asks NVML, which creates no context."""
    number = torch.cuda.device_count()
    if number:
        return "cuda", number
    if torch.backends.mps.is_available():
        return "mps", 1
    if hasattr(torch, "xpu"):
        number = torch.xpu.device_count()
        if number:
            return "xpu", number
    return "cuda", 0


def runtime(kind: str, device: Device) -> ModuleType:
    """``torch.cuda``, or torch's module for another kind of GPU.

    It has the functions about the device.
    """
    is_built = bool(_cuda or torch.version.hip) or are_replaced()
    if kind == "cuda" and not is_built:  # FakeTensorMode and tests replace the number of GPUs
        version = torch.__version__
        raise NotSupportedError(
            f"{device} is counted, but torch {version} is built for the CPU only "
            "and cannot be asked about it; install a build for CUDA"
        )
    module: ModuleType = getattr(torch, kind)
    return module


def _current(kind: str) -> int:
    if kind in ("cuda", "xpu", _replacement[0]) and _in_use(kind):
        return int(getattr(torch, kind).current_device())
    return 0  # the current device at the start, or the only one


def _in_use(kind: str) -> bool:
    """Whether the GPUs have been used. Asking anything else would create a context."""
    return kind == "mps" or bool(getattr(torch, kind).is_initialized())
