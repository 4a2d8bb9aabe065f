"""Virtual GPUs written in Python, where they cannot be compiled.

torch's guard for devices written in Python reports one device, which is always current
(torch/csrc/acc/Module.cpp), so the functions that ask it are replaced here. While the virtual GPUs stand in for CUDA's,
the guard is another one (`tables`), which knows them all.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.backend_registration import (
    _setup_privateuseone_for_python_backend,  # pyright: ignore[reportPrivateUsage]  # the only way there is
)

from xdevice.backends.torch.virtual import (
    account,
    autocast,
    batch_norm,
    cells,
    compiling,
    composed,
    devices,
    factories,
    gradients,
    kernels,
    memory,
    module,
    process_groups,
    randomness,
    streams,
    tables,
)
from xdevice.backends.torch.virtual.devices import NAME, exchange, existing
from xdevice.backends.torch.virtual.internals import core, library

if TYPE_CHECKING:
    from collections.abc import Callable

_libraries: list[Any] = []  # registrations last as long as these objects


class Operations:
    """Kernels that are registered together, the last one of each name: torch takes only one from Python."""

    def __init__(self) -> None:
        self._library = library.Library("aten", "IMPL")
        self._kernels: dict[tuple[str, str], Callable[..., Any]] = {}

    def __contains__(self, name_and_key: tuple[str, str]) -> bool:
        return name_and_key in self._kernels

    def impl(self, name: str, kernel: Callable[..., Any], key: str) -> None:
        self._kernels[name.removeprefix("aten::"), key] = kernel

    def register(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that its own kernels are replaced
            for (name, key), kernel in self._kernels.items():
                self._library.impl(name, kernel, key, allow_override=True)


def start(n: int, stand_in: bool) -> None:
    """Make ``vgpu:0`` … ``vgpu:n-1`` devices of torch, or ``cuda:0`` … while they stand in for CUDA's."""
    if stand_in:
        devices.name, devices.guard = "cuda", tables.answer()
    else:
        _setup_privateuseone_for_python_backend(NAME, backend_module=module, device_guard=gradients.Guard())
    account.open_for(n)
    memory.open_for(n)
    everything, ours = library.Library("_", "IMPL"), Operations()
    kernels.register(ours, everything)
    memory.register(ours)
    cells.register(ours)
    if stand_in:
        composed.register(ours)
        batch_norm.register(ours, devices.key())
    else:
        autocast.register(ours, everything)
    ours.register()
    _libraries[:] = [everything, ours, memory.for_python()]
    _answer_for_accelerator()
    randomness.take_generators()
    devices.generators[:] = [torch.Generator(f"{devices.name}:{i}") for i in range(n)]
    gradients.compute_here()
    factories.replace()
    if stand_in:
        process_groups.replace()
        compiling.trace_attention()
        from xdevice.backends.torch.virtual import stand_in as cuda

        cuda.start()
    else:
        _make_like()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=memory.close)


def _answer_for_accelerator() -> None:
    """Replace the functions of ``torch.accelerator`` that ask the guard."""
    core._accelerator_getDeviceIndex = devices.current
    core._accelerator_setDeviceIndex = exchange
    core._accelerator_exchangeDevice = exchange
    core._accelerator_maybeExchangeDevice = exchange
    core._accelerator_synchronizeDevice = existing
    core._accelerator_getStream = streams.current_stream
    core._accelerator_setStream = streams.set_stream
    core._accelerator_isAllocatorInitialized = module.is_available
    core._accelerator_getDeviceStats = _stats
    core._accelerator_resetPeakStats = account.forget_peak
    core._accelerator_resetAccumulatedStats = existing
    core._accelerator_getMemoryInfo = module.mem_get_info
    core._accelerator_emptyCache = module.empty_cache
    core._accelerator_emptyHostCache = module.empty_cache


def _stats(index: int) -> dict[str, dict[str, dict[str, int]]]:
    """Allocated bytes under torch's keys; reserved is the same, since freed memory is returned immediately."""
    sums = {"all": {"current": account.allocated(existing(index)), "peak": account.peak(index)}}
    return {"allocated_bytes": sums, "reserved_bytes": sums}


def _make_like() -> None:
    """Replace `Tensor.new`, which asks the guard for the device."""
    make = torch.Tensor.new

    def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        with module.device_of(self):
            return make(self, *args, **kwargs)

    tensor: Any = torch.Tensor
    tensor.new = new
