"""Where MXNet's arrays, parameters and symbols are, and moving them."""

import copy as copying
from collections.abc import Iterable
from functools import cache
from typing import Any

import mxnet as mx
from mxnet import autograd
from mxnet.gluon import Block, Parameter, ParameterDict
from mxnet.ndarray import NDArray

from xdevice.backends.mxnet.hardware import as_device, native, replaced_gpus
from xdevice.contract import Role
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, UnknownPlacementError


@cache
def known(kind: int, index: int) -> Device:
    """The device of a context of that type, in MXNet's numbers, and index: hashing a Context takes longer."""
    return holder(mx.Context(mx.Context.devtype2str[kind], index))


def role(cls: type) -> Role | None:
    if issubclass(cls, (NDArray, Parameter, mx.sym.Symbol)):
        return "tensor"
    if issubclass(cls, (Block, ParameterDict)):
        return "model"
    return "device" if issubclass(cls, mx.Context) else None


def device_of(tensor: Any) -> Device:
    if not isinstance(tensor, NDArray):
        return _device_of_parameter(tensor)
    where = tensor.ctx
    return known(where.device_typeid, where.device_id)


def holder(context: mx.Context) -> Device:
    """The device whose memory an array is in, as its context tells."""
    if replaced_gpus.number and context.device_type == "gpu" and not replaced_gpus.under_own_names:
        hidden = "is on a real GPU, which virtual ones hide; copy it with .as_in_ctx(mx.cpu())"
        raise UnknownPlacementError(f"an array on {context} {hidden}")
    return as_device(context)


def move(tensor: Any, device: Device, non_blocking: bool) -> Any:
    there = native(device)
    if isinstance(tensor, Parameter):
        reset(tensor, there)
        return tensor
    with mx.util.np_shape(True):  # without it MXNet takes scalars and empty arrays for unknown ones
        moved = tensor.copyto(there)
    if not non_blocking or device.kind != "gpu":
        moved.wait_to_read()
    return moved


def reset(parameter: Parameter, there: mx.Context) -> None:
    """Move the parameter in place, as Gluon does, and its gradient, which Gluon would set to zero."""
    before = vars(parameter)["_grad"] or []
    is_np = (
        isinstance(before[0], mx.np.ndarray) if before else mx.util.is_np_array()
    )  # the class of the gradient
    with mx.util.np_shape(True), mx.util.np_array(is_np):
        parameter.reset_ctx(there)
        if before:
            (new,) = parameter.list_grad()
            before[0].copyto(new)
            for other in before[1:]:  # one on each device: their sum, as Gluon's Trainer takes it
                (new + other.copyto(there)).copyto(new)


def copy(tensor: Any) -> Any:
    with mx.util.np_shape(True):
        return (
            copy_parameters(tensor, [tensor], {})
            if isinstance(tensor, Parameter)
            else tensor.copy()
        )


def arrays(tensor: Any) -> list[NDArray]:
    """The array itself, or those of a parameter, one for each device that it is on."""
    if isinstance(tensor, NDArray):
        return [tensor]
    _check_not_symbolic(tensor)
    try:
        return list(tensor.list_data())
    except RuntimeError as error:  # and DeferredInitializationError, which is one
        hint = "initialize() it, and give its layer one batch if its shape is not known"
        raise UnknownPlacementError(
            f"parameter {tensor.name!r} has no values yet; {hint}"
        ) from error


def copy_parameters(holder: Any, parameters: Iterable[Parameter], memo: dict[int, Any]) -> Any:
    """A deep copy of a holder of parameters, without their Trainer and with its own gradients."""
    for parameter in parameters:
        trainer = vars(parameter)["_trainer"]
        if trainer is not None:  # it would drag its optimizer and every other parameter along
            memo[id(trainer)] = None
    copied = copying.deepcopy(holder, memo)
    for parameter in parameters:
        twin = memo[id(parameter)]
        if (
            vars(twin)["_grad"] is not None
        ):  # the arrays are copied, and not which is whose gradient
            autograd.mark_variables(twin.list_data(), twin.list_grad(), twin.grad_req)
    return copied


def _device_of_parameter(parameter: Any) -> Device:
    _check_not_symbolic(parameter)
    try:
        found = {holder(context) for context in parameter.list_ctx()}
    except RuntimeError as error:
        hint = "call initialize(ctx=…) on it or its model first"
        raise UnknownPlacementError(
            f"parameter {parameter.name!r} has no device yet; {hint}"
        ) from error
    if len(found) == 1:
        return found.pop()
    where = f"has a copy on each of {', '.join(map(str, sorted(found)))}"
    raise MixedDeviceError(
        f"parameter {parameter.name!r} {where}; ask devices_of, or bring it to one device", found
    )


def _check_not_symbolic(tensor: Any) -> None:
    if isinstance(tensor, mx.sym.Symbol):
        hint = "ask about the arrays it is bound to"
        raise UnknownPlacementError(
            f"symbol {tensor.name!r} is a node of a graph and has no device; {hint}"
        )
