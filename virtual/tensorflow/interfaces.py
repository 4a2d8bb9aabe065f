"""TensorFlow's interfaces beside its eager context, while virtual GPUs stand in, and the names of devices in them.

Names are translated where they cross into TensorFlow's runtime and back, its errors included. The
runtime has logical CPUs: ``CPU:0`` is the host, ``CPU:i+1`` stands for ``GPU:i``; where a program
splits the CPU, they follow its parts. All of Python says ``GPU``.

`tf.test`, ``device_lib`` and the build answer for the GPUs. Their memory is that of the tensors and
variables that Python's garbage collector knows. It does not include the temporary memory of
operations, and the peak is ``nan``. Sessions of TensorFlow 1 and servers of a cluster are given as
many logical CPUs as the context has. DTensor's meshes of GPUs are made of the CPUs that stand for
them, so their ``device_type()`` is ``CPU``.

DLPack's capsule of a virtual GPU's tensor says that its memory is on a GPU, so NumPy refuses it, as
it refuses a GPU's. What arrives is copied to its GPU: to TensorFlow, the memory that it had is the
host's.
"""

import gc
import re
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from inspect import signature
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.placement import Eager
from xdevice.backends.tensorflow.private_names import runtime
from xdevice.kit.dlpack import CPU, CUDA, device_in, labelled
from xdevice.virtual.tensorflow.private_names import Replacements, names

GPU = re.compile(r"(?i)\bGPU(?::(\d+|\*))?(?=/|$)")
_CPU_AT_END = re.compile(r"\bCPU:(\d+)$")
_CPU = re.compile(r"\bCPU:(\d+)\b")
_tf: Any = tf
_sessions = names.module("tensorflow.python.client.session")
_dtensor_config = names.module("tensorflow.dtensor.python.config")
_test_util = names.module("tensorflow.python.framework.test_util")
_test = names.module("tensorflow.python.platform.test")
_mesh_parameters = signature(_tf.experimental.dtensor.Mesh.__init__)
# the host's allocator counts nothing; not None, since programs format it as a number
UNKNOWN = float("nan")
_replacements = Replacements()


def start() -> None:
    # imported first, since it keeps references to functions of `gen_dataset_ops`
    import_module("tensorflow.python.data.ops.multi_device_iterator_ops")
    _replacements.apply()
    for attribute in (
        "EagerTensor.device",
        "EagerTensor.backing_device",
        "SymbolicTensor.device",
        "Operation.device",
    ):
        _show(f"tensorflow.python.framework.ops:{attribute}")
    if names.has("tf.test"):
        _answer_tests()
    if names.has("tf.sysconfig.get_build_info"):
        _answer_build_info()
    if names.has("DTensor"):
        _tf.experimental.dtensor.num_local_devices = _dtensor_config.num_local_devices


def _answer_tests() -> None:
    """Let `tf.test` say that there are GPUs."""

    def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Any = None) -> bool:
        return bool(_gpus())

    def gpu_device_name() -> str:
        gpus = _gpus()
        return gpus[0].name.replace("/job:localhost/replica:0/task:0", "") if gpus else ""

    answers: dict[str, Callable[..., Any]] = {
        "is_gpu_available": is_gpu_available,
        "gpu_device_name": gpu_device_name,
        "is_built_with_cuda": lambda: True,
        "is_built_with_gpu_support": lambda: True,
    }
    for home in (_test_util, _test, _tf.test, _tf.compat.v1.test):
        for name in answers.keys() & vars(home).keys():
            setattr(home, name, answers[name])


def _answer_build_info() -> None:
    """Let `tf.sysconfig` say what programs print before they train."""
    build_info = tf.sysconfig.get_build_info
    versions = {"cuda_version": "virtual", "cudnn_version": "virtual"}
    for home in (_tf.sysconfig, _tf.compat.v1.sysconfig):
        home.get_build_info = lambda: {**build_info(), "is_cuda_build": True, **versions}


def to_real(name: Any) -> Any:
    """The runtime's name of a device: GPU:i is its CPU:i+1, if the CPU is not split; other names stay."""
    if not isinstance(name, str):
        return name
    first = hardware.replaced_gpus.first

    def cpu(gpu: re.Match[str]) -> str:
        index = 0 if gpu[1] in (None, "*") else int(gpu[1])
        return f"CPU:{index + first}"

    return GPU.sub(cpu, name)


@lru_cache(maxsize=1024)  # it is called for each operand of each operation
def to_shown(name: Any) -> Any:
    """The name of a device as a program sees it."""
    return _CPU_AT_END.sub(_shown, name) if isinstance(name, str) else name


def _shown(cpu: re.Match[str]) -> str:
    index = int(cpu[1]) - hardware.replaced_gpus.first
    return f"GPU:{index}" if index >= 0 else cpu[0]


def _show(path: str) -> None:
    """Let the property give the name that a program sees."""
    getter = names.value(path)
    names.replace(path, property(lambda self: to_shown(getter.__get__(self))))


@_replacements("tensorflow.python.framework.ops:_EagerTensorBase._copy_nograd")
def _copied(copy: Any, self: Any, ctx: Any = None, device_name: Any = None) -> Any:
    try:
        return copy(self, ctx, to_real(device_name))
    except RuntimeError as error:  # of a device that does not exist
        raise type(error)(_CPU.sub(_shown, str(error))) from None


@_replacements("tensorflow.python.framework.ops:Operation._set_device_from_string")
def _set(name: Any, self: Any, device: Any) -> Any:
    return name(self, to_real(device))


@_replacements("tensorflow.python.ops.gen_dataset_ops:multi_device_iterator")
@_replacements("tensorflow.python.ops.gen_dataset_ops:anonymous_multi_device_iterator")
@_replacements("tensorflow.python.ops.gen_dataset_ops:anonymous_multi_device_iterator_v3")
def _iterated(run: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
    return run([to_real(d) for d in devices], *args, **kwargs)


@_replacements("tensorflow.python.ops.functional_ops:remote_call")
def _called(call: Any, *args: Any, target: Any = None, **kwargs: Any) -> Any:
    return call(*args, target=to_real(target), **kwargs)


# the base of all errors, those of sessions included
@_replacements("tensorflow.python.framework.errors_impl:OpError.__init__")
def _init_error(init: Any, self: Any, node_def: Any, op: Any, message: Any, *others: Any) -> None:
    if isinstance(message, str):
        message = _CPU.sub(_shown, message)
    init(self, node_def, op, message, *others)


def _gpus() -> list[Any]:
    return list(runtime().list_logical_devices("GPU"))


@_replacements("tensorflow.python.client.device_lib:list_local_devices")
def _list_local(listed: Any, session_config: Any = None) -> list[Any]:
    devices = [device for device in listed(session_config) if device.name.endswith("CPU:0")]
    make = type(devices[0])
    for i in range(len(_gpus())):
        description = f"device: {i}, name: xdevice virtual GPU, compute capability: 8.0"
        name = f"/device:GPU:{i}"
        devices.append(make(name=name, physical_device_desc=description, device_type="GPU"))
    return devices


@_replacements("tensorflow.python.eager.context:Context.get_memory_info")
def _tell_memory(known: Any, self: Any, device: str) -> dict[str, float]:
    name = _short(device)
    if name not in [_short(gpu.name) for gpu in _gpus()]:
        return dict(known(self, device))
    tensors = [each for each in gc.get_objects() if isinstance(each, (Eager, tf.Variable))]
    on_device = [tensor for tensor in tensors if _device_name(tensor) == name]
    nbytes = sum((tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in on_device)
    return {"current": nbytes, "peak": UNKNOWN}


@_replacements("tensorflow.python.eager.context:Context.reset_memory_stats")
def _forget_peak(forget: Any, self: Any, device: str) -> None:
    if _short(device) not in [_short(gpu.name) for gpu in _gpus()]:
        forget(self, device)


def _short(name: str) -> str:
    return str(to_real(name)).lower().rpartition("device:")[2].removeprefix("/")


def _device_name(tensor: Any) -> str:
    try:
        return _short(str(tensor.device))
    except (AttributeError, ValueError):  # a variable that is being made, or one of a graph
        return ""


def _with_cpus_for_gpus(config: Any) -> Any:
    """The configuration with CPUs for the GPUs, of which a program may ask for fewer than there are."""
    new_config = _tf.compat.v1.ConfigProto()
    new_config.CopyFrom(config)
    number = hardware.count("gpu")
    if "GPU" in config.device_count:
        number = min(number, config.device_count["GPU"])
    new_config.device_count["CPU"] = number + hardware.replaced_gpus.first
    new_config.device_count["GPU"] = 0
    return new_config


@_replacements("tensorflow.python.client.session:BaseSession.__init__")
def _begin_session(
    begin: Any, self: Any, target: Any = "", graph: Any = None, config: Any = None
) -> None:
    if not target and isinstance(config, _tf.compat.v1.ConfigProto):
        config = _with_cpus_for_gpus(config)
    begin(self, target, graph, config)


@_replacements("tensorflow.python.client.session:BaseSession.list_devices")
def _list_of_session(listed: Any, self: Any) -> list[Any]:
    def renamed(device: Any) -> Any:
        name = to_shown(device.name)
        device_type = name.split(":")[-2]
        return _sessions._DeviceAttributes(
            name, device_type, device.memory_limit_bytes, device.incarnation
        )

    return [renamed(device) for device in listed(self)]


@_replacements("tensorflow.python.training.server_lib:_make_server_def")
def _serve(make: Any, *args: Any, **kwargs: Any) -> Any:
    server = make(*args, **kwargs)
    server.default_session_config.CopyFrom(_with_cpus_for_gpus(server.default_session_config))
    return server


@_replacements("tensorflow.dtensor.python.config:num_local_devices")
def _count_local(counted: Any, device_type: str) -> int:
    word = device_type.lower()
    return hardware.count(word) if word in ("cpu", "gpu") else int(counted(device_type))


@_replacements("tensorflow.dtensor.python.layout:Mesh.__init__")
def _begin_mesh(begin: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    bound = _mesh_parameters.bind(self, *args, **kwargs)
    for parameter in ("local_devices", "global_devices"):
        devices = bound.arguments.get(parameter)
        if devices:
            device_names = [d if isinstance(d, str) else d.to_string() for d in devices]
            bound.arguments[parameter] = [to_real(name) for name in device_names]
    begin(*bound.args, **bound.kwargs)


@_replacements("tensorflow.dtensor.python.layout:Mesh.local_devices")
def _list_of_mesh(listed: Any, self: Any) -> list[Any]:
    return [to_shown(name) for name in listed(self)]


@_replacements("tensorflow.python.pywrap_tfe:TFE_ToDlpackCapsule")
def _export(export: Any, tensor: Any) -> Any:
    index = _gpu_of(tensor)
    capsule = export(tensor)
    return capsule if index is None else labelled(capsule, CUDA, index)


@_replacements("tensorflow.python.pywrap_tfe:TFE_DlpackDevice")
def _tell_device(where: Any, tensor: Any, *more: Any) -> tuple[int, int]:
    index = _gpu_of(tensor)
    return where(tensor, *more) if index is None else (CUDA, index)


@_replacements("tensorflow.python.pywrap_tfe:TFE_FromDlpackCapsule")
def _take(take: Any, capsule: Any, ctx: Any) -> Any:
    kind, index = device_in(capsule)
    if kind != CUDA:
        return take(capsule, ctx)
    with tf.device(f"/GPU:{index}"):
        return tf.identity(take(labelled(capsule, CPU, 0), ctx))


def _gpu_of(tensor: Any) -> int | None:
    """The index of the GPU where the tensor is; ``None`` if it is elsewhere."""
    if not isinstance(tensor, tf.Tensor):
        return None
    device = hardware.named(tensor.backing_device)
    return device.index if device.kind == "gpu" else None
