"""TensorFlow's interfaces beside its eager context, while virtual GPUs stand in, and the names of devices in them.

Names are translated where they cross into TensorFlow's runtime and back, its errors included. The runtime has logical
CPUs: ``CPU:0`` is the host, ``CPU:i+1`` stands for ``GPU:i``; where a program splits the CPU, they follow its parts.
All of Python says ``GPU``.

`tf.test`, ``device_lib`` and the build answer for the GPUs. Their memory is that of the tensors and variables that
Python's collector knows; what operations use meanwhile is not in it, and the peak is ``nan``. Sessions of TensorFlow 1
and servers of a cluster are given as many logical CPUs as the context has. DTensor's meshes of GPUs are made of the
CPUs that stand for them, so their ``device_type()`` is ``CPU``.

DLPack's capsule of a virtual GPU's tensor says that its memory is on a GPU, so NumPy refuses it, as it refuses a GPU's.
What arrives is copied to its GPU: to TensorFlow, the memory that it had is the host's.
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
_HOST = re.compile(r"\bCPU:(\d+)$")
_HOSTS = re.compile(r"\bCPU:(\d+)\b")
_tf: Any = tf
_sessions, _meshes_of, _test_util, _test = (
    names.module(f"tensorflow.{home}")
    for home in (
        "python.client.session",
        "dtensor.python.config",
        "python.framework.test_util",
        "python.platform.test",
    )
)
_meshes = signature(_tf.experimental.dtensor.Mesh.__init__)
UNKNOWN = float(
    "nan"
)  # not a number: the allocator of the host counts nothing, and programs format what they get
_replacements = Replacements()


def start() -> None:
    import_module(
        "tensorflow.python.data.ops.multi_device_iterator_ops"
    )  # it keeps references to `gen_dataset_ops`
    _replacements.apply()
    for shown in (
        "EagerTensor.device",
        "EagerTensor.backing_device",
        "SymbolicTensor.device",
        "Operation.device",
    ):
        _show(f"tensorflow.python.framework.ops:{shown}")
    answers: dict[str, Callable[..., Any]] = {
        "is_gpu_available": lambda cuda_only=False, min_cuda_compute_capability=None: bool(_gpus()),
        "gpu_device_name": lambda: (
            _gpus()[0].name.replace("/job:localhost/replica:0/task:0", "") if _gpus() else ""
        ),
        "is_built_with_cuda": lambda: True,
        "is_built_with_gpu_support": lambda: True,
    }
    for home in (_test_util, _test, _tf.test, _tf.compat.v1.test) if names.has("tf.test") else ():
        for name in answers.keys() & vars(home).keys():
            setattr(home, name, answers[name])
    if names.has("tf.sysconfig.get_build_info"):  # programs print these before they train
        known, asked = (
            tf.sysconfig.get_build_info,
            dict.fromkeys(("cuda_version", "cudnn_version"), "virtual"),
        )
        for home in (_tf.sysconfig, _tf.compat.v1.sysconfig):
            home.get_build_info = lambda: {**known(), "is_cuda_build": True, **asked}
    if names.has("DTensor"):
        _tf.experimental.dtensor.num_local_devices = _meshes_of.num_local_devices


def to_real(name: Any) -> Any:
    """The runtime's name: GPU:i is its CPU:i+1, if the CPU is not split; what is real already stays."""
    if not isinstance(name, str):
        return name
    first = hardware.replaced_gpus.first
    return GPU.sub(lambda m: f"CPU:{int(m[1]) + first if (m[1] or '*') != '*' else first}", name)


@lru_cache(maxsize=1024)  # each operand of each operation is asked for its device
def to_shown(name: Any) -> Any:
    return _HOST.sub(_shown, name) if isinstance(name, str) else name


def _shown(host: re.Match[str]) -> str:
    index = int(host[1]) - hardware.replaced_gpus.first
    return f"GPU:{index}" if index >= 0 else host[0]


def _show(path: str) -> None:
    getter = names.value(path)
    names.replace(path, property(lambda self: to_shown(getter.__get__(self))))


@_replacements("tensorflow.python.framework.ops:_EagerTensorBase._copy_nograd")
def _copied(copy: Any, self: Any, ctx: Any = None, device_name: Any = None) -> Any:
    try:
        return copy(self, ctx, to_real(device_name))
    except RuntimeError as error:  # of a device that does not exist
        raise type(error)(_HOSTS.sub(_shown, str(error))) from None


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


@_replacements(
    "tensorflow.python.framework.errors_impl:OpError.__init__"
)  # of all errors, also those of sessions
def _begin(begin: Any, self: Any, node_def: Any, op: Any, message: Any, *others: Any) -> None:
    begin(
        self,
        node_def,
        op,
        _HOSTS.sub(_shown, message) if isinstance(message, str) else message,
        *others,
    )


def _gpus() -> list[Any]:
    return list(runtime().list_logical_devices("GPU"))


@_replacements("tensorflow.python.client.device_lib:list_local_devices")
def _list_local(listed: Any, session_config: Any = None) -> list[Any]:
    found = [device for device in listed(session_config) if device.name.endswith("CPU:0")]
    make, kind = type(found[0]), {"device_type": "GPU"}
    said = "device: {}, name: xdevice virtual GPU, compute capability: 8.0"
    numbers = range(len(_gpus()))
    return found + [
        make(name=f"/device:GPU:{i}", physical_device_desc=said.format(i), **kind) for i in numbers
    ]


@_replacements("tensorflow.python.eager.context:Context.get_memory_info")
def _tell_memory(known: Any, self: Any, device: str) -> dict[str, float]:
    name = _short(device)
    if name not in [_short(gpu.name) for gpu in _gpus()]:
        return dict(known(self, device))
    living = [
        thing
        for thing in gc.get_objects()
        if isinstance(thing, (Eager, tf.Variable)) and _home(thing) == name
    ]
    used = sum((thing.shape.num_elements() or 0) * thing.dtype.size for thing in living)
    return {"current": used, "peak": UNKNOWN}


@_replacements("tensorflow.python.eager.context:Context.reset_memory_stats")
def _forget_peak(forget: Any, self: Any, device: str) -> None:
    if _short(device) not in [_short(gpu.name) for gpu in _gpus()]:
        forget(self, device)


def _short(name: str) -> str:
    return str(to_real(name)).lower().rpartition("device:")[2].removeprefix("/")


def _home(thing: Any) -> str:
    try:
        return _short(str(thing.device))
    except (AttributeError, ValueError):  # a variable that is being made, or one of a graph
        return ""


def _counted(config: Any) -> Any:
    """The configuration with CPUs for the GPUs; a program that asks for none, or for fewer, gets so many."""
    made = _tf.compat.v1.ConfigProto()
    made.CopyFrom(config)
    there, asked = hardware.count("gpu"), config.device_count
    gpus = min(asked["GPU"], there) if "GPU" in asked else there
    made.device_count["CPU"], made.device_count["GPU"] = gpus + hardware.replaced_gpus.first, 0
    return made


@_replacements("tensorflow.python.client.session:BaseSession.__init__")
def _begin_session(
    begin: Any, self: Any, target: Any = "", graph: Any = None, config: Any = None
) -> None:
    here = not target and isinstance(config, _tf.compat.v1.ConfigProto)
    begin(self, target, graph, _counted(config) if here else config)


@_replacements("tensorflow.python.client.session:BaseSession.list_devices")
def _list_of_session(listed: Any, self: Any) -> list[Any]:
    make, found = (
        _sessions._DeviceAttributes,
        [(to_shown(device.name), device) for device in listed(self)],
    )
    return [
        make(name, name.split(":")[-2], device.memory_limit_bytes, device.incarnation)
        for name, device in found
    ]


@_replacements("tensorflow.python.training.server_lib:_make_server_def")
def _serve(make: Any, *args: Any, **kwargs: Any) -> Any:
    server = make(*args, **kwargs)
    server.default_session_config.CopyFrom(_counted(server.default_session_config))
    return server


@_replacements("tensorflow.dtensor.python.config:num_local_devices")
def _count_local(counted: Any, device_type: str) -> int:
    word = device_type.lower()
    return hardware.count(word) if word in ("cpu", "gpu") else int(counted(device_type))


@_replacements("tensorflow.dtensor.python.layout:Mesh.__init__")
def _begin_mesh(begin: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    given = _meshes.bind(self, *args, **kwargs)
    for word in ("local_devices", "global_devices"):
        devices = given.arguments.get(word)
        given.arguments[word] = devices and [
            to_real(d if isinstance(d, str) else d.to_string()) for d in devices
        ]
    begin(*given.args, **given.kwargs)


@_replacements("tensorflow.dtensor.python.layout:Mesh.local_devices")
def _list_of_mesh(listed: Any, self: Any) -> list[Any]:
    return [to_shown(name) for name in listed(self)]


@_replacements("tensorflow.python.pywrap_tfe:TFE_ToDlpackCapsule")
def _export(export: Any, tensor: Any) -> Any:
    index, capsule = _gpu_of(tensor), export(tensor)
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
    found = hardware.named(tensor.backing_device) if isinstance(tensor, tf.Tensor) else None
    return found.index if found is not None and found.kind == "gpu" else None
