"""TensorFlow programs written for GPUs, unedited: virtual GPUs answer to TensorFlow's own names for GPUs.

The names are translated where they cross into the runtime (`interfaces`). The physical GPUs are put
into the lists of TensorFlow's ``Context``, so its own checks of `set_visible_devices`,
`set_memory_growth` and `set_logical_device_configuration` hold; only the ``ConfigProto`` made of
them counts CPUs instead. Where a program names no type of device, the thread's device is GPU 0.
Collectives that ask for NCCL get ring and hierarchical copy.

Libraries choose kernels by the list of GPUs (Keras: those of cuDNN, and NCHW). The modules that do
so get a list without GPUs. Differs from a GPU: small integers are shown on ``GPU:0`` too. Not
supported: what the runtime prints itself (``log_device_placement``, profiles and the device names
within a ``SavedModel``) says ``CPU:1``; sessions of TensorFlow 1 place on the CPU what names no
device.
"""

import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.private_names import runtime
from xdevice.virtual import request
from xdevice.virtual.tensorflow import interfaces, kernels
from xdevice.virtual.tensorflow.interfaces import to_real, to_shown
from xdevice.virtual.tensorflow.private_names import Replacements, context, names, ops

NAME = "xdevice virtual GPU"
CHOOSE_KERNELS = {
    "keras.src.backend.tensorflow.rnn",
    "keras.src.backend.tensorflow.nn",
    "tf_keras.src.backend",
    "tf_keras.src.layers.rnn.gru",
    "tf_keras.src.layers.rnn.lstm",
    # where there are GPUs it compiles each step with XLA, which takes seconds
    "tf_keras.src.optimizers.optimizer",
}
"""Modules that choose a GPU's kernels by the list of GPUs; the CPU lacks them. Keras 3.15 and 2.21 (``tf_keras``)."""

_WITH_TYPE = re.compile(r"device:|PU:")
_gpus: list[Any] = []  # the physical devices
_replacements = Replacements()


def start(n: int) -> None:
    """Let n virtual GPUs stand in; the runtime has not started."""
    _gpus.extend(context.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(n))
    path = "tensorflow.python.eager.context:Context.config"
    config = names.value(path).fget
    names.replace(path, property(lambda self: _with_cpus_for_gpus(self, config(self))))
    run_thread = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def run_thread_on_gpu(self: Any) -> None:
        _set_default(runtime())
        run_thread(self)

    _replacements.apply()
    if runtime()._physical_devices is not None:
        _add(runtime())
    threading.Thread._bootstrap_inner = run_thread_on_gpu  # type: ignore[attr-defined]
    _set_default(runtime())
    interfaces.start()
    kernels.start(request.current().lenient)


@_replacements("tensorflow.python.eager.context:Context._initialize_physical_devices")
def _find_physical(find: Any, self: Any, reinitialize: bool = False) -> None:
    if reinitialize or self._physical_devices is None:
        find(self, reinitialize)
        _add(self)


def _add(running: Any) -> None:
    for devices in (running._physical_devices, running._visible_device_list):
        devices += [gpu for gpu in _gpus if gpu not in devices]
    for gpu in _gpus:
        running._memory_growth_map.setdefault(gpu, None)


def _with_cpus_for_gpus(running: Any, config: Any) -> Any:
    """The configuration of the runtime, in which logical CPUs are counted for the GPUs."""
    visible = [gpu for gpu in running._visible_device_list if gpu.device_type == "GPU"]
    number = sum(len(running._virtual_device_map.get(gpu) or [gpu]) for gpu in visible)
    config.device_count["CPU"] = number + hardware.replaced_gpus.first
    config.device_count["GPU"] = 0
    config.ClearField("gpu_options")
    return config


@_replacements("tensorflow.python.eager.context:Context.get_device_details")
def _tell_details(known: Any, self: Any, device: Any) -> Any:
    return {"device_name": NAME} if device in _gpus else known(self, device)


@_replacements("tensorflow.python.eager.context:Context.set_logical_device_configuration")
def _split(split: Any, self: Any, device: Any, parts: Any) -> None:
    split(self, device, parts)
    # the GPUs come after the parts of the CPU
    if device.device_type == "CPU" and len(parts) != hardware.replaced_gpus.first:
        hardware.replaced_gpus.first = len(parts)
        to_shown.cache_clear()
        _set_default(self)  # GPU 0 has another name from now on


@_replacements("tensorflow.python.eager.context:Context._initialize_logical_devices")
def _list_logical(logical: Any, self: Any) -> None:
    logical(self)
    device_names = [to_shown(device.name) for device in self._logical_devices]
    self._logical_devices = [
        context.LogicalDevice(name, name.split(":")[-2]) for name in device_names
    ]
    gpus = [device.name for device in self._logical_devices if device.device_type == "GPU"]
    own_prefixes = ["/device:"]
    server = self._server_def or self._collective_ops_server_def
    if server is not None:
        own_prefixes.append(f"/job:{server.job_name}/replica:0/task:{server.task_index}/")
    # in a cluster, the list has the GPUs of other processes, too
    self._num_gpus = sum(name.startswith(tuple(own_prefixes)) for name in gpus)
    hardware.replaced_gpus.number = self._num_gpus


@_replacements("tensorflow.python.eager.context:Context.list_physical_devices")
@_replacements("tensorflow.python.eager.context:Context.list_logical_devices")
def _list(every: Callable[..., list[Any]], self: Any, device_type: str | None = None) -> list[Any]:
    """The list of devices; without GPUs for a module that chooses kernels by it."""
    devices = every(self, device_type)
    # the module of the code that calls tf.config.list_physical_devices
    caller = sys._getframe(3).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]
    if caller in CHOOSE_KERNELS:
        return [device for device in devices if device.device_type != "GPU"]
    return devices


def _set_default(running: Any) -> None:
    """Make GPU 0 this thread's default device, which is the CPU when the runtime starts."""
    running._set_device("", running.device_spec)


@_replacements("tensorflow.python.eager.context:Context._set_device")
def _set_device(put: Any, self: Any, name: str, spec: Any) -> None:
    real_name = to_real(_existing(self, name)) or ""
    if not _WITH_TYPE.search(real_name):
        real_name += f"/device:CPU:{hardware.replaced_gpus.first}"
    put(self, real_name, spec)


def _existing(running: Any, name: Any) -> Any:
    """The name; GPU 0 for a GPU that does not exist, as soft placement chooses. Without that, TensorFlow's error."""
    gpu = interfaces.GPU.search(name or "")
    if gpu is None or (gpu[1] or "*") == "*":
        return name
    if int(gpu[1]) < hardware.count("gpu") or not hardware.is_own(name):
        return name
    if kernels.is_soft(running):
        return interfaces.GPU.sub("GPU:0", name)
    devices = [device.name for device in running.list_logical_devices()]
    raise kernels.unsatisfied(name, "GPU, CPU", devices)


@_replacements("tensorflow.python.distribute.device_util:current")
def _current(current: Any) -> Any:
    is_eager = ops.executing_eagerly_outside_functions()
    if is_eager and not runtime().device_spec.device_type:
        return ""  # the program has named no device
    return to_shown(current())


@_replacements("tensorflow.python.distribute.cross_device_utils:CollectiveReplicaLauncher.__init__")
def _with_ring(launch: Any, self: Any, *arguments: Any) -> None:
    *others, options = arguments
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    make_options = names.value("tensorflow.python.distribute.collective_util:Options")
    launch(self, *others, make_options(options.bytes_per_pack, options.timeout_seconds, ring))


@_replacements("tensorflow.python.distribute.cross_device_ops:AllReduceCrossDeviceOps.__init__")
def _with_copies(reduce: Any, self: Any, all_reduce_alg: str = "nccl", num_packs: int = 1) -> None:
    reduce(self, "hierarchical_copy" if all_reduce_alg == "nccl" else all_reduce_alg, num_packs)


@_replacements("tensorflow.python.ops.nccl_ops:_apply_all_reduce")
def _reduce_on_each(_: Any, reduction: str, tensors: Any) -> list[Any]:
    reduced = []
    for tensor in tensors:
        with tf.device(tensor.device):
            reduced.append(getattr(tf, f"reduce_{reduction}")(tf.stack(tensors), axis=0))
    return reduced
