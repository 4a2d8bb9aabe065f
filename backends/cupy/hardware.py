"""The GPUs that CuPy sees."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from uuid import UUID

import cupy
from cupy.cuda import runtime

from xdevice.contract import Build
from xdevice.device import Device


def build() -> Build:
    if runtime.is_hip:
        return {"version": cupy.__version__, "compute": "rocm", "toolkit": None}
    major, remainder = divmod(runtime.runtimeGetVersion(), 1000)  # 12090 is CUDA 12.9
    toolkit = f"{major}.{remainder // 10}"
    return {"version": cupy.__version__, "compute": "cuda", "toolkit": toolkit}


def kinds() -> tuple[str, ...]:
    return ("gpu",)


def count(kind: str) -> int:
    if kind != "gpu":
        return 0
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:  # no GPU, no driver, or one that is too old
        return 0


def native(device: Device) -> cupy.cuda.Device:
    return cupy.cuda.Device(device.index)


def as_device(native: cupy.cuda.Device) -> Device:
    return Device("gpu", native.id)


def scope(device: Device) -> AbstractContextManager[object]:
    current: AbstractContextManager[object] = native(device)  # a new object each time
    return current


def synchronize(devices: Sequence[Device]) -> None:
    for device in devices:
        native(device).synchronize()


def properties(device: Device) -> dict[str, object]:
    values = runtime.getDeviceProperties(device.index)
    uuid = values.get("uuid", b"")
    is_complete = len(uuid) == 16  # CuPy 14.2 cuts it at a zero byte
    return {
        "name": values["name"].decode(),
        "total_memory": values["totalGlobalMem"],
        "compute_capability": f"{values['major']}.{values['minor']}",
        "uuid": str(UUID(bytes=uuid)) if is_complete else None,
    }
