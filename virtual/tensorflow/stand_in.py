"""TensorFlow programs written for GPUs, unedited: virtual GPUs answer to TensorFlow's names for GPUs.

The names are translated in calls of the runtime (`interfaces`). The physical GPUs are added to the
lists of TensorFlow's ``Context``, so its own checks of `set_visible_devices`, `set_memory_growth`
and `set_logical_device_configuration` hold. Only the ``ConfigProto`` made of them counts CPUs
instead. Where a program names no type of device, the thread's device is GPU 0. Collectives that ask
for NCCL get ring and hierarchical copy.

Libraries choose kernels by the list of GPUs (Keras: those of cuDNN, and NCHW). The modules that do
so get a list without GPUs. Differs from a GPU: the ``backing_device`` of results of 32-bit integers
is a GPU. Not supported: the runtime's own output (``log_device_placement``, profiles and the device
names within a ``SavedModel``) says ``CPU:1``; sessions of TensorFlow 1 place operations without a
device on the CPU.
"""

import re
import sys
import threading
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.private_names import runtime
from xdevice.contract import NativeDevice, Request, Tensor
from xdevice.virtual import models
from xdevice.virtual.tensorflow import interfaces, kernels, memory
from xdevice.virtual.tensorflow.interfaces import to_real, to_shown
from xdevice.virtual.tensorflow.private_names import (
    Context,
    DeviceName,
    Function,
    Replacements,
    SessionConfig,
    context,
    names,
    ops,
)

CHOOSE_KERNELS = {
    "keras.src.backend.tensorflow.rnn",
    "keras.src.backend.tensorflow.nn",
    "tf_keras.src.backend",
    "tf_keras.src.layers.rnn.gru",
    "tf_keras.src.layers.rnn.lstm",
    # with GPUs it compiles each step with XLA, which takes seconds
    "tf_keras.src.optimizers.optimizer",
}
"""Modules of Keras 3.15 and 2.21 (``tf_keras``) that choose kernels by the list of GPUs.

The CPU lacks the kernels of GPUs.
"""

_HAS_DEVICE_TYPE = re.compile(r"device:|PU:")
_gpus: list[NativeDevice] = []  # the physical devices
_replacements = Replacements()


def start(request: Request) -> None:
    """Let the virtual GPUs stand in; the runtime has not started."""
    _gpus.extend(
        context.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(request.number)
    )
    path = "tensorflow.python.eager.context:Context.config"
    native_config = names.value(path).fget
    names.replace(path, property(lambda self: _with_cpus_for_gpus(self, native_config(self))))
    _replacements.apply()
    if runtime()._physical_devices is not None:
        _add_gpus(runtime())
    _start_threads_on_gpu()
    _use_gpu_by_default(runtime())
    gpu_name = models.gpu_name(request)
    _name_gpus(gpu_name)
    interfaces.start(gpu_name)
    memory.start()
    kernels.start(request.lenient)


def _start_threads_on_gpu() -> None:
    run_thread = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def run_thread_on_gpu(self: threading.Thread) -> None:
        _use_gpu_by_default(runtime())
        run_thread(self)

    threading.Thread._bootstrap_inner = run_thread_on_gpu  # type: ignore[attr-defined]


@_replacements("tensorflow.python.ops.script_ops:FuncRegistry.__call__")
def _call_python(native: Function, self: object, *args: object) -> Any:
    """The function of a `tf.py_function`, which the runtime may call in a thread of its own."""
    if not runtime().device_name:
        _use_gpu_by_default(runtime())
    return native(self, *args)


@_replacements("tensorflow.python.eager.context:Context._initialize_physical_devices")
def _find_physical_devices(native: Function, self: Context, reinitialize: bool = False) -> None:
    if reinitialize or self._physical_devices is None:
        native(self, reinitialize)
        _add_gpus(self)


def _add_gpus(running: Context) -> None:
    for devices in (running._physical_devices, running._visible_device_list):
        devices += [gpu for gpu in _gpus if gpu not in devices]
    for gpu in _gpus:
        running._memory_growth_map.setdefault(gpu, None)


def _with_cpus_for_gpus(running: Context, config: SessionConfig) -> SessionConfig:
    """The configuration of the runtime, with logical CPUs in place of the GPUs."""
    visible = [gpu for gpu in running._visible_device_list if gpu.device_type == "GPU"]
    number = sum(len(running._virtual_device_map.get(gpu) or [gpu]) for gpu in visible)
    config.device_count["CPU"] = number + hardware.replaced_gpus.first
    config.device_count["GPU"] = 0
    config.ClearField("gpu_options")
    return config


def _name_gpus(gpu_name: str) -> None:
    @names.in_place_of("tensorflow.python.eager.context:Context.get_device_details")
    def get_device_details(
        native: Function, self: Context, device: NativeDevice
    ) -> dict[str, object]:
        return {"device_name": gpu_name} if device in _gpus else native(self, device)


@_replacements("tensorflow.python.eager.context:Context.set_logical_device_configuration")
def _split(native: Function, self: Context, device: NativeDevice, parts: list[object]) -> None:
    native(self, device, parts)
    # the GPUs come after the parts of the CPU
    if device.device_type == "CPU" and len(parts) != hardware.replaced_gpus.first:
        hardware.replaced_gpus.first = len(parts)
        to_shown.cache_clear()
        _use_gpu_by_default(self)  # GPU 0 has another name from now on


@_replacements("tensorflow.python.eager.context:Context._initialize_logical_devices")
def _initialize_logical_devices(native: Function, self: Context) -> None:
    native(self)
    device_names = [to_shown(device.name) for device in self._logical_devices]
    self._logical_devices = [
        context.LogicalDevice(name, name.split(":")[-2]) for name in device_names
    ]
    gpus = [device.name for device in self._logical_devices if device.device_type == "GPU"]
    local_prefixes = ["/device:"]
    server = self._server_def or self._collective_ops_server_def
    if server is not None:
        local_prefixes.append(f"/job:{server.job_name}/replica:0/task:{server.task_index}/")
    # in a cluster, the list has the GPUs of other processes, too
    self._num_gpus = sum(name.startswith(tuple(local_prefixes)) for name in gpus)
    hardware.replaced_gpus.number = self._num_gpus


@_replacements("tensorflow.python.eager.context:Context.list_physical_devices")
@_replacements("tensorflow.python.eager.context:Context.list_logical_devices")
def _list_devices(
    native: Function, self: Context, device_type: str | None = None
) -> list[NativeDevice]:
    """The list of devices; without GPUs for a module that chooses kernels by it."""
    devices = list(native(self, device_type))
    # the module of the code that calls tf.config.list_physical_devices
    caller = sys._getframe(3).f_globals.get("__name__", "")
    if caller in CHOOSE_KERNELS:
        return [device for device in devices if device.device_type != "GPU"]
    return devices


def _use_gpu_by_default(running: Context) -> None:
    """Make GPU 0 this thread's default device, which is the CPU when the runtime starts."""
    running._set_device("", running.device_spec)


@_replacements("tensorflow.python.eager.context:Context._set_device")
def _set_device(native: Function, self: Context, name: DeviceName, spec: object) -> None:
    real_name = to_real(_existing(self, name)) or ""
    if not _HAS_DEVICE_TYPE.search(real_name):
        real_name += f"/device:CPU:{hardware.replaced_gpus.first}"
    native(self, real_name, spec)


def _existing(running: Context, name: DeviceName) -> DeviceName:
    """The name of the device that TensorFlow uses for this name.

    In place of a GPU that does not exist, soft placement uses GPU 0. Without soft placement,
    TensorFlow's error is raised.
    """
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
def _current_device(native: Function) -> DeviceName:
    is_eager = ops.executing_eagerly_outside_functions()
    if is_eager and not runtime().device_spec.device_type:
        return ""  # the program has named no device
    return to_shown(native())


@_replacements("tensorflow.python.distribute.cross_device_utils:CollectiveReplicaLauncher.__init__")
def _launch_with_ring(native: Function, self: object, *args: Any) -> None:
    *first_args, options = args
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options_class = names.value("tensorflow.python.distribute.collective_util:Options")
    ring_options = options_class(options.bytes_per_pack, options.timeout_seconds, ring)
    native(self, *first_args, ring_options)


@_replacements("tensorflow.python.distribute.cross_device_ops:AllReduceCrossDeviceOps.__init__")
def _reduce_by_copies(
    native: Function, self: object, all_reduce_alg: str = "nccl", num_packs: int = 1
) -> None:
    if all_reduce_alg == "nccl":
        all_reduce_alg = "hierarchical_copy"
    native(self, all_reduce_alg, num_packs)


@_replacements("tensorflow.python.ops.nccl_ops:_apply_all_reduce")
def _reduce_on_each_device(_: Function, reduction: str, tensors: list[Tensor]) -> list[Tensor]:
    reduce = getattr(tf, f"reduce_{reduction}")
    results = []
    for tensor in tensors:
        with tf.device(tensor.device):
            results.append(reduce(tf.stack(tensors), axis=0))
    return results
