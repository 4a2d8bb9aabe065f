"""Where PyTorch's tensors are, and moving them."""

from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from xdevice.backends.kit import keras
from xdevice.backends.torch.hardware import as_device, is_hidden, native
from xdevice.backends.torch.private_names import names
from xdevice.contract import Category, Tensor
from xdevice.device import Device
from xdevice.errors import NotSupportedError, UnknownPlacementError

_CPU = Device("cpu", 0)
_GENERATOR: Any = names.optional("torch:Generator", otherwise=torch.Stream)
_DATA: tuple[Any, ...] = (
    *(torch.dtype, torch.layout, torch.memory_format, torch.Size, torch.finfo, torch.iinfo),
    *(torch.Stream, torch.Event, _GENERATOR),
)
_CATEGORIES: dict[Category, Any] = {
    "tensor": torch.Tensor,
    "model": (torch.nn.Module, PackedSequence),
    "data": _DATA,
    "device": torch.device,
}
_devices: dict[torch.device, Device] = {}  # those on which a tensor has been


def category(cls: type) -> Category | None:
    for category, classes in _CATEGORIES.items():
        if issubclass(cls, classes):
            return category
    return keras.category(cls, "torch")


def plain(tensor: Tensor) -> torch.Tensor:
    """The tensor, or the tensor of a Keras variable."""
    if isinstance(tensor, torch.Tensor):
        return tensor
    value: torch.Tensor = keras.value_of(tensor)
    return value


def device_of(tensor: torch.Tensor) -> Device:
    try:
        if tensor.is_cpu:  # 40 ns; making and hashing a torch.device costs 140
            return _CPU
    except AttributeError:
        return device_of(keras.value_of(tensor))
    native_device = tensor.device
    try:
        return _devices[native_device]
    except KeyError:
        return _new_device(native_device)


def _new_device(native_device: torch.device) -> Device:
    """The device, which is found at once from now on."""
    if is_hidden(native_device.type):
        raise UnknownPlacementError(
            f"a tensor on {native_device} is on a real GPU, which virtual_gpus(force=True) hides; "
            "start again without it"
        )
    return _devices.setdefault(native_device, as_device(native_device))


def forget() -> None:
    """Empty the cache of devices, which may get other names."""
    _devices.clear()


def move(tensor: Tensor, device: Device, non_blocking: bool) -> Tensor:
    if not isinstance(tensor, torch.Tensor):
        return keras.with_value(tensor, move(keras.value_of(tensor), device, non_blocking))
    try:
        # a non-blocking copy to the host returns before the values have arrived
        if non_blocking and device.kind != "cpu":
            return tensor.to(native(device), non_blocking=True)
        return tensor.to(native(device))
    except NotImplementedError as error:  # quantised, nested, or packed for oneDNN
        if tensor.is_meta:
            raise NotSupportedError(
                "a tensor on meta:0 has a shape and no values to move; make it on a real device"
            ) from error
        raise NotSupportedError(
            f"torch cannot move such a tensor to {device}: {str(error).splitlines()[0]}"
        ) from error


def move_many(tensors: list[Tensor], device: Device, non_blocking: bool) -> list[Tensor]:
    if not non_blocking:
        native_device = native(device)
        try:
            return [tensor.to(native_device) for tensor in tensors]
        except (AttributeError, NotImplementedError):
            pass  # `move` takes Keras's variables, too, and says why a tensor cannot be moved
    return [move(tensor, device, non_blocking) for tensor in tensors]


def copy(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, torch.Tensor):
        return keras.with_value(tensor, copy(keras.value_of(tensor)))
    return tensor.clone()
