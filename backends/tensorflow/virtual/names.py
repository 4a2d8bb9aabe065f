"""Names of devices, translated where they cross into TensorFlow's runtime and back, its errors included.

The runtime has logical CPUs: ``CPU:0`` is the host, ``CPU:i+1`` stands for ``GPU:i``; where a program splits the CPU,
they follow its parts. All of Python says ``GPU``.
"""

import re
from functools import lru_cache
from importlib import import_module
from typing import Any

from xdevice.backends.tensorflow import hardware
from xdevice.backends.tensorflow.private_names import Instead, ops

GPU = re.compile(r"(?i)\bGPU(?::(\d+|\*))?(?=/|$)")
_HOST = re.compile(r"\bCPU:(\d+)$")
_HOSTS = re.compile(r"\bCPU:(\d+)\b")
_instead = Instead()


def start() -> None:
    """Translate them, from now on."""
    import_module("tensorflow.python.data.ops.multi_device_iterator_ops")  # it keeps references to `gen_dataset_ops`
    _instead.put()
    _show(ops.EagerTensor, "device", "backing_device")
    _show(ops.SymbolicTensor, "device")
    _show(ops.Operation, "device")


def to_real(name: Any) -> Any:
    """The runtime's name: GPU:i is its CPU:i+1, if the CPU is not split; what is real already stays."""
    if not isinstance(name, str):
        return name
    first = hardware.virtual.first
    return GPU.sub(lambda m: f"CPU:{int(m[1]) + first if (m[1] or '*') != '*' else first}", name)


@lru_cache(maxsize=1024)  # each operand of each operation is asked for its device
def to_shown(name: Any) -> Any:
    """The name that a program sees."""
    return _HOST.sub(_shown, name) if isinstance(name, str) else name


def _shown(host: re.Match[str]) -> str:
    index = int(host[1]) - hardware.virtual.first
    return f"GPU:{index}" if index >= 0 else host[0]


def _show(kind: Any, *words: str) -> None:
    for word in words:
        getter = vars(kind)[word] if word in vars(kind) else getattr(kind, word)

        def shown(self: Any, getter: Any = getter) -> Any:
            return to_shown(getter.__get__(self))

        setattr(kind, word, property(shown))


@_instead("tensorflow.python.framework.ops:_EagerTensorBase._copy_nograd")
def _copied(copy: Any, self: Any, ctx: Any = None, device_name: Any = None) -> Any:
    try:
        return copy(self, ctx, to_real(device_name))
    except RuntimeError as error:  # of a device that does not exist
        raise type(error)(_HOSTS.sub(_shown, str(error))) from None


@_instead("tensorflow.python.framework.ops:Operation._set_device_from_string")
def _set(name: Any, self: Any, device: Any) -> Any:
    return name(self, to_real(device))


@_instead(
    "tensorflow.python.ops.gen_dataset_ops:multi_device_iterator",
    "tensorflow.python.ops.gen_dataset_ops:anonymous_multi_device_iterator",
    "tensorflow.python.ops.gen_dataset_ops:anonymous_multi_device_iterator_v3",
)
def _iterated(run: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
    return run([to_real(d) for d in devices], *args, **kwargs)


@_instead("tensorflow.python.ops.functional_ops:remote_call")
def _called(call: Any, *args: Any, target: Any = None, **kwargs: Any) -> Any:
    return call(*args, target=to_real(target), **kwargs)


@_instead("tensorflow.python.framework.errors_impl:OpError.__init__")  # of all errors, also those of sessions
def _begin(begin: Any, self: Any, node_def: Any, op: Any, message: Any, *others: Any) -> None:
    begin(self, node_def, op, _HOSTS.sub(_shown, message) if isinstance(message, str) else message, *others)
