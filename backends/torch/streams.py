"""Copies to a GPU on a stream of their own, while the GPU computes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from xdevice.backends.torch.hardware import are_replaced, gpus, native, runtime
from xdevice.contract import Event, Stream
from xdevice.device import Device


def stream(device: Device) -> Stream | None:
    kind, _ = gpus()
    if kind not in ("cuda", "xpu") or are_replaced():
        return None
    return _CopyStream(runtime(kind, device), device)


class _CopyStream:
    """A stream for copies from the host, which run while the GPU computes on its other streams."""

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
        return _CopyEvent(self._module, self._device, self._stream.record_event(), tensors)


class _CopyEvent(NamedTuple):
    """An event behind the copies of these tensors."""

    module: Any
    device: torch.device
    event: Any
    tensors: Sequence[Any]

    def synchronize(self) -> None:
        self.event.synchronize()

    def wait(self) -> None:
        current = self.module.current_stream(self.device)
        current.wait_event(self.event)
        # their memory belongs to the copy stream, which would otherwise use it again too early
        for tensor in self.tensors:
            tensor.record_stream(current)
