"""The devices that MXNet sees."""

from collections.abc import Sequence

import mxnet as mx
from mxnet.runtime import Features

from xdevice.backends.kit.places import ReplacedGpus
from xdevice.contract import Build, NativeDevice
from xdevice.device import Device

# The index of the CPU context that stands for gpu:0. Contexts before it, such as mx.cpu(1), are
# left to programs.
FIRST_VIRTUAL = 1001
replaced_gpus = ReplacedGpus()


def build() -> Build:
    has_cuda = Features().is_enabled("CUDA") and not replaced_gpus.under_own_names
    compute = "cuda" if has_cuda else "cpu"
    return {"version": mx.__version__, "compute": compute, "toolkit": None}


def kinds() -> tuple[str, ...]:
    return "cpu", "gpu"


def count(kind: str) -> int:
    if kind == "cpu":
        return 1
    if kind == "gpu":
        return replaced_gpus.number or gpus()
    return 0


def _new_context(device: Device) -> NativeDevice:
    if replaced_gpus.number and device.kind == "gpu" and not replaced_gpus.under_own_names:
        return mx.cpu(FIRST_VIRTUAL + device.index)
    return mx.Context(device.kind, device.index)


native = replaced_gpus.cached(_new_context)


def as_device(native: mx.Context) -> Device:
    # cpu_pinned and cpu_shared are kinds of their own
    return device_named(f"{native.device_type}({native.device_id})")


def device_named(name: str) -> Device:
    device = Device(name)  # it reads cpu(1001), as MXNet prints a context
    index = device.index - FIRST_VIRTUAL
    if device.kind == "cpu" and 0 <= index < replaced_gpus.number:
        return Device("gpu", index)
    return device


def scope(device: Device) -> NativeDevice:
    return mx.Context(native(device))  # a new one: one that is entered twice cannot be left


def synchronize(devices: Sequence[Device]) -> None:
    # for all devices, since MXNet cannot wait for one; it raises errors of queued work
    mx.nd.waitall()


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
