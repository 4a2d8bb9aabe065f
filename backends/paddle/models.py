"""PaddlePaddle layers."""

import copy
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from xdevice.backends.paddle.hardware import device_at, spelling
from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.errors import NotSupportedError

Layer: TypeAlias = Any
NativeTensor: TypeAlias = Any  # the object of PaddlePaddle's C++ library behind a tensor


def tensors_of(model: Layer) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if device_at(buffer.place) is not None:
            yield name, buffer


def move_model(model: Layer, device: Device) -> Layer:
    dtype = model._dtype
    with _without_empty_buffers(model):
        # in place; versions below 3.3 accept a string and not a place
        moved = model.to(spelling(device))
    moved._dtype = dtype  # for parameters that are created later; 3.3.1 resets it
    return moved


@contextmanager
def _without_empty_buffers(model: Layer) -> Generator[None]:
    """Remove buffers without values for a block, since PaddlePaddle 3.3.1 fails to move them.

    An LSTM has such a buffer, which has values on real GPUs only.
    """
    removed: list[tuple[dict[str, Tensor], str, Tensor]] = []
    for layer in model.sublayers(include_self=True):
        for name, buffer in list(layer._buffers.items()):
            if buffer is not None and device_at(buffer.place) is None:
                removed.append((layer._buffers, name, buffer))
                del layer._buffers[name]
    try:
        yield
    finally:
        for buffers, name, buffer in removed:
            buffers[name] = buffer


def keep(model: Layer) -> Callable[[], None]:
    tensors = [tensor for _, tensor in tensors_of(model)]
    tensors += [tensor.grad for tensor in tensors if tensor.grad is not None]
    native_tensors = [tensor.value().get_tensor() for tensor in tensors]
    saved = [(native, _with_same_memory(native)) for native in native_tensors]

    def put_back() -> None:
        for native, previous in saved:
            native._share_data_with(previous)

    return put_back


def _with_same_memory(native: NativeTensor) -> NativeTensor:
    """Another tensor with the same memory."""
    other = type(native)()
    other._share_data_with(native)
    return other


def copy_models(models: list[Layer]) -> list[Layer]:
    try:
        return copy.deepcopy(models)
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotSupportedError(
            f"paddle cannot copy this layer ({error}); build another and set_state_dict"
        ) from error
