"""Where PaddlePaddle's tensors are, and moving them."""

from functools import cache, partial
from typing import Any

import paddle
from paddle.base import core

from xdevice.backends.paddle.hardware import device_at, native
from xdevice.backends.paddle.private_names import names
from xdevice.contract import Role
from xdevice.device import Device
from xdevice.errors import NotSupportedError, UnknownPlacementError

_CPU = Device("cpu", 0)
_gpu = cache(partial(Device, "gpu"))
_Tensor = paddle.Tensor
_asked = (
    names.value(f"paddle.base.core:Place.{name}")
    for name in ("is_cpu_place", "is_gpu_place", "gpu_device_id")
)
_is_cpu, _is_gpu, _gpu_index = _asked
_Generator: Any = names.optional("paddle.base.core:Generator", otherwise=())
_TENSORS = (paddle.Tensor, paddle.pir.Value, paddle.static.Variable)  # the last two are symbolic
_WORDS = (
    "",
    "CPU",
    "CUDA",
    "CUDAPinned",
    "XPU",
    "XPUPinned",
    "IPU",
    "Custom",
)  # Place is not a base class below 3.3
_PLACES = tuple(getattr(core, f"{word}Place") for word in _WORDS if hasattr(core, f"{word}Place"))


def role(cls: type) -> Role | None:
    if issubclass(cls, _TENSORS):
        return "tensor"
    if issubclass(cls, paddle.nn.Layer):
        return "model"
    if issubclass(cls, (type(paddle.float32), _Generator)):
        return "data"
    return "device" if issubclass(cls, _PLACES) else None


def device_of(tensor: Any) -> Device:
    if not isinstance(tensor, _Tensor):
        raise UnknownPlacementError(
            f"{_named(tensor)} is symbolic, so it has no device; ask where the graph runs"
        )
    try:
        place = tensor.place
    except RuntimeError as error:  # cleared, or never given a value
        raise UnknownPlacementError(
            f"{_named(tensor)} holds no data; give it a value first"
        ) from error
    # its methods take 150 ns, hashing it 840, its name 300
    if _is_cpu(place):
        return _CPU
    if _is_gpu(place):
        return _gpu(_gpu_index(place))
    found = device_at(place)
    if found is None:
        raise UnknownPlacementError(
            f"{_named(tensor)} is at {place}, which is not a device; give it a value first"
        )
    return found


def move(tensor: Any, device: Device, non_blocking: bool) -> Any:
    names.require("moves between devices")
    # not Tensor.to: when GPU memory is short, PaddlePaddle 3.3.1 frees the source
    wait = not (
        non_blocking and device.kind != "cpu"
    )  # a copy to the host must be complete on return
    if tensor.stop_gradient:
        return dense(tensor)._copy_to(native(device), wait)
    return _Move.apply(dense(tensor), native(device), wait)


def copy(tensor: Any) -> Any:
    return dense(tensor).clone()


class _Move(paddle.autograd.PyLayer):  # type: ignore[misc, unused-ignore]  # Any to mypy unless installed
    """A differentiable copy to another place, of any order: PaddlePaddle 3.0 and 3.3.1 have none."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, place: Any, wait: bool) -> Any:
        ctx.source = tensor.place
        return tensor.detach()._copy_to(
            place, wait
        )  # the copy of a detached parameter is a plain tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _Move.apply(*gradients, ctx.source, True)


def dtype_name(tensor: Any) -> str:
    return name_of(tensor.dtype)


def name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("paddle.")


def dense(tensor: Any, verb: str = "copy") -> Any:
    """The tensor, if Paddle can do that with it; `NotSupportedError` otherwise."""
    if not tensor.is_dense():  # Paddle fails to copy a sparse tensor, and its numpy() crashes
        raise NotSupportedError(
            f"paddle cannot {verb} a sparse or distributed tensor; take its to_dense() first"
        )
    return tensor


def _named(tensor: Any) -> str:
    return f"paddle tensor {getattr(tensor, 'name', '')!r}"
