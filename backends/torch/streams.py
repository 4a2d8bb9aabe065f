"""Copies to a GPU beside what it computes: on a stream of their own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from xdevice.backends.torch.hardware import are_replaced, gpus, native, runtime
from xdevice.contract import Event, Stream
from xdevice.device import Device


def stream(device: Device) -> Stream | None:
    kind, _ = gpus()
    can = kind in ("cuda", "xpu") and not are_replaced()
    return _Side(runtime(kind, device), device) if can else None


class _Side:
    """A side stream for copies from the host: they run beside what is computed on the GPU."""

    def __init__(self, module: Any, device: Device) -> None:
        self._module, self._device = module, native(device)
        self._stream = module.Stream(self._device)
        self._entered: list[Any] = []

    def __enter__(self) -> None:
        self._entered.append(self._module.stream(self._stream))
        self._entered[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if tensor.is_cpu and not tensor.is_pinned() else tensor

    def record(self, tensors: Sequence[Any]) -> Event:
        return _Recorded(self._module, self._device, self._stream.record_event(), tensors)


class _Recorded(NamedTuple):
    """An event behind what was queued."""

    module: Any
    device: torch.device
    event: Any
    tensors: Sequence[Any]

    def synchronize(self) -> None:
        self.event.synchronize()

    def wait(self) -> None:
        current = self.module.current_stream(self.device)
        current.wait_event(self.event)
        for tensor in self.tensors:  # the side stream's memory, which would be used again at once
            tensor.record_stream(current)
