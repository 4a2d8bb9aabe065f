"""Copies to a GPU on a stream of their own, while the GPU computes."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, TypeAlias

import torch

from xdevice.backends.torch.hardware import are_replaced, gpus, native, runtime
from xdevice.contract import Event, Stream, Tensor
from xdevice.device import Device

NativeEvent: TypeAlias = Any  # torch.cuda.Event, or the like


def stream(device: Device) -> Stream | None:
    kind, _ = gpus()
    if kind not in ("cuda", "xpu") or are_replaced():
        return None
    return _CopyStream(runtime(kind, device), device)


class _CopyStream:
    """A stream for copies from the host, which run while the GPU computes on its other streams."""

    def __init__(self, module: ModuleType, device: Device) -> None:
        self._module = module
        self._device = native(device)
        self._stream = module.Stream(self._device)
        self._contexts: list[AbstractContextManager[object]] = []  # the blocks that are open

    def __enter__(self) -> None:
        context = self._module.stream(self._stream)
        self._contexts.append(context)
        context.__enter__()

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._contexts.pop().__exit__(error_class, error, traceback)

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_cpu and not tensor.is_pinned():
            return tensor.pin_memory()
        return tensor

    def record(self, tensors: Sequence[Tensor]) -> Event:
        return _CopyEvent(self._module, self._device, self._stream.record_event(), tensors)


class _CopyEvent(NamedTuple):
    """An event after the copies that make these tensors."""

    module: ModuleType  # torch.cuda, or the like
    device: torch.device
    event: NativeEvent
    tensors: Sequence[Tensor]

    def synchronize(self) -> None:
        self.event.synchronize()

    def wait(self) -> None:
        current = self.module.current_stream(self.device)
        current.wait_event(self.event)
        # their memory belongs to the copy stream, which would otherwise use it again too early
        for tensor in self.tensors:
            tensor.record_stream(current)
