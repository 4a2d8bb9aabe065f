"""The streams and events of virtual GPUs that stand in. Operations are synchronous."""

import sys
import time
from importlib import import_module
from typing import Any

from paddle.base import core as _core

from xdevice.backends.paddle.hardware import WORD
from xdevice.virtual.paddle.answers import replace_in_core
from xdevice.virtual.paddle.places import NativeClass, base_class_of, current_gpu, gpu_index
from xdevice.virtual.paddle.private_names import names, replace_name

core: Any = _core
_device: Any = import_module("paddle.device")


def replace_streams() -> None:
    if not names.has("streams and events"):
        return
    stream_class, event_class = _stream_class(), _event_class()

    def create_stream(device_id: Any = None, priority: int = 2, **_: object) -> Any:
        return stream_class(device_id, priority)

    def create_event(enable_timing: bool = False, blocking: bool = False, **_: object) -> Any:
        return event_class(enable_timing, blocking)

    replacements = {
        "Stream": stream_class,
        "Event": event_class,
        "create_stream": create_stream,
        "create_event": create_event,
    }
    for name, value in replacements.items():
        replace_name(f"paddle.device.cuda:{name}", value)
    cuda: Any = sys.modules["paddle.device.cuda"]
    # the functions of paddle.device do not read the module's attributes in sys.modules, but these
    device_globals = _device.set_device.__globals__
    device_globals["_create_stream_base"] = cuda.create_stream
    device_globals["_create_event_base"] = cuda.create_event
    get_stream = core._get_current_custom_device_stream
    set_stream = core._set_current_custom_device_stream
    replace_in_core(
        {
            "_get_current_stream": lambda index: get_stream(WORD, gpu_index(index)),
            "_set_current_stream": lambda stream: set_stream(
                WORD, stream.place.get_device_id(), stream
            ),
        }
    )


def _stream_class() -> NativeClass:
    base = base_class_of(core.CustomDeviceStream, lambda _: True)

    class Stream(base):  # type: ignore[misc, valid-type]  # known at run time
        def __init__(self, device: Any = None, priority: int = 2, *_: object) -> None:
            if device is None:
                device = core.CUDAPlace(current_gpu())
            elif not isinstance(device, core.CUDAPlace):
                device = core.CUDAPlace(int(device))
            super().__init__(device, priority=priority)

    return Stream


def _event_class() -> NativeClass:
    class Event(core.CustomDeviceEvent):  # type: ignore[misc]  # likewise
        """An event whose elapsed time is the host's."""

        def __init__(
            self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
        ) -> None:
            super().__init__(core.CUDAPlace(current_gpu()), enable_timing, blocking, interprocess)

        def record(self, stream: object = None) -> None:
            self.seconds = time.perf_counter()

        def elapsed_time(self, end: Any) -> float:
            return float(end.seconds - self.seconds) * 1e3

        def query(self) -> bool:
            return True

    return Event
