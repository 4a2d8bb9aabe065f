"""Operations on arrays of several devices, which JAX refuses with an error of its own.

Every operation that JAX has not yet compiled for just these devices goes through one function, and
so does every one that it refuses. While a strict block is open, its error becomes xdevice's; no
operation that JAX accepts takes any longer. What is uncommitted follows, as always under JAX; an
array that a jitted function closes over is a constant to it, and an argument that it does not use
is dropped.
"""

import re
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
from jax.core import Tracer

from xdevice.backends.jax.hardware import as_device, every_device, replaced_gpus
from xdevice.backends.jax.placement import concrete, device_of
from xdevice.backends.jax.private_names import optional
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, UnknownPlacementError, mixed
from xdevice.kit.private_names import replaced, resolved

_NAMES = (  # where JAX checks devices: what JAX 0.10 calls it, and what it was called before
    "jax._src.pjit:_run_python_pjit",
    "jax._src.pjit:_python_pjit_helper",
)
_REFUSED = "Received incompatible devices for jitted computation"
_OPERATION = re.compile(r" of (\S+) with shape")
_PLACES = re.compile(r"device ids \[([\d, ]+)\] on platform (\w+)")


@contextmanager
def forbid() -> Generator[None]:
    with ExitStack() as stack:
        for path in _NAMES:
            if optional(path) is not None:  # a JAX that has neither refuses in its own words
                stack.enter_context(replaced(*resolved(path), _translating))
        yield


def _translating(run: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except ValueError as error:
            if not str(error).startswith(_REFUSED):
                raise
            refused = error
        raise _translated(str(refused), [*args, *kwargs.values()]) from refused

    return call


def _translated(message: str, arguments: list[Any]) -> MixedDeviceError:
    operation = _OPERATION.search(message)
    name = operation[1] if operation else "a jitted function"
    # of arrays that are being differentiated, JAX's message has one device twice
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
    named = set()
    for numbers, platform in _PLACES.findall(message):
        for number in map(int, numbers.split(",")):
            device = devices.get((platform.lower(), number))
            # a device that replaces a GPU may have another number in JAX's messages
            named.add(device or Device("gpu", number % replaced_gpus.number))
    return named


def _committed(arguments: Iterable[Any]) -> set[Device]:
    """The devices of the arrays that JAX does not move by itself."""
    found = set()
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            found |= _committed(argument)
        elif isinstance(argument, (jax.Array, Tracer)):
            try:
                array = concrete(argument)
            except UnknownPlacementError:
                continue
            # the public name is new in JAX 0.5
            if getattr(array, "committed", array._committed):
                found.add(device_of(array))
    return found
