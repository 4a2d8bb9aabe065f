"""The devices that MXNet sees."""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet.runtime import Features

from xdevice.contract import Build
from xdevice.device import Device
from xdevice.kit.places import ReplacedGpus

FIRST_VIRTUAL = 1001  # the CPU context that stands for gpu:0; those before it, such as mx.cpu(1), are a program's own
replaced_gpus = ReplacedGpus()


def build() -> Build:
    compute = (
        "cuda" if Features().is_enabled("CUDA") and not replaced_gpus.under_own_names else "cpu"
    )
    return {"version": mx.__version__, "compute": compute, "toolkit": None}


def kinds() -> tuple[str, ...]:
    return "cpu", "gpu"


def count(kind: str) -> int:
    if kind == "cpu":
        return 1
    return (replaced_gpus.number or gpus()) if kind == "gpu" else 0


def native(device: Device) -> Any:
    if replaced_gpus.number and device.kind == "gpu" and not replaced_gpus.under_own_names:
        return mx.cpu(FIRST_VIRTUAL + device.index)
    return mx.Context(device.kind, device.index)


def as_device(native: mx.Context) -> Device:
    if (
        native.device_type == "cpu"
        and FIRST_VIRTUAL <= native.device_id < FIRST_VIRTUAL + replaced_gpus.number
    ):
        return Device("gpu", native.device_id - FIRST_VIRTUAL)
    return Device(
        native.device_type, native.device_id
    )  # cpu_pinned and cpu_shared are kinds of their own


def scope(device: Device) -> Any:
    return native(device)  # fresh: one entered twice never leaves


def synchronize(devices: Sequence[Device]) -> None:
    mx.nd.waitall()  # all devices: MXNet cannot wait for one. Raises errors of queued work


def properties(device: Device) -> dict[str, object]:
    if device.kind == "cpu":
        return {}
    return {
        "name": str(native(device)),
        "total_memory": mx.context.gpu_memory_info(device.index)[1],
    }


def existing(index: int) -> int:
    """The index of a virtual GPU; MXNet's error if there is none."""
    if not 0 <= index < replaced_gpus.number:
        raise mx.MXNetError(
            f"invalid device ordinal {index}: there are {replaced_gpus.number} virtual GPUs"
        )
    return index


def gpus() -> int:
    try:
        return int(mx.context.num_gpus())
    except mx.MXNetError:  # a CUDA build without a driver
        return 0
