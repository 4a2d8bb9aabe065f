"""PyTorch's modules, and packed sequences, which hold tensors and move as modules do."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence

from xdevice.backends.torch.hardware import native
from xdevice.errors import NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdevice.device import Device


def tensors_of(model: torch.nn.Module | PackedSequence) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(model, PackedSequence):
        yield "data", model.data  # its lengths stay on the host wherever it is
        return
    yield from model.named_parameters()
    yield from model.named_buffers()


def move_model(model: Any, device: Device) -> Any:
    if any(tensor.is_meta for _, tensor in tensors_of(model)) and device.kind != "meta":
        raise NotSupportedError(
            f"a {type(model).__name__} on meta:0 has no values to move; "
            f"its to_empty(device='{native(device)}') makes room for some"
        )
    return model.to(native(device))


def copy_models(models: list[Any]) -> list[Any]:
    try:
        return copy.deepcopy(models)
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotSupportedError(f"torch cannot copy this model ({error}); build another and load_state_dict") from error
