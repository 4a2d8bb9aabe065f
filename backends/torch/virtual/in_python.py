"""Virtual GPUs written in Python, where they cannot be compiled.

torch's guard for devices written in Python reports one device, which is always current
(torch/csrc/acc/Module.cpp), so the functions that ask it are replaced here.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.utils.backend_registration import (
    _setup_privateuseone_for_python_backend,  # pyright: ignore[reportPrivateUsage]  # the only way there is
)

from xdevice.backends.torch.virtual import (
    account,
    autocast,
    cells,
    devices,
    factories,
    gradients,
    kernels,
    memory,
    module,
    randomness,
    streams,
)
from xdevice.backends.torch.virtual.devices import NAME, exchange, existing
from xdevice.backends.torch.virtual.internals import core, library

_libraries: list[Any] = []  # registrations last as long as these objects


def start(n: int) -> None:
    """Make ``vgpu:0`` … ``vgpu:n-1`` devices of torch."""
    account.open_for(n)
    devices.generators[:] = [torch.Generator() for _ in range(n)]
    _setup_privateuseone_for_python_backend(NAME, backend_module=module, device_guard=gradients.Guard())
    everything, ours = library.Library("_", "IMPL"), library.Library("aten", "IMPL")
    kernels.register(ours, everything)
    memory.register(ours)
    cells.register(ours)
    autocast.register(ours, everything)
    _libraries[:] = [everything, ours]
    _answer_for_accelerator()
    randomness.take_generators()
    gradients.compute_here()
    _make_like()
    factories.replace()
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
