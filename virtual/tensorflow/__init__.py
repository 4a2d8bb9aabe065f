"""Virtual GPUs under TensorFlow: logical CPUs, of which the first stays the CPU.

``gpu:i`` is TensorFlow's ``/CPU:i+1``. TensorFlow's own names for GPUs mean them where they stand
in (`stand_in`).
"""

import tensorflow as tf

from xdevice.backends.tensorflow.hardware import is_running, named, replaced_gpus
from xdevice.backends.tensorflow.private_names import names as names_of_the_adapter
from xdevice.contract import NativeDevice
from xdevice.device import Device, spell
from xdevice.errors import VirtualDeviceError
from xdevice.virtual.request import refuse_memory_limit, refuse_to_hide
from xdevice.virtual.tensorflow.private_names import Function, Graph, Replacements, names

_replacements = Replacements()
_replacements_unless_standing_in = Replacements()
_PREFIXES = "/", "/device:", "/job:localhost/replica:0/task:0/device:"
"""The prefixes of the names that TensorFlow gives a device."""


def recipe() -> None:
    return None  # nothing is compiled


def enable(n: int, force: bool, stand_in: bool) -> None:
    variables = "TF_CPU_ALLOCATOR_USE_BFC=1 and TF_CPU_BFC_MEM_LIMIT_IN_MB"
    refuse_memory_limit("tensorflow", f", or limit all devices together with {variables}")
    if is_running():
        hint = (
            f"ask for them before the first tensor is made, or start with XDEVICE_VIRTUAL_GPUS={n}"
        )
        raise VirtualDeviceError(
            f"{n} virtual GPUs are too late for tensorflow, which has started; {hint}"
        )
    cpu = _cpu(n)
    devices = tf.config.get_visible_devices()
    gpus = [device for device in devices if Device(device.device_type, 0).kind == "gpu"]
    refuse_to_hide(len(gpus), n, "tensorflow", force)
    if stand_in:
        names.check("STAND_IN", "READ")
    else:
        names.check("VIRTUAL")
    names_of_the_adapter.check("OTHERS")
    for device_type in {gpu.device_type for gpu in gpus}:
        tf.config.set_visible_devices([], device_type)
    replaced_gpus.replace(n, under_own_names=stand_in)
    _replacements.apply()
    if stand_in:
        # imported on request only, since it replaces parts of TensorFlow
        from xdevice.virtual.tensorflow import stand_in as gpus_of_tf

        gpus_of_tf.start(n)
        return
    configuration = tf.config.LogicalDeviceConfiguration
    tf.config.set_logical_device_configuration(cpu, [configuration() for _ in range(n + 1)])
    _replacements_unless_standing_in.apply()
    for i in range(n):
        _parse_names_as_gpu(i)


def _parse_names_as_gpu(index: int) -> None:
    """Let TensorFlow's names for a logical CPU mean the virtual GPU that it is."""
    names_of_cpu = f"CPU:{index + 1}", f"cpu:{index + 1}"
    spell(
        Device("gpu", index), [f"{prefix}{name}" for prefix in _PREFIXES for name in names_of_cpu]
    )


@_replacements("tensorflow.python.framework.func_graph:FuncGraph.capture_call_time_value")
def _capture_in_function(
    native: Function, self: Graph, closure: Function, *args: object, **kwargs: object
) -> object:
    """Capture a value that is known only at the call in the graph of the function, not of a branch.

    Such a value is the key of a collective. TensorFlow 2.21 captures it in the branch, where it
    gets no value. Then custom loops that make weights or an optimizer's slots in their first call
    under a `MirroredStrategy` fail with "You must feed a value for placeholder".
    """
    while getattr(self, "is_control_flow_graph", False):
        self = self.outer_graph
    with self.as_default():
        return native(self, closure, *args, **kwargs)


@_replacements_unless_standing_in(
    "tensorflow.python.distribute.mirrored_strategy:all_local_devices"
)
def _all_local_devices(native: Function, num_gpus: int | None = None) -> list[NativeDevice]:
    """Let a `MirroredStrategy` without a list of devices use the virtual GPUs, as it uses real ones."""
    return [device for device in native() if named(device.name).kind == "gpu"][:num_gpus]


def _cpu(n: int) -> tf.config.PhysicalDevice:
    """The CPU, if it is visible and not split already."""
    reason = "is hidden; leave out tf.config.set_visible_devices"
    for cpu in tf.config.get_visible_devices("CPU"):
        if tf.config.get_logical_device_configuration(cpu) is None:
            return cpu
        reason = "is split already, by tf.config.set_logical_device_configuration; leave that out"
    raise VirtualDeviceError(f"{n} virtual GPUs were asked for, but tensorflow's CPU {reason}")
