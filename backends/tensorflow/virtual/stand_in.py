"""TensorFlow programs written for GPUs, unedited: virtual GPUs answer to TensorFlow's own names for GPUs.

TensorFlow's runtime has logical CPUs: ``CPU:0`` is the host, ``CPU:i+1`` stands for ``GPU:i``; where a program splits
the CPU, they follow its parts. All of Python says ``GPU``. The names are translated where they cross into the runtime
and back, its errors included, and nowhere else. The physical GPUs are
put into the lists of TensorFlow's ``Context``, so its own checks of `set_visible_devices`, `set_memory_growth` and
`set_logical_device_configuration` hold; only the ``ConfigProto`` made of them counts CPUs instead. Where a program
names no type of device, the thread's device is GPU 0. Collectives that ask for NCCL get ring and hierarchical copy.

Libraries choose kernels by the list of GPUs (Keras: those of cuDNN, and NCHW), so the modules that do are told that
there is none. Differs from a GPU: small integers are shown on ``GPU:0`` too. Not supported: what the runtime
prints itself (``log_device_placement``, profiles and the device names within a ``SavedModel``) says ``CPU:1``; sessions
of TensorFlow 1 place on the CPU what names no device.
"""

import re
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import collective_util
from tensorflow.python.framework import errors

from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.private_names import context, in_place_of, ops
from xdevice.backends.tensorflow.virtual import answers, dlpack, layouts, runtimes, soft_placement
from xdevice.kit import virtual_request

NAME = "xdevice virtual GPU"
KERNELS = {
    *("keras.src.backend.tensorflow.rnn", "keras.src.backend.tensorflow.nn"),
    *("tf_keras.src.backend", "tf_keras.src.layers.rnn.gru", "tf_keras.src.layers.rnn.lstm"),
    "tf_keras.src.optimizers.optimizer",  # compiles each step with XLA, for seconds, where there are GPUs
}
"""Modules that choose kernels by the list of GPUs, of which the CPU has none; Keras 3.15 and 2.21 (``tf_keras``)."""

_GPU = re.compile(r"(?i)\bGPU(?::(\d+|\*))?(?=/|$)")
_HOST = re.compile(r"\bCPU:(\d+)$")
_HOSTS = re.compile(r"\bCPU:(\d+)\b")
_TYPED = re.compile(r"device:|PU:")


def start(n: int) -> None:
    """Let n virtual GPUs stand in; the runtime has not started."""
    gpus = [context.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(n)]
    _list_physical(gpus)
    _split_the_cpu()
    _list_logical()
    _place()
    _name_tensors()
    _name_operations()
    _name_arguments()
    _name_errors()
    _reduce_without_nccl()
    dlpack.start()
    layouts.start()
    if not virtual_request.current().lenient:
        soft_placement.start()
    answers.start(to_real)
    runtimes.start(to_real, to_shown)


def to_real(name: Any) -> Any:
    """The runtime's name: GPU:i is its CPU:i+1, if the CPU is not split; what is real already stays."""
    if not isinstance(name, str):
        return name
    first = hardware.virtual.first
    return _GPU.sub(lambda m: f"CPU:{int(m[1]) + first if (m[1] or '*') != '*' else first}", name)


@lru_cache(maxsize=1024)  # each operand of each operation is asked for its device
def to_shown(name: Any) -> Any:
    """The name that a program sees."""
    return _HOST.sub(_shown, name) if isinstance(name, str) else name


def _shown(host: re.Match[str]) -> str:
    index = int(host[1]) - hardware.virtual.first
    return f"GPU:{index}" if index >= 0 else host[0]


def _list_physical(gpus: list[Any]) -> None:
    """Put the GPUs among the physical devices of the context, and count CPUs for them in its configuration."""
    kind = context.Context
    config = kind.config.fget

    def add(self: Any) -> None:
        self._physical_devices += [g for g in gpus if g not in self._physical_devices]
        self._visible_device_list += [g for g in gpus if g not in self._visible_device_list]
        for gpu in gpus:
            self._memory_growth_map.setdefault(gpu, None)

    @in_place_of("tensorflow.python.eager.context:Context._initialize_physical_devices")
    def initialize(found: Any, self: Any, reinitialize: bool = False) -> None:
        if reinitialize or self._physical_devices is None:
            found(self, reinitialize)
            add(self)

    def counted(self: Any) -> Any:
        made = config(self)
        seen = [g for g in self._visible_device_list if g.device_type == "GPU"]
        gpus_seen = sum(len(self._virtual_device_map.get(g) or [g]) for g in seen)
        made.device_count["CPU"] = gpus_seen + hardware.virtual.first
        made.device_count["GPU"] = 0
        made.ClearField("gpu_options")
        return made

    @in_place_of("tensorflow.python.eager.context:Context.get_device_details")
    def details(known: Any, self: Any, device: Any) -> Any:
        return {"device_name": NAME} if device in gpus else known(self, device)

    kind.config = property(counted)
    in_place_of("tensorflow.python.eager.context:Context.list_physical_devices")(_without_gpus_for_kernels)
    current = context.context()
    if current._physical_devices is not None:
        add(current)


def _split_the_cpu() -> None:
    """Let the GPUs follow the parts into which a program splits the CPU."""

    @in_place_of("tensorflow.python.eager.context:Context.set_logical_device_configuration")
    def set_parts(split: Any, self: Any, device: Any, parts: Any) -> None:
        split(self, device, parts)
        if device.device_type == "CPU" and len(parts) != hardware.virtual.first:
            hardware.virtual.first = len(parts)
            to_shown.cache_clear()
            self._set_device("", self.device_spec)  # GPU 0 has another name from now on


def _list_logical() -> None:
    @in_place_of("tensorflow.python.eager.context:Context._initialize_logical_devices")
    def initialize(logical: Any, self: Any) -> None:
        logical(self)
        shown = [to_shown(device.name) for device in self._logical_devices]
        self._logical_devices = [context.LogicalDevice(name, name.split(":")[-2]) for name in shown]
        gpus = [device.name for device in self._logical_devices if device.device_type == "GPU"]
        server = self._server_def or self._collective_ops_server_def
        here = f"/job:{server.job_name}/replica:0/task:{server.task_index}/" if server is not None else "/device:"
        self._num_gpus = sum(name.startswith((here, "/device:")) for name in gpus)  # the others are other processes'
        hardware.virtual.number = self._num_gpus

    in_place_of("tensorflow.python.eager.context:Context.list_logical_devices")(_without_gpus_for_kernels)


def _without_gpus_for_kernels(every: Callable[..., list[Any]], self: Any, device_type: str | None = None) -> list[Any]:
    """The list of devices, without GPUs where a module asks that chooses kernels by it."""
    found = every(self, device_type)
    asks = sys._getframe(3).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]  # who asks
    return [device for device in found if device.device_type != "GPU"] if asks in KERNELS else found


def _place() -> None:
    """Make GPU 0 each thread's device where nothing else is said: the runtime begins with none, the CPU's."""
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]  # where a thread begins

    @in_place_of("tensorflow.python.eager.context:Context._set_device")
    def set_device(put: Any, self: Any, name: str, spec: Any) -> None:
        real = to_real(_existing(self, name)) or ""
        # GPU 0, where nothing says where
        put(self, real if _TYPED.search(real) else f"{real}/device:CPU:{hardware.virtual.first}", spec)

    def begin_thread(self: Any) -> None:
        current = context.context()
        current._set_device("", current.device_spec)
        begin(self)

    threading.Thread._bootstrap_inner = begin_thread  # type: ignore[attr-defined]  # as above
    current = context.context()
    current._set_device("", current.device_spec)

    @in_place_of("tensorflow.python.distribute.device_util:current")
    def device(now: Any) -> Any:
        eager = ops.executing_eagerly_outside_functions()
        return to_shown(now()) if not eager or context.context().device_spec.device_type else ""


def _existing(running: Any, name: Any) -> Any:
    """The name, or GPU 0 for one that does not exist, as soft placement chooses; without it TensorFlow's error."""
    asked = _GPU.search(name or "")
    if asked is None or (asked[1] or "*") == "*" or int(asked[1]) < hardware.count("gpu") or not hardware.is_own(name):
        return name
    if soft_placement.is_soft(running):
        return _GPU.sub("GPU:0", name)
    listed = ", ".join(device.name for device in running.list_logical_devices())
    said = (
        f"Could not satisfy device specification '{name}'. enable_soft_placement=0. Supported device types [GPU, CPU]. "
        f"All available devices [{listed}]."
    )
    raise errors.InvalidArgumentError(None, None, said)


def _name_tensors() -> None:
    for word in ("device", "backing_device"):
        _show(ops.EagerTensor, word)
    _show(ops.SymbolicTensor, "device")

    @in_place_of("tensorflow.python.framework.ops:_EagerTensorBase._copy_nograd")
    def copied(copy: Any, self: Any, ctx: Any = None, device_name: Any = None) -> Any:
        try:
            return copy(self, ctx, to_real(device_name))
        except RuntimeError as error:  # of a device that does not exist
            raise type(error)(_HOSTS.sub(_shown, str(error))) from None


def _name_operations() -> None:
    name = ops.Operation._set_device_from_string
    ops.Operation._set_device_from_string = lambda self, device: name(self, to_real(device))
    _show(ops.Operation, "device")


def _show(kind: Any, word: str) -> None:
    getter = kind.__dict__[word] if word in kind.__dict__ else getattr(kind, word)
    setattr(kind, word, property(lambda self: to_shown(getter.__get__(self))))


def _name_arguments() -> None:
    """Operations that take names of devices as arguments."""
    import_module("tensorflow.python.data.ops.multi_device_iterator_ops")  # it keeps references to these

    def translating(run: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
        return run([to_real(d) for d in devices], *args, **kwargs)

    for name in ("multi_device_iterator", "anonymous_multi_device_iterator", "anonymous_multi_device_iterator_v3"):
        in_place_of(f"tensorflow.python.ops.gen_dataset_ops:{name}")(translating)

    @in_place_of("tensorflow.python.ops.functional_ops:remote_call")
    def remote_call(call: Any, *args: Any, target: Any = None, **kwargs: Any) -> Any:
        return call(*args, target=to_real(target), **kwargs)


def _name_errors() -> None:
    """All errors of the runtime are made here, also those of sessions."""

    @in_place_of("tensorflow.python.framework.errors_impl:OpError.__init__")
    def begin_with_gpus(begin: Any, self: Any, node_def: Any, op: Any, message: Any, *others: Any) -> None:
        begin(self, node_def, op, _HOSTS.sub(_shown, message) if isinstance(message, str) else message, *others)


def _reduce_without_nccl() -> None:
    ring = collective_util.CommunicationImplementation.RING

    @in_place_of("tensorflow.python.distribute.cross_device_utils:CollectiveReplicaLauncher.__init__")
    def with_ring(launch: Any, self: Any, *others: Any) -> None:  # the last of which is the options
        *before, asked = others
        options = collective_util.Options(asked.bytes_per_pack, asked.timeout_seconds, ring)
        launch(self, *before, options)

    @in_place_of("tensorflow.python.distribute.cross_device_ops:AllReduceCrossDeviceOps.__init__")
    def with_copies(reduce: Any, self: Any, all_reduce_alg: str = "nccl", num_packs: int = 1) -> None:
        reduce(self, "hierarchical_copy" if all_reduce_alg == "nccl" else all_reduce_alg, num_packs)

    @in_place_of("tensorflow.python.ops.nccl_ops:_apply_all_reduce")
    def on_each(_: Any, reduction: str, tensors: Any) -> list[Any]:
        reduced = []
        for tensor in tensors:
            with tf.device(tensor.device):
                reduced.append(getattr(tf, f"reduce_{reduction}")(tf.stack(tensors), axis=0))
        return reduced
