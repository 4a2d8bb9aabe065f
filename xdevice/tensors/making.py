"""How a factory makes its tensor: under which framework, on which device, of which dtype; what was made is checked."""

from collections.abc import Callable
from typing import Any

from xdevice.device import Device
from xdevice.errors import ArgumentError, NotSupportedError, UnknownPlacementError, shortened
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.framework.ownership import check_arrival
from xdevice.hardware.devices import TracedDevice, as_device, has_cpu, require
from xdevice.hardware.scopes import innermost, sees_scope
from xdevice.tensors.arguments import dtype_name, filling, native_dtype
from xdevice.tensors.numbers import check_fit, numbers_given
from xdevice.tensors.owning import backend_of
from xdevice.tensors.placement import device_of


def create(factory: str, dtype: Any, device: Any, like: Any, *args: Any) -> Any:
    """What a factory makes under the chosen framework, or under the one of the tensor ``like``."""
    owner = backend() if like is None else backend_of(like)
    return make(owner, factory, dtype, place(owner, device, like), *args)


def place(owner: Backend, device: Any, like: Any = None) -> Device | None:
    """Where a new tensor goes: as told, else beside ``like``, else as the scope says; ``None``: by its framework."""
    if device is None and like is None:
        where = innermost()
        if where is not None and owner.open("compiling").has("is_tracing") and owner.compiling.is_tracing():
            return _in_trace(owner, where)
    else:
        where = device_of(like) if device is None else device
        if isinstance(where, TracedDevice):
            return None  # the compiler decides
        where = as_device(where)
    if where is not None:
        require(owner, where)
    return where


def make(owner: Backend, factory: str, dtype: Any, where: Device | None, *args: Any) -> Any:
    """What that framework's factory makes on a device that is there, or on the framework's default device."""
    produce: Callable[..., Any] = getattr(owner.creation, factory)
    found = native_dtype(owner, dtype)
    if factory == "full":
        args = (args[0], filling(owner, args[1], found))
    try:
        if found is not None:
            check_fit(numbers_given(factory, args), dtype_name(found, owner))
        made = produce(*args, found, where)
    except (TypeError, ValueError, OverflowError) as error:
        given = ", ".join(shortened(arg) for arg in args)
        raise ArgumentError(f"{factory}({given}) cannot be made under {owner}: {error}") from error
    except RuntimeError:  # as of CUDA without a driver
        if where is None and not has_cpu(owner):
            require(owner, Device("gpu", 0))
        raise
    if where is not None:
        try:
            check_arrival(made, owner, where)
        except UnknownPlacementError:
            pass  # a node of a graph: it carries the device with it, and is not placed yet
    return made


def _in_trace(owner: Backend, where: Device) -> Device | None:
    """Where a function that a compiler traces makes a tensor under a scope, so that every call follows its own."""
    if not sees_scope(owner):
        raise NotSupportedError(
            f"a function that {owner} compiles would keep the scope of {where} from its first call, since a scope in a "
            "coroutine or generator is not the framework's own; give device=, or enter the scope in a plain function"
        )
    return None if owner.open("following").has("follow") else where
