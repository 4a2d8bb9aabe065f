"""Virtual GPUs written in Python.

torch's guard for devices written in Python reports one device, which is always current
(torch/csrc/acc/Module.cpp), so the functions that ask it are replaced here.
"""

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.backend_registration import (
    _setup_privateuseone_for_python_backend,  # pyright: ignore[reportPrivateUsage]  # the only way there is
)

from xdevice.backends.torch.private_names import in_place_of, kernels_of, replace_name, untraced
from xdevice.backends.torch.virtual import runtime, streams, vgpu
from xdevice.backends.torch.virtual.in_python import factories, kernels, memory, memory_accounting, nn, randomness
from xdevice.backends.torch.virtual.runtime import NAME, existing
from xdevice.backends.torch.virtual.torch_parts import backward


class InPython:
    """Virtual GPUs without a plug-in: under PrivateUse1 only."""

    name = NAME
    allocated, peak = staticmethod(memory_accounting.allocated), staticmethod(memory_accounting.peak)
    reset_peak = staticmethod(memory_accounting.reset_peak)

    def __init__(self, count: int, capacity: int, limited: bool) -> None:
        self.count, self.capacity, self.limited = count, capacity, limited
        self.generators: list[torch.Generator] = []
        self._current, self._used, self._forked = threading.local(), False, False

    def visible(self) -> int:
        return self.count

    def current(self) -> int:
        return getattr(self._current, "index", 0)

    def exchange(self, index: int) -> int:
        before = self.current()
        if index >= 0:
            self._current.index, self._used = index, True
        return before

    def is_used(self) -> bool:
        return self._used

    def use(self, whether: bool) -> None:
        self._used = whether

    def is_forked(self) -> bool:
        return self._forked

    def watch(self, whether: bool) -> None:
        kernels.watching = memory.watching = whether

    def resize(self, storage: Any, size: int) -> None:
        if size != storage.nbytes():
            raise NotImplementedError(
                f"torch resizes storages of devices written in C++ only, and {storage.device} is written in Python; "
                "apt install g++, or resize the tensor with resize_"
            )

    def start(self) -> None:
        _setup_privateuseone_for_python_backend(NAME, backend_module=vgpu, device_guard=backward.Guard())
        memory_accounting.open_for(self.count)
        memory.open_for(self.count)
        ours = _Operations()
        for part in (kernels, memory, nn):
            part.register(ours)
        kernels.register_fallbacks(kernels_of("_"))
        ours.register()
        memory.register_for_python()
        _answer_for_accelerator()
        replace_name("torch:Generator", randomness.Generator)
        self.generators += [torch.Generator(f"{NAME}:{i}") for i in range(self.count)]
        backward.compute_here()
        factories.replace()
        _make_like()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._close)

    def _close(self) -> None:
        if self._used:
            self._forked = True
            memory.close()


class _Operations:
    """Kernels that are registered together, the last one of each name: torch takes only one from Python."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, str], Callable[..., Any]] = {}

    def impl(self, name: str, kernel: Callable[..., Any], key: str) -> None:
        self._kernels[name.removeprefix("aten::"), key] = kernel

    def register(self) -> None:
        ours = kernels_of("aten")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that its own kernels are replaced
            for (name, key), kernel in self._kernels.items():
                ours.impl(name, untraced(kernel), key, allow_override=True)


def _answer_for_accelerator() -> None:
    """Replace the functions of ``torch.accelerator`` that ask the guard."""
    for name, answer in (
        ("getDeviceIndex", runtime.in_use().current),
        ("setDeviceIndex", runtime.exchange),
        ("exchangeDevice", runtime.exchange),
        ("maybeExchangeDevice", runtime.exchange),
        ("synchronizeDevice", existing),
        ("getStream", streams.current_stream),
        ("setStream", streams.set_stream),
        ("isAllocatorInitialized", vgpu.is_available),
        ("getDeviceStats", _stats),
        ("resetPeakStats", memory_accounting.reset_peak),
        ("resetAccumulatedStats", existing),
        ("getMemoryInfo", vgpu.mem_get_info),
        ("emptyCache", vgpu.empty_cache),
        ("emptyHostCache", vgpu.empty_cache),
    ):
        replace_name(f"torch._C:_accelerator_{name}", answer)


def _stats(index: int) -> dict[str, dict[str, dict[str, int]]]:
    """Allocated bytes under torch's keys; reserved is the same, since freed memory is returned immediately."""
    sums = {"all": {"current": memory_accounting.allocated(existing(index)), "peak": memory_accounting.peak(index)}}
    return {"allocated_bytes": sums, "reserved_bytes": sums}


def _make_like() -> None:
    """Replace `Tensor.new`, which asks the guard for the device."""

    @in_place_of("torch:Tensor.new")
    def new(make: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with vgpu.device_of(self):
            return make(self, *args, **kwargs)
