"""PaddlePaddle's layers."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from xdevice.backends.paddle.hardware import spelling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdevice.device import Device


def tensors_of(model: Any) -> Iterator[tuple[str, Any]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def move_model(model: Any, device: Device) -> Any:
    return model.to(spelling(device))  # in place, parameters stay themselves; below 3.3 no place will do


def copy_model(model: Any) -> Any:
    return copy.deepcopy(model)
