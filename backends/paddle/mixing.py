"""Operations on tensors of several devices, for which PaddlePaddle raises no error.

It copies the tensors to one device.

While a strict block is open, every operation, and the backward pass, first checks the devices of
its tensors, in all threads. Operations inside the backward pass are not checked; they use one
device if the forward pass did. Recurrent layers and optimizers create their state on the default
device, which mixes devices unless they run within ``scope(device)``. Explicit copies (`_copy_to`,
`copy_`) are allowed. Assignment (``x[0] = y``) is not, since PaddlePaddle 3.3.1 moves ``x`` to the
device of ``y``.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import paddle

from xdevice.backends.paddle.calls import (
    BACKWARD,
    COPIES,
    LEGACY,
    Arguments,
    Keywords,
    computed_together,
    observing,
)
from xdevice.backends.paddle.placement import device_of
from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.errors import UnknownPlacementError, mixed

_Tensor: Any = paddle.Tensor

# The scalars of these operations, such as a learning rate or a power of Adam's beta, may be on any
# device. Scalars of other operations may be on the CPU, where PaddlePaddle creates its constants.
_OPTIMIZERS = frozenset(
    [
        "adadelta_",
        "adagrad_",
        "adam_",
        "adamax_",
        "adamw_",
        "asgd_",
        "fused_adam_",
        "lamb_",
        "merged_adam_",
        "merged_momentum_",
        "momentum_",
        "nadam_",
        "radam_",
        "rmsprop_",
        "rprop_",
        "sgd_",
    ]
)


class PlacedTensor(NamedTuple):
    """A tensor and its device."""

    tensor: Tensor
    device: Device


def forbid() -> AbstractContextManager[None]:
    return observing(_check)


def _check(name: str, args: Arguments, kwargs: Keywords) -> None:
    for arguments in computed_together(name, args, kwargs):
        tensors = mixture(name, arguments)
        if tensors:
            shown_name = "backward" if name in BACKWARD else name
            raise mixed(shown_name, {device for _, device in tensors})


def mixture(name: str, arguments: Iterable[Any]) -> list[PlacedTensor]:
    """An operation's tensors with their devices, if these differ.

    Scalars that may be on any device are left out.
    """
    if name in COPIES or name.startswith(LEGACY) or not _are_apart(_tensors(arguments)):
        return []
    tensors = list(_placed_tensors(name, arguments))
    devices = {device for _, device in tensors}
    return tensors if len(devices) > 1 else []


def _are_apart(tensors: Iterator[Tensor]) -> bool:
    """Whether the tensors, scalars included, have different places.

    This is tested first, because it is fast: a tensor's size takes 10 µs, and its device 5.
    """
    first_place = None
    for tensor in tensors:
        try:
            place = tensor.place
        except RuntimeError:  # the tensor has no value
            continue
        if first_place is None:
            first_place = place
        elif not first_place._equals(place):
            return True
    return False


def _tensors(arguments: Iterable[Any]) -> Iterator[Tensor]:
    for argument in arguments:
        if isinstance(argument, _Tensor):
            yield argument
        elif type(argument) in (list, tuple):
            yield from _tensors(argument)


def _placed_tensors(name: str, arguments: Iterable[Any]) -> Iterator[PlacedTensor]:
    for tensor in _tensors(arguments):
        try:
            device = device_of(tensor)
        except UnknownPlacementError:
            continue
        may_be_elsewhere = device.kind == "cpu" or name in _OPTIMIZERS
        if tensor.size != 1 or not may_be_elsewhere:
            yield PlacedTensor(tensor, device)
