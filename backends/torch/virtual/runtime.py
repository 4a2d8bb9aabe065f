"""Starting virtual GPUs: compiled where a compiler is there, else in Python."""

from __future__ import annotations

import os
import warnings
from typing import Any, NoReturn

import torch

from xdevice.backends.torch.virtual import autocast, cells, devices, module, parameters, plug_in, scattering, streams
from xdevice.backends.torch.virtual.devices import NAME, known
from xdevice.backends.torch.virtual.internals import core, library
from xdevice.errors import NotSupportedError, VirtualDeviceError, mixed
from xdevice.kit import compiled, virtual_memory
from xdevice.machine import host_memory

_libraries: list[Any] = []  # registrations last as long as these objects


def start(n: int, stand_in: bool) -> None:
    """Make ``vgpu:0`` … ``vgpu:n-1`` devices of torch, or ``cuda:0`` … while they stand in for CUDA's."""
    limit = virtual_memory.limit()
    found = _compiled(stand_in)
    devices.count, devices.limited = n, limit is not None
    devices.capacity = limit or host_memory()[0] or 0
    if found is not None:
        _start_compiled(found, n, stand_in)
    else:
        from xdevice.backends.torch.virtual import in_python

        in_python.start(n)
    if not stand_in:
        parameters.keep()
    scattering.replace()
    torch.get_device_module(devices.name).manual_seed_all(torch.initial_seed())
    _probe()


def _compiled(stand_in: bool) -> plug_in.PlugIn | None:
    """The compiled implementation, if there is one."""
    try:
        return plug_in.load()
    except NotSupportedError as error:
        if stand_in:
            raise NotSupportedError(f"virtual GPUs stand in for CUDA's only where they are compiled: {error}") from error
        if compiled.compiler() is not None:
            warnings.warn(f"{error}; these virtual GPUs run in Python, which is slower", RuntimeWarning, stacklevel=2)
        return None


def _start_compiled(found: plug_in.PlugIn, n: int, stand_in: bool) -> None:
    devices.plug_in = found
    everything, ours, errors = library.Library("_", "IMPL"), library.Library("aten", "IMPL"), _mixing()
    _libraries[:] = [everything, ours, errors]
    if stand_in:
        devices.name = "cuda"
    else:
        torch.utils.rename_privateuse1_backend(NAME)
        torch.utils.generate_methods_for_privateuse1_backend()
        torch._register_device_module(NAME, module)
    found.start(n, stand_in=stand_in, capacity=devices.capacity, limited=devices.limited)
    cells.register_compiled(ours, "CUDA" if stand_in else "PrivateUse1")
    devices.generators[:] = [torch.Generator(f"{devices.name}:{i}") for i in range(n)]  # the first are the default ones
    if stand_in:
        from xdevice.backends.torch.virtual import stand_in as cuda

        cuda.start()
    else:
        autocast.register(ours, everything)
        core._accelerator_getStream = streams.current_stream
        core._accelerator_setStream = streams.set_stream


def _mixing() -> Any:
    """An operation that raises `MixedDeviceError`, for C++ to call."""

    def raise_mixed(operation: str, a: torch.device, b: torch.device) -> NoReturn:
        raise mixed(operation, [known(a), known(b)])

    made = library.Library("xdevice_virtual", "DEF")
    made.define("mixed(str operation, Device a, Device b) -> ()")
    made.impl("mixed", raise_mixed, "CompositeExplicitAutograd")
    return made


def _probe() -> None:
    """Compute a gradient, which fails where torch has changed."""
    try:
        x = torch.ones(2, device=f"{devices.name}:{devices.count - 1}", requires_grad=True)
        (x + x).sum().backward()
        assert x.grad is not None and x.grad.device == x.device and x.grad.tolist() == [2, 2]
    except Exception as error:
        hint = "" if devices.name != NAME or devices.plug_in is None else "; CXX=none takes the ones written in Python"
        raise VirtualDeviceError(
            f"virtual GPUs compute wrongly under torch {torch.__version__}, which has changed: {error}{hint}"
        ) from error
