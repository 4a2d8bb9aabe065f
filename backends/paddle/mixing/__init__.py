"""Operations on tensors of several devices, between which PaddlePaddle copies without an error.

While a strict block is open, every operation, and the backward pass, first checks the devices of its tensors, in all
threads. Operations inside the backward pass are not checked; they use one device if the forward pass did.
Recurrent layers and optimizers create their state on the default device, which mixes devices unless they run within
``scope(device)``. Explicit copies (`_copy_to`, `copy_`) are allowed. Assignment (``x[0] = y``) is not, since
PaddlePaddle 3.3.1 moves ``x`` to the device of ``y``.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import paddle

from xdevice.backends.paddle.mixing.calls import BACKWARD, COPYING, LEGACY, looking, pairs_of
from xdevice.backends.paddle.placement import device_of
from xdevice.device import Device
from xdevice.errors import UnknownPlacementError, mixed

_Tensor: type = paddle.Tensor
_OPTIMIZERS = frozenset(
    {"adadelta_", "adagrad_", "adam_", "adamax_", "adamw_", "asgd_", "fused_adam_", "lamb_", "merged_adam_"}
    | {"merged_momentum_", "momentum_", "nadam_", "radam_", "rmsprop_", "rprop_", "sgd_"}
)
"""Operations whose scalars, such as a learning rate or a power of Adam's beta, may be on any device.

In other operations only scalars on the CPU are ignored, since PaddlePaddle creates its constants there.
"""
_EXPLICIT = frozenset(COPYING.values())


def forbid() -> AbstractContextManager[None]:
    return looking(_check)


def _check(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if name in BACKWARD:
        for pair in pairs_of(name, args):
            _refuse("backward", pair)
    else:
        _refuse(name, (*args, *kwargs.values()) if kwargs else args)


def _refuse(name: str, arguments: Iterable[Any]) -> None:
    found = mixture(name, arguments)
    if found:
        raise mixed(name, {place for _, place in found})


def mixture(name: str, arguments: Iterable[Any]) -> list[tuple[Any, Device]]:
    """An operation's tensors with their devices, if these are several; without numbers that may be elsewhere."""
    if name in _EXPLICIT or name.startswith(LEGACY) or not _are_apart(_tensors(arguments)):
        return []
    found = list(_places(name, arguments))
    return found if len({place for _, place in found}) > 1 else []


def _are_apart(tensors: Iterator[Any]) -> bool:
    """Whether they are in several places, numbers too: asking for the size takes 10 µs, and for the device 5."""
    first = None
    for tensor in tensors:
        try:
            place = tensor.place
        except RuntimeError:  # it has no value
            continue
        if first is None:
            first = place
        elif not first._equals(place):
            return True
    return False


def _tensors(arguments: Iterable[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, _Tensor):
            yield argument
        elif type(argument) in (list, tuple):
            yield from _tensors(argument)


def _place(tensor: Any) -> Device | None:
    """The device of the tensor; None if it has no value."""
    try:
        return device_of(tensor)
    except UnknownPlacementError:
        return None


def _places(name: str, arguments: Iterable[Any]) -> Iterator[tuple[Any, Device]]:
    """The tensors and their devices, without tensors that have no value and an optimizer's scalars."""
    for tensor in _tensors(arguments):
        place = _place(tensor)
        if place is None:
            continue
        is_number = tensor.size == 1 and (place.kind == "cpu" or name in _OPTIMIZERS)
        if not is_number:
            yield tensor, place
