"""PyTorch's modules, and packed sequences, which hold tensors and move as modules do."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import PackedSequence

from xdevice.backends.torch import in_keras
from xdevice.backends.torch.hardware import native
from xdevice.errors import NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdevice.device import Device


def tensors_of(model: torch.nn.Module | PackedSequence) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(model, PackedSequence):
        yield "data", model.data  # its lengths stay on the host wherever it is
        return
    if in_keras.is_keras(model):
        yield from in_keras.tensors_of(model)
        return
    yield from model.named_parameters()
    yield from model.named_buffers()


def move_model(model: Any, device: Device) -> Any:
    if in_keras.is_keras(model):
        return in_keras.move(model, native(device))
    if any(tensor.is_meta for _, tensor in tensors_of(model)) and device.kind != "meta":
        raise NotSupportedError(
            f"a {type(model).__name__} on meta:0 has no values to move; "
            f"its to_empty(device='{native(device)}') makes room for some"
        )
    return model.to(native(device))


def copy_models(models: list[Any]) -> list[Any]:
    ours = [model for model in models if in_keras.is_keras(model)]
    others = [model for model in models if not in_keras.is_keras(model)]
    found = dict(zip(map(id, ours), in_keras.copies(ours), strict=True))
    try:
        copied = copy.deepcopy(others)
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotSupportedError(f"torch cannot copy this model ({error}); build another and load_state_dict") from error
    for old, new in zip(others, copied, strict=True):
        if in_keras.is_inside(old):  # Keras copies its layers to a device of its own
            in_keras.settle(*([tensor for _, tensor in tensors_of(each)] for each in (old, new)))
    found |= zip(map(id, others), copied, strict=True)
    return [found[id(model)] for model in models]
