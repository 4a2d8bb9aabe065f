"""Starting virtual GPUs: compiled where a compiler is there, else in Python."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import torch

from xdevice.backends.torch.virtual import (
    account,
    autocast,
    batch_norm,
    cells,
    compiling,
    devices,
    gradients,
    module,
    parameters,
    plug_in,
    process_groups,
    scattering,
    storages,
    streams,
    tables,
)
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

        in_python.start(n, stand_in)
    if not stand_in:
        parameters.keep()
        parameters.name_methods()
    scattering.replace()
    storages.replace()
    compiling.replace()
    # torch 2.11 and 2.12 compare streams of two devices, and warn that one waits for the other; virtual ones never do
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    for generator in devices.generators:
        generator.manual_seed(torch.initial_seed())
    _probe()


def _compiled(stand_in: bool) -> plug_in.PlugIn | None:
    """The compiled implementation, if there is one."""
    try:
        return plug_in.load()
    except NotSupportedError as error:
        if stand_in:
            tables.prove()
        if compiled.compiler() is not None:
            warnings.warn(f"{error}; these virtual GPUs run in Python, which is slower", RuntimeWarning, stacklevel=2)
        return None


def _start_compiled(found: plug_in.PlugIn, n: int, stand_in: bool) -> None:
    devices.plug_in = devices.guard = found
    if stand_in:
        devices.name = "cuda"
    else:
        inside: Any = torch
        inside.utils.rename_privateuse1_backend(NAME)
        inside.utils.generate_methods_for_privateuse1_backend()
        inside._register_device_module(NAME, module)
    found.start(n, stand_in=stand_in, capacity=devices.capacity, limited=devices.limited)
    ours, errors = library.Library("aten", "IMPL"), library.Library("xdevice_virtual", "IMPL")
    _libraries[:] = [ours, errors]
    errors.impl("mixed", _raise_mixed, "CompositeExplicitAutograd")
    key = "CUDA" if stand_in else "PrivateUse1"
    cells.register_attention(ours, key)
    batch_norm.register(ours, key)
    devices.generators[:] = [torch.Generator(f"{devices.name}:{i}") for i in range(n)]  # the first are the default ones
    process_groups.replace()
    if stand_in:
        from xdevice.backends.torch.virtual import stand_in as cuda

        cuda.start()
        return
    everything = library.Library("_", "IMPL")
    _libraries.append(everything)
    autocast.register(ours, everything)
    core._accelerator_getStream = streams.current_stream
    core._accelerator_setStream = streams.set_stream


def _raise_mixed(operation: str, a: torch.device, b: torch.device) -> NoReturn:
    """Raise `MixedDeviceError`, for C++."""
    raise mixed(operation, [known(a), known(b)])


def _probe() -> None:
    """Compute, which fails where torch has changed; a gradient too, where no program may rely on forking before it."""
    try:
        try:
            _compute()
        except RuntimeError as error:
            if gradients.NO_THREADS not in str(error):
                raise
            gradients.compute_here()  # the engine started before, with threads for the devices that it saw
            _compute()
    except Exception as error:
        hint = "" if devices.name != NAME or devices.plug_in is None else "; CXX=none takes the ones written in Python"
        raise VirtualDeviceError(
            f"virtual GPUs compute wrongly under torch {torch.__version__}, which has changed: {error}{hint}"
        ) from error
    for index in range(devices.count):
        account.forget_peak(index)
    devices.use(False)


def _compute() -> None:
    # made in a way that torch does not count as the first use of a GPU
    ones = [torch.ops.xdevice_virtual.take(torch.ones(2), i) for i in range(devices.count)]
    x = ones[-1]
    if devices.name != NAME:
        if devices.plug_in is not None:
            gradients.compute_here_if_needed(ones)
        if (x + x).tolist() != [2, 2]:
            raise RuntimeError(f"x + x is {x + x}")
        return
    (found,) = torch.autograd.grad((x.requires_grad_() + x).sum(), x)
    if found.device != x.device or found.tolist() != [2, 2]:
        raise RuntimeError(f"the gradient of x + x is {found}")
    gradients.wait_at_exit(ones)
