"""Copies to a GPU beside what it computes: on a stream of their own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from xdevice.backends.torch.hardware import gpus, is_virtual, native, runtime
from xdevice.contract import Lane, Mark
from xdevice.device import Device


def lane(device: Device) -> Lane | None:
    kind, _ = gpus()
    can = kind in ("cuda", "xpu") and not is_virtual()  # virtual GPUs copy at once
    return _Lane(runtime(kind, device), device) if can else None


class _Lane:
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

    def mark(self, tensors: Sequence[Any]) -> Mark:
        return _Mark(self._module, self._device, self._stream.record_event(), tensors)


class _Mark(NamedTuple):
    """An event behind what was queued."""

    module: Any
    device: torch.device
    event: Any
    tensors: Sequence[Any]

    def wait(self) -> None:
        self.event.synchronize()

    def join(self) -> None:
        stream = self.module.current_stream(self.device)
        stream.wait_event(self.event)
        for tensor in self.tensors:
            tensor.record_stream(
                stream
            )  # its memory is of the side stream's, which would use it again at once
