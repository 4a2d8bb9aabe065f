"""Mixed precision, streams and events of virtual GPUs that stand in under PaddlePaddle."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

from xdevice.backends.paddle.hardware import WORD


def start(core: Any) -> None:
    """Provide them; ``core`` has the places already."""
    _cast_what_has_a_kernel(core)
    _make_streams(core)


def _cast_what_has_a_kernel(core: Any) -> None:
    """Keep in float32 within `auto_cast` what has no float16 kernel on the CPU, as black-listed operations are."""
    home: Any = import_module("paddle.amp.auto_cast")
    kernels = core._get_registered_phi_kernels("function")
    able = {op for op, known in kernels.items() if any("CPU" in k and ", float16)" in k for k in known)}
    update = home._update_list

    def updated(white: Any, black: Any, level: str = "O1", dtype: str = "float16") -> Any:
        whites, blacks = update(white, black, level, dtype)
        return (whites & able, blacks | (set(kernels) | whites) - able) if dtype == "float16" else (whites, blacks)

    home._update_list = updated


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
