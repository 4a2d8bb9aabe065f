"""The memory of PaddlePaddle tensors, and tensors on the memory of others."""

from __future__ import annotations

from typing import Any

import paddle

from xdevice.backends.paddle.placement import device_of


class _Exporter:
    """A tensor's memory; Paddle's own ``__dlpack_device__`` is ``(enum, None)``, which JAX does not take."""

    def __init__(self, tensor: Any) -> None:
        self._tensor, self.shape = tensor, tuple(tensor.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def __dlpack__(self, **asked: Any) -> Any:
        return self._tensor.__dlpack__(**asked)


def export(tensor: Any) -> tuple[Any, bool] | None:
    device_of(tensor)  # raises if there are no values
    return (_Exporter(tensor.detach()), True) if tensor.is_dense() and tensor.size else None


def adopt(exporter: Any, writable: bool) -> Any:
    return paddle.utils.dlpack.from_dlpack(exporter.__dlpack__()) if writable else None
