"""TensorFlow's interfaces beside its eager context, while virtual GPUs stand in.

The names of devices are translated in calls of TensorFlow's runtime, in their results and in their
errors. The runtime has logical CPUs: ``CPU:0`` is the host, and ``CPU:i+1`` stands for ``GPU:i``.
If a program splits the CPU, its parts come first. In Python the names always say ``GPU``.

`tf.test`, ``device_lib`` and `tf.sysconfig` report the GPUs. Sessions of TensorFlow 1 and servers
of a cluster get as many logical CPUs as the context has. DTensor's meshes of GPUs consist of the
CPUs that stand for them, so their ``device_type()`` is ``CPU``.

DLPack's capsule of a virtual GPU's tensor says that its memory is on a GPU, so NumPy refuses it, as
it refuses a GPU's. An imported tensor is copied to its GPU, because TensorFlow reads its memory as
the host's.
"""

import re
from functools import lru_cache
from importlib import import_module
from inspect import signature
from typing import Any

import tensorflow as tf

from xdevice.backends.kit.dlpack import CPU, CUDA, device_in, labelled
from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.private_names import runtime
from xdevice.contract import NativeDevice, Tensor
from xdevice.virtual import request
from xdevice.virtual.tensorflow.private_names import (
    Capsule,
    Context,
    DeviceName,
    Error,
    Function,
    Operation,
    Replacements,
    Session,
    SessionConfig,
    names,
)

GPU = re.compile(r"(?i)\bGPU(?::(\d+|\*))?(?=/|$)")
_CPU_AT_END = re.compile(r"\bCPU:(\d+)$")
_CPU = re.compile(r"\bCPU:(\d+)\b")
_tf: Any = tf
_sessions = names.module("tensorflow.python.client.session")
_dtensor_config = names.module("tensorflow.dtensor.python.config")
_test_util = names.module("tensorflow.python.framework.test_util")
_test = names.module("tensorflow.python.platform.test")
_mesh_parameters = signature(_tf.experimental.dtensor.Mesh.__init__)
_SHOWN_PROPERTIES = (
    "EagerTensor.device",
    "EagerTensor.backing_device",
    "SymbolicTensor.device",
    "Operation.device",
)
_replacements = Replacements()


def start() -> None:
    # imported first, since it keeps references to functions of `gen_dataset_ops`
    import_module("tensorflow.python.data.ops.multi_device_iterator_ops")
    _replacements.apply()
    for name in _SHOWN_PROPERTIES:
        _show_gpus_in(f"tensorflow.python.framework.ops:{name}")
    if names.has("tf.test"):
        _replace_test_functions()
    if names.has("tf.sysconfig.get_build_info"):
        _replace_build_info()
    if names.has("DTensor"):
        _tf.experimental.dtensor.num_local_devices = _dtensor_config.num_local_devices


def _replace_test_functions() -> None:
    """Let `tf.test` say that there are GPUs."""

    def is_gpu_available(
        cuda_only: bool = False, min_cuda_compute_capability: object = None
    ) -> bool:
        return bool(_gpus())

    def gpu_device_name() -> str:
        gpus = _gpus()
        if not gpus:
            return ""
        return str(gpus[0].name).replace("/job:localhost/replica:0/task:0", "")

    functions: dict[str, Function] = {
        "is_gpu_available": is_gpu_available,
        "gpu_device_name": gpu_device_name,
        "is_built_with_cuda": lambda: True,
        "is_built_with_gpu_support": lambda: True,
    }
    for module in (_test_util, _test, _tf.test, _tf.compat.v1.test):
        for name in functions.keys() & vars(module).keys():
            setattr(module, name, functions[name])


def _replace_build_info() -> None:
    """Let `tf.sysconfig` describe a build with CUDA; programs print this before they train."""
    native = tf.sysconfig.get_build_info
    versions = {"cuda_version": "virtual", "cudnn_version": "virtual"}

    def get_build_info() -> dict[str, Any]:
        return {**native(), "is_cuda_build": True, **versions}

    for module in (_tf.sysconfig, _tf.compat.v1.sysconfig):
        module.get_build_info = get_build_info


def to_real(name: DeviceName) -> DeviceName:
    """The runtime's name of a device: ``CPU:i+1`` for ``GPU:i``, if the CPU is not split.

    Other names are returned as they are.
    """
    if not isinstance(name, str):
        return name
    first = hardware.replaced_gpus.first

    def cpu(gpu: re.Match[str]) -> str:
        index = 0 if gpu[1] in (None, "*") else int(gpu[1])
        return f"CPU:{index + first}"

    return GPU.sub(cpu, name)


@lru_cache(maxsize=1024)  # it is called for each operand of each operation
def to_shown(name: DeviceName) -> DeviceName:
    """The name of a device as a program sees it."""
    return _CPU_AT_END.sub(_shown_name, name) if isinstance(name, str) else name


def _shown_name(cpu: re.Match[str]) -> str:
    index = int(cpu[1]) - hardware.replaced_gpus.first
    return f"GPU:{index}" if index >= 0 else cpu[0]


def _show_gpus_in(path: str) -> None:
    """Let the property return the name that a program sees."""
    native = names.value(path)
    names.replace(path, property(lambda self: to_shown(native.__get__(self))))


@_replacements("tensorflow.python.framework.ops:_EagerTensorBase._copy_nograd")
def _copy_tensor(
    native: Function, self: Tensor, ctx: Context = None, device_name: DeviceName = None
) -> Tensor:
    try:
        return native(self, ctx, to_real(device_name))
    except RuntimeError as error:  # the device does not exist
        raise type(error)(_CPU.sub(_shown_name, str(error))) from None


@_replacements("tensorflow.python.framework.ops:Operation._set_device_from_string")
def _set_device(native: Function, self: Operation, device: DeviceName) -> None:
    native(self, to_real(device))


@_replacements("tensorflow.python.ops.gen_dataset_ops:multi_device_iterator")
@_replacements("tensorflow.python.ops.gen_dataset_ops:anonymous_multi_device_iterator")
@_replacements("tensorflow.python.ops.gen_dataset_ops:anonymous_multi_device_iterator_v3")
def _create_iterator(
    native: Function, devices: list[DeviceName], *args: object, **kwargs: object
) -> Any:
    return native([to_real(device) for device in devices], *args, **kwargs)


@_replacements("tensorflow.python.ops.functional_ops:remote_call")
def _call_remotely(
    native: Function, *args: object, target: DeviceName = None, **kwargs: object
) -> Any:
    return native(*args, target=to_real(target), **kwargs)


# the base of all errors, those of sessions included
@_replacements("tensorflow.python.framework.errors_impl:OpError.__init__")
def _init_error(
    native: Function, self: Error, node_def: object, op: object, message: object, *more: object
) -> None:
    if isinstance(message, str):
        message = _CPU.sub(_shown_name, message)
    native(self, node_def, op, message, *more)


def _gpus() -> list[NativeDevice]:
    return list(runtime().list_logical_devices("GPU"))


@_replacements("tensorflow.python.client.device_lib:list_local_devices")
def _list_local_devices(
    native: Function, session_config: SessionConfig = None
) -> list[NativeDevice]:
    devices = [device for device in native(session_config) if device.name.endswith("CPU:0")]
    device_class = type(devices[0])
    for i in range(len(_gpus())):
        description = f"device: {i}, name: {request.gpu_name()}, compute capability: 8.0"
        device = device_class(
            name=f"/device:GPU:{i}", physical_device_desc=description, device_type="GPU"
        )
        devices.append(device)
    return devices


def is_gpu(device: str) -> bool:
    return short_name(device) in [short_name(gpu.name) for gpu in _gpus()]


def short_name(name: str) -> str:
    """The runtime's name of a device, without the job and the task: ``cpu:1``."""
    return str(to_real(name)).lower().rpartition("device:")[2].removeprefix("/")


def device_name(tensor: Tensor) -> str:
    """The short name of the tensor's device; empty for a variable that has none."""
    try:
        return short_name(str(tensor.device))
    except (AttributeError, ValueError):  # it is not initialized yet, or belongs to a graph
        return ""


def _with_cpus_for_gpus(config: SessionConfig) -> SessionConfig:
    """The configuration with CPUs for the GPUs.

    A program may ask for fewer GPUs than there are.
    """
    new_config = _tf.compat.v1.ConfigProto()
    new_config.CopyFrom(config)
    number = hardware.count("gpu")
    if "GPU" in config.device_count:
        number = min(number, config.device_count["GPU"])
    new_config.device_count["CPU"] = number + hardware.replaced_gpus.first
    new_config.device_count["GPU"] = 0
    return new_config


@_replacements("tensorflow.python.client.session:BaseSession.__init__")
def _init_session(
    native: Function,
    self: Session,
    target: str = "",
    graph: object = None,
    config: SessionConfig = None,
) -> None:
    if not target and isinstance(config, _tf.compat.v1.ConfigProto):
        config = _with_cpus_for_gpus(config)
    native(self, target, graph, config)


@_replacements("tensorflow.python.client.session:BaseSession.list_devices")
def _list_devices_of_session(native: Function, self: Session) -> list[NativeDevice]:
    def renamed(device: NativeDevice) -> NativeDevice:
        name = to_shown(device.name)
        device_type = name.split(":")[-2]
        return _sessions._DeviceAttributes(
            name, device_type, device.memory_limit_bytes, device.incarnation
        )

    return [renamed(device) for device in native(self)]


@_replacements("tensorflow.python.training.server_lib:_make_server_def")
def _make_server_def(native: Function, *args: object, **kwargs: object) -> Any:
    server = native(*args, **kwargs)
    server.default_session_config.CopyFrom(_with_cpus_for_gpus(server.default_session_config))
    return server


@_replacements("tensorflow.dtensor.python.config:num_local_devices")
def _count_local_devices(native: Function, device_type: str) -> int:
    kind = device_type.lower()
    if kind in ("cpu", "gpu"):
        return hardware.count(kind)
    return int(native(device_type))


@_replacements("tensorflow.dtensor.python.layout:Mesh.__init__")
def _init_mesh(native: Function, self: object, *args: object, **kwargs: object) -> None:
    bound = _mesh_parameters.bind(self, *args, **kwargs)
    for parameter in ("local_devices", "global_devices"):
        devices = bound.arguments.get(parameter)
        if devices:
            bound.arguments[parameter] = [_real_name_of(device) for device in devices]
    native(*bound.args, **bound.kwargs)


def _real_name_of(device: NativeDevice) -> DeviceName:
    """The runtime's name of a device that is given by its name, or by its ``DeviceSpec``."""
    return to_real(device if isinstance(device, str) else device.to_string())


@_replacements("tensorflow.dtensor.python.layout:Mesh.local_devices")
def _list_devices_of_mesh(native: Function, self: object) -> list[DeviceName]:
    return [to_shown(name) for name in native(self)]


@_replacements("tensorflow.python.pywrap_tfe:TFE_ToDlpackCapsule")
def _to_dlpack(native: Function, tensor: Tensor) -> Capsule:
    index = _gpu_index(tensor)
    capsule = native(tensor)
    return capsule if index is None else labelled(capsule, CUDA, index)


@_replacements("tensorflow.python.pywrap_tfe:TFE_DlpackDevice")
def _dlpack_device(native: Function, tensor: Tensor, *more: object) -> tuple[int, int]:
    index = _gpu_index(tensor)
    return native(tensor, *more) if index is None else (CUDA, index)


@_replacements("tensorflow.python.pywrap_tfe:TFE_FromDlpackCapsule")
def _from_dlpack(native: Function, capsule: Capsule, ctx: Context) -> Tensor:
    device_type, index = device_in(capsule)
    if device_type != CUDA:
        return native(capsule, ctx)
    with tf.device(f"/GPU:{index}"):
        return tf.identity(native(labelled(capsule, CPU, 0), ctx))


def _gpu_index(tensor: object) -> int | None:
    """The index of the GPU where the tensor is; ``None`` if it is on the host."""
    if not isinstance(tensor, tf.Tensor):
        return None
    device = hardware.named(tensor.backing_device)
    return device.index if device.kind == "gpu" else None
