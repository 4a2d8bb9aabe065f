"""PaddlePaddle's layers."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from xdevice.backends.paddle.hardware import device_at, spelling
from xdevice.errors import NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdevice.device import Device


def tensors_of(model: Any) -> Iterator[tuple[str, Any]]:
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if device_at(buffer.place) is not None:  # an LSTM has one that is filled on a real GPU only
            yield name, buffer


def move_model(model: Any, device: Device) -> Any:
    return model.to(spelling(device))  # in place, parameters stay themselves; below 3.3 no place will do


def copy_models(models: list[Any]) -> list[Any]:
    try:
        return copy.deepcopy(models)
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotSupportedError(f"paddle cannot copy this layer ({error}); build another and set_state_dict") from error
