"""The devices that MXNet sees."""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet.runtime import Features

from xdevice.contract import Build
from xdevice.device import Device

FIRST_VIRTUAL = 1001
"""The CPU context that stands for ``gpu:0``: the contexts before it are a program's own, ``mx.cpu(1)`` among them."""

_virtual = 0  # how many CPU contexts stand for GPUs
_stands_in = False  # whether these have the names of GPUs


def name_virtual(n: int, *, stand_in: bool) -> None:
    """From now on n CPU contexts are GPUs."""
    global _virtual, _stands_in
    _virtual, _stands_in = n, stand_in


def stands_in() -> bool:
    """Whether ``mx.gpu(i)`` is a virtual GPU."""
    return _stands_in


def is_virtual() -> bool:
    return _virtual > 0


def build() -> Build:
    compute = "cuda" if Features().is_enabled("CUDA") and not _stands_in else "cpu"
    return {"version": mx.__version__, "compute": compute, "toolkit": None}


def kinds() -> tuple[str, ...]:
    return "cpu", "gpu"


def count(kind: str) -> int:
    if kind == "cpu":
        return 1
    return (_virtual or gpus()) if kind == "gpu" else 0


def native(device: Device) -> Any:
    if _virtual and device.kind == "gpu" and not _stands_in:
        return mx.cpu(FIRST_VIRTUAL + device.index)
    return mx.Context(device.kind, device.index)


def as_device(native: mx.Context) -> Device:
    if native.device_type == "cpu" and FIRST_VIRTUAL <= native.device_id < FIRST_VIRTUAL + _virtual:
        return Device("gpu", native.device_id - FIRST_VIRTUAL)
    return Device(native.device_type, native.device_id)  # cpu_pinned and cpu_shared are kinds of their own


def scope(device: Device) -> Any:
    return native(device)  # fresh: one entered twice never leaves


def synchronize(devices: Sequence[Device]) -> None:
    mx.nd.waitall()  # all devices: MXNet cannot wait for one. Raises errors of queued work


def properties(device: Device) -> dict[str, object]:
    if device.kind == "cpu":
        return {}
    return {"name": str(native(device)), "total_memory": mx.context.gpu_memory_info(device.index)[1]}


def gpus() -> int:
    try:
        return int(mx.context.num_gpus())
    except mx.MXNetError:  # a CUDA build without a driver
        return 0
