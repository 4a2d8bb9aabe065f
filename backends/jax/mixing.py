"""Operations on arrays of several devices, which JAX refuses with an error of its own.

JAX's Python code has one function that runs two kinds of operations: those that
JAX has not compiled for these devices yet, and those that it refuses. While a
strict block is open, that function is replaced by one that turns JAX's error
into a `MixedDeviceError`. Operations that JAX accepts take no longer.

JAX accepts an uncommitted array beside arrays of any device. It accepts two
other arrays without looking at their devices: one that a jitted function closes
over, which is a constant of the function, and an argument that the function does
not use.
"""

import re
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import jax
from jax.core import Tracer

from xdevice.backends.jax.hardware import as_device, every_device, replaced_gpus
from xdevice.backends.jax.placement import concrete, device_of
from xdevice.backends.jax.private_names import optional
from xdevice.backends.kit.private_names import replaced, resolved
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, UnknownPlacementError, mixed

Function: TypeAlias = Callable[..., Any]

# Where JAX checks devices: its name in JAX 0.10, and the name in older versions.
_NAMES = (
    "jax._src.pjit:_run_python_pjit",
    "jax._src.pjit:_python_pjit_helper",
)
_MESSAGE = "Received incompatible devices for jitted computation"
_OPERATION = re.compile(r" of (\S+) with shape")
_DEVICES = re.compile(r"device ids \[([\d, ]+)\] on platform (\w+)")


@contextmanager
def forbid() -> Generator[None]:
    with ExitStack() as stack:
        for path in _NAMES:
            # a version of JAX that has neither raises its own error
            if optional(path) is not None:
                stack.enter_context(replaced(*resolved(path), _translating))
        yield


def _translating(run: Function) -> Function:
    def call(*args: Any, **kwargs: Any) -> object:
        try:
            return run(*args, **kwargs)
        except ValueError as error:
            if not str(error).startswith(_MESSAGE):
                raise
            native_error = error
        arguments = [*args, *kwargs.values()]
        raise _translated(str(native_error), arguments) from native_error

    return call


def _translated(message: str, arguments: list[object]) -> MixedDeviceError:
    operation = _OPERATION.search(message)
    name = operation[1] if operation else "a jitted function"
    # while arrays are differentiated, JAX's message names one device twice
    devices = _named_in(message) | _committed(arguments)
    if len(devices) > 1:
        return mixed(name, devices)
    # before JAX 0.4.36 the other device may be that of a tracer
    device = "".join(map(str, devices)) or "unknown"
    problem = f"{name} was given arrays on several devices, one of them {device}"
    return MixedDeviceError(f"{problem}; bring them together with to_device", devices)


def _named_in(message: str) -> set[Device]:
    """The devices in JAX's message, by platform and number."""
    devices = {(d.platform.lower(), d.id): as_device(d) for d in every_device()}
    named_devices = set[Device]()
    for numbers, platform in _DEVICES.findall(message):
        for number in map(int, numbers.split(",")):
            device = devices.get((platform.lower(), number))
            if device is None:
                # a device that replaces a GPU may have another number in JAX's messages
                device = Device("gpu", number % replaced_gpus.number)
            named_devices.add(device)
    return named_devices


def _committed(arguments: Iterable[object]) -> set[Device]:
    """The devices of the arrays that JAX does not move by itself."""
    devices = set[Device]()
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            devices |= _committed(argument)
        elif isinstance(argument, (jax.Array, Tracer)):
            try:
                array = concrete(argument)
            except UnknownPlacementError:
                continue
            # the public name is new in JAX 0.5
            if getattr(array, "committed", array._committed):
                devices.add(device_of(array))
    return devices
