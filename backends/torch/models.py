"""PyTorch's modules, and packed sequences, which hold tensors and move as modules do."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence

from xdevice.backends.torch.hardware import native

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
    return model.to(native(device))


def copy_model(model: Any) -> Any:
    return copy.deepcopy(model)
