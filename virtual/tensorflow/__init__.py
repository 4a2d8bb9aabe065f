"""Virtual GPUs under TensorFlow: logical CPUs, of which the first stays the CPU.

``gpu:i`` is TensorFlow's ``/CPU:i+1``. TensorFlow's own names for GPUs mean them where they stand
in (`stand_in`).
"""

from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow.hardware import is_running, named, replaced_gpus
from xdevice.backends.tensorflow.private_names import names as names_of_the_adapter
from xdevice.device import Device, spell
from xdevice.errors import VirtualDeviceError
from xdevice.virtual.request import refuse_memory_limit, refuse_to_hide
from xdevice.virtual.tensorflow.private_names import Replacements, names

_always, _not_standing_in = Replacements(), Replacements()


def recipe() -> None:
    return None  # nothing is compiled


def enable(n: int, force: bool, stand_in: bool) -> None:
    together = "TF_CPU_ALLOCATOR_USE_BFC=1 and TF_CPU_BFC_MEM_LIMIT_IN_MB"
    refuse_memory_limit("tensorflow", f", or limit all devices together with {together}")
    if is_running():
        hint = (
            f"ask for them before the first tensor is made, or start with XDEVICE_VIRTUAL_GPUS={n}"
        )
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for tensorflow, which has started; {hint}"
        )
    cpu = _cpu(n)
    real = [p for p in tf.config.get_visible_devices() if Device(p.device_type, 0).kind == "gpu"]
    refuse_to_hide(len(real), n, "tensorflow", force)
    if stand_in:
        names.check("STAND_IN", "READ")
    else:
        names.check("VIRTUAL")
    names_of_the_adapter.check("OTHERS")
    for word in {physical.device_type for physical in real}:
        tf.config.set_visible_devices([], word)
    replaced_gpus.replace(n, under_own_names=stand_in)
    _always.apply()
    if stand_in:
        from xdevice.virtual.tensorflow import (
            stand_in as gpus_of_tf,
        )  # it replaces parts of TensorFlow

        gpus_of_tf.start(n)
        return
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(n + 1)]
    )
    _not_standing_in.apply()
    homes = "/", "/device:", "/job:localhost/replica:0/task:0/device:"
    for i in range(n):  # what TensorFlow, and only TensorFlow, calls this CPU
        spell(
            Device("gpu", i), [f"{home}{word}:{i + 1}" for home in homes for word in ("CPU", "cpu")]
        )


@_always("tensorflow.python.framework.func_graph:FuncGraph.capture_call_time_value")
def _capture_in_function(
    capture: Any, self: Any, closure: Any, spec: Any, *args: Any, **kwargs: Any
) -> Any:
    """Let a branch of a graph have what is known only when its function is called, such as a collective's key.

    TensorFlow 2.21 puts it in the branch, where nothing feeds it: "You must feed a value for
    placeholder" ends custom loops that make weights or an optimizer's slots in the first call under
    a `MirroredStrategy`.
    """
    while getattr(self, "is_control_flow_graph", False):
        self = self.outer_graph
    with self.as_default():
        return capture(self, closure, spec, *args, **kwargs)


@_not_standing_in("tensorflow.python.distribute.mirrored_strategy:all_local_devices")
def _all_local_devices(every: Any, num_gpus: int | None = None) -> list[Any]:
    """Let a `MirroredStrategy` that is given no devices take the virtual GPUs, as it would take real ones."""
    return [device for device in every() if named(device.name).kind == "gpu"][:num_gpus]


def _cpu(n: int) -> tf.config.PhysicalDevice:
    """The CPU, if it is visible and not split already."""
    why = "is hidden; leave out tf.config.set_visible_devices"
    for cpu in tf.config.get_visible_devices("CPU"):
        if tf.config.get_logical_device_configuration(cpu) is None:
            return cpu
        why = "is split already, by tf.config.set_logical_device_configuration; leave that out"
    raise VirtualDeviceError(f"{n} virtual GPUs were asked for, but tensorflow's CPU {why}")
