"""The devices that TensorFlow sees."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow.private_names import names, runtime
from xdevice.contract import Build
from xdevice.device import Device
from xdevice.errors import DeviceNotFoundError, DeviceTypeError
from xdevice.kit.places import ReplacedGpus

replaced_gpus = (
    ReplacedGpus()
)  # logical CPUs: of these the CPU is the first, or those into which a program has split it
# CPUs compute at once, unless set_synchronous_execution(False) was called
_wait_for_cpus: Any = names.value("tensorflow.python.eager.context:async_wait")
# which `virtual.interfaces` replaces
_build_info: Any = names.optional("tensorflow:sysconfig.get_build_info", otherwise=dict)


def build() -> Build:
    info = _build_info()
    compute = next((word for word in ("rocm", "cuda") if info.get(f"is_{word}_build")), "cpu")
    return {
        "version": tf.__version__,
        "compute": compute,
        "toolkit": info.get(f"{compute}_version"),
    }


def kinds() -> tuple[str, ...]:
    return tuple(dict.fromkeys(("cpu", "gpu", "tpu", *(Device(word, 0).kind for word in _words()))))


def count(kind: str) -> int:
    if replaced_gpus.number and kind in ("cpu", "gpu"):
        return replaced_gpus.number if kind == "gpu" else replaced_gpus.first
    word = _word(kind)
    if is_running():
        return sum(is_own(device.name) for device in tf.config.list_logical_devices(word))
    # Listing the logical devices would start the runtime, and that takes the GPUs' memory. What it will
    # list is settled by what has been made visible, and into how many each of these is to be split.
    return sum(_splits(physical) for physical in tf.config.get_visible_devices(word))


def native(device: Device) -> str:
    if replaced_gpus.number and device.kind == "gpu" and not replaced_gpus.under_own_names:
        return f"/CPU:{device.index + 1}"
    return f"/{_word(device.kind)}:{device.index}"


def as_device(native: tf.DeviceSpec | tf.config.LogicalDevice | tf.config.PhysicalDevice) -> Device:
    if isinstance(native, tf.config.PhysicalDevice):
        before = 0  # logical devices of others
        for visible in tf.config.get_visible_devices(native.device_type):
            if visible == native:
                return Device(native.device_type, before)
            before += _splits(visible)
        raise DeviceNotFoundError(
            f"{native.name} is hidden by tf.config.set_visible_devices; name one that is visible"
        )
    if native.device_type is None:
        hint = "write tf.DeviceSpec(device_type='GPU', device_index=0)"
        raise DeviceTypeError(f"{native!r} names no device type; {hint}")
    spec = (
        tf.DeviceSpec.from_string(native.name)
        if isinstance(native, tf.config.LogicalDevice)
        else native
    )
    return named(
        f"/{spec.device_type}:{spec.device_index or 0}"
    )  # without an index TensorFlow takes the first


def scope(device: Device) -> Any:
    return tf.device(native(device))


def synchronize(devices: Sequence[Device]) -> None:
    if not is_running():
        return  # nothing has been asked of any device yet
    with (
        tf.init_scope()
    ):  # inside a tf.function too: wait now, rather than add waiting to the graph
        for device in devices:
            if device.kind != "cpu" and not (replaced_gpus.number and device.kind == "gpu"):
                with scope(device):
                    tf.raw_ops.SyncDevice()
    _wait_for_cpus()


def properties(device: Device) -> dict[str, object]:
    if device.kind == "cpu":
        return {}
    behind = [
        p for p in tf.config.get_visible_devices(_word(device.kind)) for _ in range(_splits(p))
    ]
    details = tf.config.experimental.get_device_details(
        behind[device.index]
    )  # which does not tell the memory
    name, capability = (
        details.get("device_name", device.kind),
        details.get("compute_capability", ()),
    )
    return {"name": name, "compute_capability": ".".join(map(str, capability)) or None}


def named(name: str) -> Device:
    """The device behind TensorFlow's own name for it, which calls a virtual GPU a CPU."""
    device = Device(name)
    is_gpu = (
        replaced_gpus.number > 0 and device.kind == "cpu" and device.index >= replaced_gpus.first
    )
    return Device("gpu", device.index - replaced_gpus.first) if is_gpu else device


def is_own(name: str) -> bool:
    """Whether the device is one of this process: in a cluster TensorFlow knows the other processes' too.

    There it has two names: results of operations are on ``localhost``, variables on the worker.
    """
    here = getattr(runtime(), "host_address_space", lambda: "/job:localhost/replica:0/task:0")()
    return name.startswith((f"{here}/", "/job:localhost/replica:0/task:0/")) or not name.startswith(
        "/job:"
    )


def is_running() -> bool:
    """Whether the runtime has started: until then no tensor exists, and no GPU has been touched."""
    return runtime()._context_handle is not None


def _words() -> list[str]:
    """TensorFlow's own words for the types of devices that are there."""
    return [
        p.device_type
        for p in tf.config.list_physical_devices()
        if not p.device_type.startswith("XLA_")
    ]


def _word(kind: str) -> str:
    if kind == "gpu":  # Intel's plug-in says XPU
        return next((word for word in _words() if Device(word, 0).kind == "gpu"), "GPU")
    return kind.upper()


def _splits(physical: tf.config.PhysicalDevice) -> int:
    return len(tf.config.get_logical_device_configuration(physical) or [physical])
