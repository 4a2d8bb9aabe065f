"""Where MXNet's arrays, parameters and symbols are, and moving them."""

import copy as copying
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeAlias

import mxnet as mx
from mxnet import autograd
from mxnet.gluon import Block, Parameter, ParameterDict
from mxnet.ndarray import NDArray

from xdevice.backends.mxnet.hardware import as_device, native, replaced_gpus
from xdevice.contract import Category
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, UnknownPlacementError

Tensor: TypeAlias = Any  # an NDArray, or a Parameter


@cache
def device_at(device_type: int, index: int) -> Device:
    """The device of a context, given by MXNet's number for its type, and its index; a Context is slower to hash."""
    return device_of_context(mx.Context(mx.Context.devtype2str[device_type], index))


def category(cls: type) -> Category | None:
    if issubclass(cls, (NDArray, Parameter, mx.sym.Symbol)):
        return "tensor"
    if issubclass(cls, (Block, ParameterDict)):
        return "model"
    return "device" if issubclass(cls, mx.Context) else None


def device_of(tensor: Tensor) -> Device:
    if not isinstance(tensor, NDArray):
        return _device_of_parameter(tensor)
    context = tensor.ctx
    return device_at(context.device_typeid, context.device_id)


def device_of_context(context: mx.Context) -> Device:
    """The device of an array with this context."""
    if replaced_gpus.number and context.device_type == "gpu" and not replaced_gpus.under_own_names:
        raise UnknownPlacementError(
            f"an array on {context} is on a real GPU, which virtual ones hide; "
            f"copy it with .as_in_ctx(mx.cpu())"
        )
    return as_device(context)


def move(tensor: Tensor, device: Device, non_blocking: bool) -> Tensor:
    context = native(device)
    if isinstance(tensor, Parameter):
        reset(tensor, context)
        return tensor
    return _copied([tensor], context)[0]


def move_many(tensors: list[Tensor], device: Device, non_blocking: bool) -> list[Tensor]:
    if any(isinstance(tensor, Parameter) for tensor in tensors):
        return [move(tensor, device, non_blocking) for tensor in tensors]
    return _copied(tensors, native(device))


def _copied(arrays: list[NDArray], context: mx.Context) -> list[NDArray]:
    """Copies in that context. MXNet's arrays are futures: nothing waits until a value is needed."""
    # without NumPy's shapes, MXNet treats the shapes of scalars and empty arrays as unknown
    with mx.util.np_shape(True):
        return [array.copyto(context) for array in arrays]


def reset(parameter: Parameter, context: mx.Context) -> None:
    """Move the parameter in place, as Gluon does, and its gradient, which Gluon would set to zero."""
    gradients = vars(parameter)["_grad"] or []
    if gradients:
        uses_np_arrays = isinstance(gradients[0], mx.np.ndarray)
    else:
        uses_np_arrays = mx.util.is_np_array()
    with mx.util.np_shape(True), mx.util.np_array(uses_np_arrays):
        parameter.reset_ctx(context)
        if not gradients:
            return
        (new_gradient,) = parameter.list_grad()
        gradients[0].copyto(new_gradient)
        # with a gradient on each device, Gluon's Trainer uses the sum
        for gradient in gradients[1:]:
            total = new_gradient + gradient.copyto(context)
            total.copyto(new_gradient)


def copy(tensor: Tensor) -> Tensor:
    with mx.util.np_shape(True):
        if isinstance(tensor, Parameter):
            return copy_parameters(tensor, [tensor], {})
        return tensor.copy()


def arrays(tensor: Tensor) -> list[NDArray]:
    """The array itself, or the arrays of a parameter, one for each of its devices."""
    if isinstance(tensor, NDArray):
        return [tensor]
    _check_not_symbolic(tensor)
    try:
        return list(tensor.list_data())
    except RuntimeError as error:  # DeferredInitializationError is one, too
        hint = "initialize() it, and give its layer one batch if its shape is not known"
        raise UnknownPlacementError(
            f"parameter {tensor.name!r} has no values yet; {hint}"
        ) from error


def copy_parameters(holder: Any, parameters: Iterable[Parameter], memo: dict[int, Any]) -> Any:
    """A deep copy of an object with parameters, without their Trainer and with gradients of its own."""
    for parameter in parameters:
        trainer = vars(parameter)["_trainer"]
        if trainer is not None:  # it refers to its optimizer and all other parameters
            memo[id(trainer)] = None
    copied = copying.deepcopy(holder, memo)
    for parameter in parameters:
        copied_parameter = memo[id(parameter)]
        # deepcopy copies the arrays of gradients, but does not mark them as gradients
        if vars(copied_parameter)["_grad"] is not None:
            autograd.mark_variables(
                copied_parameter.list_data(),
                copied_parameter.list_grad(),
                copied_parameter.grad_req,
            )
    return copied


def _device_of_parameter(parameter: Parameter) -> Device:
    _check_not_symbolic(parameter)
    try:
        devices = {device_of_context(context) for context in parameter.list_ctx()}
    except RuntimeError as error:
        hint = "call initialize(ctx=…) on it or its model first"
        raise UnknownPlacementError(
            f"parameter {parameter.name!r} has no device yet; {hint}"
        ) from error
    if len(devices) == 1:
        return devices.pop()
    raise MixedDeviceError(
        f"parameter {parameter.name!r} has a copy on each of {', '.join(map(str, sorted(devices)))}; "
        f"ask devices_of, or bring it to one device",
        devices,
    )


def _check_not_symbolic(tensor: Any) -> None:
    if isinstance(tensor, mx.sym.Symbol):
        raise UnknownPlacementError(
            f"symbol {tensor.name!r} is a node of a graph and has no device; "
            f"ask about the arrays it is bound to"
        )
