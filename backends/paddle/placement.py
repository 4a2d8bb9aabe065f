"""Where PaddlePaddle's tensors are, and moving them."""

from functools import cache, partial
from typing import Any, TypeAlias

import paddle
from paddle.base import core

from xdevice.backends.paddle.hardware import NativePlace, device_at, native
from xdevice.backends.paddle.private_names import names
from xdevice.contract import Category
from xdevice.device import Device
from xdevice.errors import NotSupportedError, TracedTensorError, UnknownPlacementError

Tensor: TypeAlias = Any

_CPU = Device("cpu", 0)
_device = cache(Device)
_gpu = cache(partial(Device, "gpu"))
_Tensor = paddle.Tensor
_is_cpu: Any = names.value("paddle.base.core:Place.is_cpu_place")
_is_gpu: Any = names.value("paddle.base.core:Place.is_gpu_place")
_is_custom: Any = names.value("paddle.base.core:Place.is_custom_place")
_gpu_index: Any = names.value("paddle.base.core:Place.gpu_device_id")
_MAY_BE_ON_GPU = paddle.is_compiled_with_cuda()  # also a build for ROCm; others need not ask
_Generator: Any = names.optional("paddle.base.core:Generator", otherwise=())
_TENSORS = (paddle.Tensor, paddle.pir.Value, paddle.static.Variable)  # the last two are symbolic
# Below PaddlePaddle 3.3, Place is not the base class of the others
_PLACE_NAMES = tuple(
    f"{kind}Place"
    for kind in ("", "CPU", "CUDA", "CUDAPinned", "XPU", "XPUPinned", "IPU", "Custom")
)
_PLACES = tuple(getattr(core, name) for name in _PLACE_NAMES if hasattr(core, name))


def category(cls: type) -> Category | None:
    if issubclass(cls, _TENSORS):
        return "tensor"
    if issubclass(cls, paddle.nn.Layer):
        return "model"
    if issubclass(cls, (type(paddle.float32), _Generator)):
        return "data"
    return "device" if issubclass(cls, _PLACES) else None


def device_of(tensor: Tensor) -> Device:
    if not isinstance(tensor, _Tensor):
        raise TracedTensorError(
            f"{_named(tensor)} is symbolic, so it has no device; ask where the graph runs"
        )
    try:
        place = tensor.place
    except RuntimeError as error:  # the value was cleared, or never set
        raise UnknownPlacementError(
            f"{_named(tensor)} holds no data; give it a value first"
        ) from error
    # a method of the place takes 150 ns, its hash 840, its name 300
    if _is_cpu(place):
        return _CPU
    if _MAY_BE_ON_GPU and _is_gpu(place):
        return _gpu(_gpu_index(place))
    if _is_custom(place):
        return _device(place.custom_device_type(), place.custom_device_id())
    device = device_at(place)
    if device is None:
        raise UnknownPlacementError(
            f"{_named(tensor)} is at {place}, which is not a device; give it a value first"
        )
    return device


def move(tensor: Tensor, device: Device, non_blocking: bool) -> Tensor:
    names.require("moves between devices")
    # not Tensor.to: when GPU memory is short, PaddlePaddle 3.3.1 frees the source
    wait = device.kind == "cpu" or not non_blocking  # a copy to the host is complete on return
    if tensor.stop_gradient:
        return dense(tensor)._copy_to(native(device), wait)
    return _Move.apply(dense(tensor), native(device), wait)


def copy(tensor: Tensor) -> Tensor:
    return dense(tensor).clone()


class _Move(paddle.autograd.PyLayer):  # type: ignore[misc, unused-ignore]  # Any to mypy unless installed
    """A copy to another place that is differentiable any number of times; PaddlePaddle 3.0 and 3.3.1 have none."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, place: NativePlace, wait: bool) -> Tensor:
        ctx.source = tensor.place
        # the copy of a parameter is a parameter, and that of a detached one a tensor
        return tensor.detach()._copy_to(place, wait)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Move.apply(*gradients, ctx.source, True)


def dtype_name(tensor: Tensor) -> str:
    return name_of(tensor.dtype)


def name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("paddle.")


def dense(tensor: Tensor, verb: str = "copy") -> Tensor:
    """The tensor itself if it is dense; `NotSupportedError` otherwise, which says that Paddle cannot ``verb`` it."""
    if not tensor.is_dense():  # Paddle fails to copy a sparse tensor, and its numpy() crashes
        raise NotSupportedError(
            f"paddle cannot {verb} a sparse or distributed tensor; take its to_dense() first"
        )
    return tensor


def _named(tensor: Any) -> str:
    try:
        name = tensor.name
    except (AttributeError, ValueError):  # only some tensors of a graph have one
        name = ""
    return f"paddle tensor {name!r}"
