"""PaddlePaddle layers."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from xdevice.backends.paddle.hardware import device_at, spelling
from xdevice.device import Device
from xdevice.errors import NotSupportedError


def tensors_of(model: Any) -> Iterator[tuple[str, Any]]:
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if device_at(buffer.place) is not None:
            yield name, buffer


def move_model(model: Any, device: Device) -> Any:
    dtype = model._dtype
    empty = [  # an LSTM has such a buffer, filled on real GPUs only, which 3.3.1 fails to move
        (layer._buffers, name, buffer)
        for layer in model.sublayers(include_self=True)
        for name, buffer in layer._buffers.items()
        if buffer is not None and device_at(buffer.place) is None
    ]
    for buffers, name, _ in empty:
        del buffers[name]
    try:
        moved = model.to(
            spelling(device)
        )  # in place; a string, since versions below 3.3 do not take a place
    finally:
        for buffers, name, buffer in empty:
            buffers[name] = buffer
    moved._dtype = dtype  # for parameters created later; 3.3.1 resets it
    return moved


def keep(model: Any) -> Callable[[], None]:
    tensors = [tensor for _, tensor in tensors_of(model)]
    tensors += [tensor.grad for tensor in tensors if tensor.grad is not None]
    kept = [
        (inside, _shared(inside)) for inside in (tensor.value().get_tensor() for tensor in tensors)
    ]

    def put_back() -> None:
        for inside, before in kept:
            inside._share_data_with(before)

    return put_back


def _shared(inside: Any) -> Any:
    """Another tensor with the same memory."""
    other = type(inside)()
    other._share_data_with(inside)
    return other


def copy_models(models: list[Any]) -> list[Any]:
    try:
        return copy.deepcopy(models)
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotSupportedError(
            f"paddle cannot copy this layer ({error}); build another and set_state_dict"
        ) from error
