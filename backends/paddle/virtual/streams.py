"""Streams, events and flags of virtual GPUs that stand in under PaddlePaddle."""

import sys
import time
from importlib import import_module
from typing import Any

from xdevice.backends.paddle.hardware import WORD

_FLAGS: dict[str, Any] = {
    **dict.fromkeys(("cudnn_deterministic", "cudnn_exhaustive_search", "cudnn_batchnorm_spatial_persistent"), False),
    **dict.fromkeys(("enable_cublas_tensor_op_math", "gemm_use_half_precision_compute_type"), False),
    "selected_gpus": "",
    "sync_nccl_allreduce": True,
    "nccl_blocking_wait": False,
    "embedding_deterministic": 0,
    "conv_workspace_size_limit": 512,
    "cudnn_exhaustive_search_times": -1,
}
"""What only builds with CUDA have, with its default. The values change nothing on virtual GPUs."""

_FALLBACK = "FLAGS_enable_api_kernel_fallback"  # it stays on: all that virtual GPUs have is the CPU's kernels


def start(core: Any) -> None:
    """Provide them; ``core`` has the places already."""
    _make_streams(core)
    framework: Any = import_module("paddle.base.framework")
    framework._global_flags_ = _Flags(framework._global_flags_)


class _Flags:
    """PaddlePaddle's flags, and those that its build lacks."""

    def __init__(self, known: Any) -> None:
        self._known, self._more = known, {f"FLAGS_{name}": value for name, value in _FLAGS.items()}
        self._more = {name: value for name, value in self._more.items() if not known.is_public(name)}
        self._more[_FALLBACK] = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._known, name)

    def is_public(self, name: str) -> bool:
        return name in self._more or bool(self._known.is_public(name))

    def __contains__(self, name: str) -> bool:
        return name in self._more or name in self._known

    def __getitem__(self, name: str) -> Any:
        return self._more[name] if name in self._more else self._known[name]

    def __setitem__(self, name: str, value: Any) -> None:
        (self._more if name in self._more else self._known)[name] = value

    def update_linked_vars(self, name: str, value: str) -> None:
        if f"FLAGS_{name}" not in self._more:
            self._known.update_linked_vars(name, value)


def _make_streams(core: Any) -> None:
    class Meta(type(core.CustomDeviceStream)):  # type: ignore[misc]  # known at run time
        def __instancecheck__(cls, stream: Any) -> bool:  # pyright: ignore[reportSelfClsParameterName]  # of a metaclass
            return isinstance(stream, core.CustomDeviceStream)

    class Stream(core.CustomDeviceStream, metaclass=Meta):  # type: ignore[misc]  # likewise
        def __init__(self, device: Any = None, priority: int = 2, *_: Any) -> None:
            if not isinstance(device, core.CUDAPlace):
                device = core.CUDAPlace(core.get_cuda_current_device_id() if device is None else int(device))
            super().__init__(device, priority=priority)

    class Event(core.CustomDeviceEvent):  # type: ignore[misc]  # likewise
        """All work is done when it is asked for, so the time is the host's."""

        def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
            super().__init__(core.CUDAPlace(core.get_cuda_current_device_id()), enable_timing, blocking, interprocess)

        def record(self, stream: Any = None) -> None:
            self.at = time.perf_counter()

        def elapsed_time(self, end: Any) -> float:
            return float(end.at - self.at) * 1e3

        def query(self) -> bool:
            return True

    _provide(core, Stream, Event)


def _provide(core: Any, stream_class: Any, event_class: Any) -> None:
    cuda: Any = sys.modules["paddle.device.cuda"]
    names = import_module("paddle.device").set_device.__globals__  # type: ignore[attr-defined, unused-ignore]  # it has it
    cuda.Stream, cuda.Event = stream_class, event_class

    def create_stream(device_id: Any = None, priority: int = 2, **_: Any) -> Any:
        return stream_class(device_id, priority)

    def create_event(enable_timing: bool = False, blocking: bool = False, **_: Any) -> Any:
        return event_class(enable_timing, blocking)

    cuda.create_stream = names["_create_stream_base"] = create_stream
    cuda.create_event = names["_create_event_base"] = create_event

    def get_current(index: int) -> Any:
        here = core.get_cuda_current_device_id() if index < 0 else index
        return core._get_current_custom_device_stream(WORD, here)

    def set_current(stream: Any) -> Any:
        return core._set_current_custom_device_stream(WORD, stream.place.get_device_id(), stream)

    core._get_current_stream, core._set_current_stream = get_current, set_current
