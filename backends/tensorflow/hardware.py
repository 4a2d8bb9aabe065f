"""The devices that TensorFlow sees."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from xdevice.backends.kit.places import ReplacedGpus
from xdevice.backends.tensorflow.private_names import names, runtime
from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import DeviceNotFoundError, DeviceTypeError

# Logical CPUs may take the place of GPUs. They follow the other CPUs: one, or those into which a
# program has split it.
replaced_gpus = ReplacedGpus()
# CPUs compute at once, unless set_synchronous_execution(False) was called
_wait_for_cpus: Any = names.value("tensorflow.python.eager.context:async_wait")
# the original function, which code that replaces GPUs may replace
_build_info: Any = names.optional("tensorflow:sysconfig.get_build_info", otherwise=dict)

_LOCALHOST = "/job:localhost/replica:0/task:0"


def build() -> Build:
    info = _build_info()
    toolkits = (word for word in ("rocm", "cuda") if info.get(f"is_{word}_build"))
    compute = next(toolkits, "cpu")
    return {
        "version": tf.__version__,
        "compute": compute,
        "toolkit": info.get(f"{compute}_version"),
    }


def kinds() -> tuple[str, ...]:
    plug_in_kinds = (Device(device_type, 0).kind for device_type in _types())
    return tuple(dict.fromkeys(("cpu", "gpu", "tpu", *plug_in_kinds)))


def count(kind: str) -> int:
    if replaced_gpus.number and kind in ("cpu", "gpu"):
        return replaced_gpus.number if kind == "gpu" else replaced_gpus.first
    device_type = _type_of(kind)
    if is_running():
        return sum(is_own(device.name) for device in tf.config.list_logical_devices(device_type))
    # Listing the logical devices would start the runtime, which takes the GPUs' memory. They follow
    # from the visible physical devices, and the number into which each is to be split.
    return sum(_splits(physical) for physical in tf.config.get_visible_devices(device_type))


def native(device: Device) -> str:
    if replaced_gpus.number and device.kind == "gpu" and not replaced_gpus.under_own_names:
        return f"/CPU:{device.index + 1}"
    return f"/{_type_of(device.kind)}:{device.index}"


def device_named(name: str) -> Device:
    # without a slash it is not TensorFlow's name, but xdevice's
    return named(name) if name.startswith("/") else Device(name)


def as_device(
    native: tf.DeviceSpec | tf.config.LogicalDevice | tf.config.PhysicalDevice,
) -> Device:
    if isinstance(native, tf.config.PhysicalDevice):
        index = 0  # the logical devices of earlier physical ones come first
        for visible in tf.config.get_visible_devices(native.device_type):
            if visible == native:
                return Device(native.device_type, index)
            index += _splits(visible)
        raise DeviceNotFoundError(
            f"{native.name} is hidden by tf.config.set_visible_devices; name one that is visible"
        )
    if native.device_type is None:
        hint = "write tf.DeviceSpec(device_type='GPU', device_index=0)"
        raise DeviceTypeError(f"{native!r} names no device type; {hint}")
    spec = native
    if isinstance(native, tf.config.LogicalDevice):
        spec = tf.DeviceSpec.from_string(native.name)
    # without an index TensorFlow takes the first device
    return named(f"/{spec.device_type}:{spec.device_index or 0}")


def scope(device: Device) -> AbstractContextManager[None]:
    block: AbstractContextManager[None] = tf.device(native(device))
    return block


def synchronize(devices: Sequence[Device]) -> None:
    if not is_running():
        return  # no device has been used
    # wait now within a tf.function too; otherwise an operation would be added to the graph
    with tf.init_scope():
        for device in devices:
            is_cpu = device.kind == "cpu" or (device.kind == "gpu" and replaced_gpus.number > 0)
            if not is_cpu:
                with scope(device):
                    tf.raw_ops.SyncDevice()
    _wait_for_cpus()


def properties(device: Device) -> dict[str, object]:
    if device.kind == "cpu":
        return {}
    physical_devices: list[tf.config.PhysicalDevice] = []  # of each logical one
    for physical in tf.config.get_visible_devices(_type_of(device.kind)):
        physical_devices += [physical] * _splits(physical)
    # the details do not include the memory
    details = tf.config.experimental.get_device_details(physical_devices[device.index])
    capability = ".".join(map(str, details.get("compute_capability", ())))
    return {
        "name": details.get("device_name", device.kind),
        "compute_capability": capability or None,
    }


def named(name: str) -> Device:
    """The device with TensorFlow's name; a logical CPU that takes the place of a GPU is a GPU."""
    device = Device(name)
    first = replaced_gpus.first
    if replaced_gpus.number > 0 and device.kind == "cpu" and device.index >= first:
        return Device("gpu", device.index - first)
    return device


def is_own(name: str) -> bool:
    """Whether the device belongs to this process; in a cluster, TensorFlow lists all devices.

    A device of this process has two names in a cluster: results of operations are on
    ``localhost``, variables on the worker.
    """
    if not name.startswith("/job:"):
        return True
    this_process = getattr(runtime(), "host_address_space", lambda: _LOCALHOST)()
    return name.startswith((f"{this_process}/", f"{_LOCALHOST}/"))


def is_running() -> bool:
    """Whether the runtime has started: until then no tensor exists, and no GPU has been touched."""
    return runtime()._context_handle is not None


def _types() -> list[str]:
    """TensorFlow's names for the types of the existing devices."""
    types = (physical.device_type for physical in tf.config.list_physical_devices())
    return [device_type for device_type in types if not device_type.startswith("XLA_")]


def _type_of(kind: str) -> str:
    """TensorFlow's name for a kind of device; Intel's plug-in calls its GPUs XPU."""
    if kind == "gpu":
        types = _types()
        gpu_types = (device_type for device_type in types if Device(device_type, 0).kind == "gpu")
        return next(gpu_types, "GPU")
    return kind.upper()


def _splits(physical: tf.config.PhysicalDevice) -> int:
    return len(tf.config.get_logical_device_configuration(physical) or [physical])
