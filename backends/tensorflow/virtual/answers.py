"""What TensorFlow is asked about GPUs while virtual ones stand in: `tf.test`, ``device_lib`` and memory.

Memory counts the tensors and variables that Python's collector knows; what operations use meanwhile is not in it,
and the peak is the most that has been seen when asked.
"""

import gc
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import test_util
from tensorflow.python.platform import test

from xdevice.backends.tensorflow.private_names import context, in_place_of

_peaks: dict[str, int] = {}


def start(to_real: Callable[[Any], Any]) -> None:
    """Answer for the GPUs; ``to_real`` gives the runtime's name for a device."""
    _answer_tests()
    _answer_build()
    _answer_lists()
    _answer_memory(to_real)


def _gpus() -> list[Any]:
    return list(context.context().list_logical_devices("GPU"))


def _answer_tests() -> None:
    answers: dict[str, Callable[..., Any]] = {
        "is_gpu_available": lambda cuda_only=False, min_cuda_compute_capability=None: bool(_gpus()),
        "gpu_device_name": lambda: _gpus()[0].name.replace("/job:localhost/replica:0/task:0", "") if _gpus() else "",
        "is_built_with_cuda": lambda: True,
        "is_built_with_gpu_support": lambda: True,
    }
    public: Any = tf
    for home in (test_util, test, public.test, public.compat.v1.test):
        for name in answers.keys() & vars(home).keys():
            setattr(home, name, answers[name])


def _answer_build() -> None:
    """Programs print these before they train."""
    known = tf.sysconfig.get_build_info
    asked = {"is_cuda_build": True, "cuda_version": "virtual", "cudnn_version": "virtual"}
    for home in (tf.sysconfig, tf.compat.v1.sysconfig):
        home.get_build_info = lambda: {**known(), **asked}  # type: ignore[method-assign, assignment, unused-ignore]


def _answer_lists() -> None:
    @in_place_of("tensorflow.python.client.device_lib:list_local_devices")
    def list_local_devices(listed: Any, session_config: Any = None) -> list[Any]:
        found = [device for device in listed(session_config) if device.name.endswith("CPU:0")]
        make = type(found[0])
        said = "device: {}, name: xdevice virtual GPU, compute capability: 8.0"
        return found + [
            make(name=f"/device:GPU:{i}", device_type="GPU", physical_device_desc=said.format(i))
            for i, _ in enumerate(_gpus())
        ]


def _answer_memory(to_real: Callable[[Any], Any]) -> None:
    @in_place_of("tensorflow.python.eager.context:Context.get_memory_info")
    def info(known: Any, self: Any, device: str) -> dict[str, int]:
        name = _short(to_real(device))
        if name not in [_short(to_real(gpu.name)) for gpu in _gpus()]:
            return dict(known(self, device))
        used = _living_on(name, to_real)
        _peaks[name] = max(_peaks.get(name, 0), used)
        return {"current": used, "peak": _peaks[name]}

    @in_place_of("tensorflow.python.eager.context:Context.reset_memory_stats")
    def reset(forget: Any, self: Any, device: str) -> None:
        name = _short(to_real(device))
        if name not in [_short(to_real(gpu.name)) for gpu in _gpus()]:
            forget(self, device)
        _peaks.pop(name, None)


def _short(name: str) -> str:
    return name.lower().rpartition("device:")[2].removeprefix("/")


def _living_on(name: str, to_real: Callable[[Any], Any]) -> int:
    """The bytes in the tensors and variables on a device."""
    public: Any = tf
    eager, total = public.__internal__.EagerTensor, 0
    for thing in gc.get_objects():
        if isinstance(thing, (eager, public.Variable)) and _short(to_real(_device_of(thing))) == name:
            total += (thing.shape.num_elements() or 0) * thing.dtype.size
    return total


def _device_of(thing: Any) -> str:
    try:
        return str(thing.device)
    except (AttributeError, ValueError):  # a variable that is being made, or one of a graph
        return ""
