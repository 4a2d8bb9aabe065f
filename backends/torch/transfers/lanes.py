"""A stream of its own for copies from the host: they run beside what is computed on the GPU."""

from collections.abc import Sequence
from typing import Any

import torch

from xdevice.backends.torch.hardware import gpus, native, runtime
from xdevice.contract import Lane, Mark
from xdevice.device import Device


def lane(device: Device) -> Lane | None:
    kind, _ = gpus()
    return _Lane(runtime(kind, device), device) if kind in ("cuda", "xpu") else None


class _Lane:
    """A side stream."""

    def __init__(self, module: Any, device: Device) -> None:
        self._module, self._device = module, native(device)
        self._stream = module.Stream(self._device)
        self._entered: list[Any] = []

    def __enter__(self) -> None:
        stream = self._module.stream(self._stream)
        stream.__enter__()
        self._entered.append(stream)

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory() if tensor.is_cpu and not tensor.is_pinned() else tensor

    def mark(self) -> Mark:
        return _Mark(self._module, self._device, self._stream.record_event())


class _Mark:
    """An event behind what was queued."""

    def __init__(self, module: Any, device: torch.device, event: Any) -> None:
        self._module, self._device, self._event = module, device, event

    def wait(self) -> None:
        self._event.synchronize()

    def join(self, tensors: Sequence[Any]) -> None:
        stream = self._module.current_stream(self._device)
        stream.wait_event(self._event)
        for tensor in tensors:
            tensor.record_stream(stream)  # its memory is of the side stream's, which would use it again at once
