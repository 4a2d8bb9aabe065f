"""Where a new tensor goes, and making it there.

It goes to ``device=``, else to the device of ``like=``, else to that of the innermost `scope`,
else to the framework's default device. Its device is checked, unless the framework chose it.
"""

from collections.abc import Callable
from typing import Any

from xdevice.contract import Tensor
from xdevice.device import Device
from xdevice.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotSupportedError,
    UnknownPlacementError,
    shortened,
)
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import check_arrival
from xdevice.hardware.devices import as_device, has_cpu, native_of, require
from xdevice.hardware.scopes import innermost, sees_scope
from xdevice.hardware.traced import TracedDevice
from xdevice.tensors.arguments import Dtype, check_fit, fill_value_for, native_dtype
from xdevice.tensors.placement import backend_of, device_of
from xdevice.typing import DeviceLike


def create(
    factory: str, dtype: Dtype, device: DeviceLike | None, like: Tensor, *args: Any
) -> Tensor:
    """A new tensor of the framework of ``like``, or of the chosen framework."""
    owner = backend() if like is None else backend_of(like)
    return make(owner, factory, dtype, place(owner, device, like), *args)


def place(owner: Backend, device: DeviceLike | None, like: Tensor = None) -> Device | None:
    """The device of a new tensor: ``device``, else that of ``like``, else that of the scope.

    ``None`` leaves the choice to the framework.
    """
    if device is None and like is not None:
        device = device_of(like)
    if isinstance(device, TracedDevice):
        return None  # the compiler decides
    if device is not None:
        target = as_device(device)
        native_of(owner, target)  # raises an error if the device does not exist
        return target
    scope_device = innermost()
    if scope_device is None:
        return None
    if owner.has("compiling", "is_tracing") and owner.compiling.is_tracing():
        _check_scope_while_tracing(owner, scope_device)
        return None  # each call of the compiled function follows the framework's scope
    native_of(owner, scope_device)
    return scope_device


def _check_scope_while_tracing(owner: Backend, scope_device: Device) -> None:
    """Raise an error if the framework does not see the scope of a function that it is compiling."""
    if not sees_scope(owner):
        raise NotSupportedError(
            f"a function that {owner} compiles does not follow the scope of {scope_device}, since "
            "a scope in a coroutine or generator is not the framework's own; "
            "give device=, or enter the scope in a plain function"
        )


def make(owner: Backend, factory: str, dtype: Dtype, target: Device | None, *args: Any) -> Tensor:
    """A new tensor on a device that the framework has, or on its default device if that is None."""
    native_factory: Callable[..., Tensor] = getattr(owner.creation, factory)
    new_dtype = None if dtype is None else native_dtype(owner, dtype)
    try:
        if factory == "full":
            shape, value = args
            args = shape, fill_value_for(owner, value, new_dtype)
        elif new_dtype is not None:
            check_fit(factory, args, new_dtype, owner)
        new_tensor = native_factory(*args, new_dtype, target)
    except ArgumentTypeError:
        raise  # the value is not a number
    # SystemError: Python's for integers that are too long
    except (TypeError, ValueError, OverflowError, SystemError) as error:
        arguments = ", ".join(shortened(arg) for arg in args)
        message = f"{factory}({arguments}) cannot be made under {owner}: {error}"
        raise ArgumentError(message) from error
    except RuntimeError:  # CUDA's without a driver, for example
        if target is None and not has_cpu(owner):
            require(owner, Device("gpu", 0))
        raise
    if target is not None:
        try:
            check_arrival(new_tensor, owner, target)
        except UnknownPlacementError:
            pass  # a node of a graph has no device before it is run
    return new_tensor
