"""The functions of ``torch._C`` that ``torch.cuda.memory`` calls in a build with CUDA."""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from xdevice.virtual import machine
from xdevice.virtual.torch import runtime
from xdevice.virtual.torch.compiled import OUT_OF_MEMORY, compiled
from xdevice.virtual.torch.cuda import allocator_settings, memory_pools, memory_snapshot
from xdevice.virtual.torch.private_names import names
from xdevice.virtual.torch.runtime import in_use

_stats = names.value("torch._C:_accelerator_getDeviceStats")
_reset_peak = names.value("torch._C:_accelerator_resetPeakStats")
_reset_accumulated = names.value("torch._C:_accelerator_resetAccumulatedStats")


def free_and_total(index: int) -> tuple[int, int]:
    """Free and total bytes; where the host's memory is unknown, those of the capacity."""
    compiled().make_context(runtime.existing(index))
    free, total = runtime.memory_info(index)
    capacity = in_use().capacity
    if free is None:
        free = capacity - compiled().reserved(index)
    return free, total or capacity


_raw_allocations: dict[int, torch.Tensor] = {}
"""Memory that the program allocated without a tensor, by address."""


def _allocate(size: int, stream: int) -> int:
    memory = torch.empty(size, dtype=torch.uint8, device="cuda")
    _raw_allocations[memory.data_ptr()] = memory
    return memory.data_ptr()


def _free(address: int) -> None:
    if address and _raw_allocations.pop(address, None) is None:
        raise RuntimeError(f"invalid device pointer: {address:#x}")


def list_processes(device: runtime.DeviceLike = None) -> str:
    """What ``torch.cuda.list_gpu_processes`` returns; without a limit only this process is known."""
    index = runtime.index_of(device)
    used = {os.getpid(): compiled().reserved(index)}
    if in_use().limited:
        on_machine = compiled().visible_indices()[index]
        used = {
            holder.process: holder.bytes[on_machine]
            for holder in machine.holders(in_use().request) or ()
        }
    lines = [
        f"process {process:>10d} uses {size / (1 << 20):>12.3f} MB GPU memory"
        for process, size in used.items()
        if size
    ]
    return "\n".join([f"GPU:{index}", *(lines or ["no processes are running"])])


_fractions: dict[int, float] = {}
"""The fraction of each virtual GPU's memory that the program may use, where it is not 1."""


def _set_fraction(fraction: float, index: int) -> None:
    _fractions[index] = fraction
    compiled().allow(index, sys.maxsize if fraction == 1 else int(fraction * in_use().capacity))


def begin() -> None:
    """Follow the allocator's settings, when a virtual GPU is first used."""
    settings = allocator_settings.read()
    fraction = float(settings.get("per_process_memory_fraction", 1))
    if fraction != 1:
        for index in range(compiled().visible()):
            _set_fraction(fraction, index)


_is_enabled = True


def _enable(enabled: bool) -> None:
    """Without the allocator, torch counts no memory."""
    global _is_enabled
    _is_enabled = enabled
    compiled().use_allocator(enabled)


_observers: list[Callable[[int, int, int, int], object]] = []
"""What the program wants to be called before an error for want of memory."""


def _observe(device: int, wanted: int, allowed: int, free: int) -> None:
    for observer in _observers:
        observer(device, wanted, allowed, free)


_called_by_the_plug_in: Any = OUT_OF_MEMORY(_observe)  # kept alive


def _attach_observer(observer: Callable[[int, int, int, int], object]) -> None:
    _observers.append(observer)
    compiled().observe_out_of_memory(_called_by_the_plug_in)


def _of_allocator(function: Callable[[int], Any], index: int) -> Any:
    """Call a function of the allocator for an existing device."""
    if not 0 <= index < compiled().visible():
        raise RuntimeError(f"Invalid device argument {index}: did you call init?")
    return function(index)


def functions() -> dict[str, Callable[..., Any]]:
    """The functions, by name without the prefix ``_cuda_``."""
    virtual = compiled()
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1":
        _enable(False)
    return {
        "isHistoryEnabled": memory_snapshot.is_recorded,
        "record_memory_history": memory_snapshot.record,
        "record_memory_history_legacy": memory_snapshot.record_legacy,
        "memorySnapshot": memory_snapshot.snapshot,
        "setMemoryMetadata": memory_snapshot.set_note,
        "getMemoryMetadata": memory_snapshot.get_note,
        "attach_out_of_memory_observer": _attach_observer,
        "memoryStats": partial(_of_allocator, _stats),
        "resetPeakMemoryStats": partial(_of_allocator, _reset_peak),
        "resetAccumulatedMemoryStats": partial(_of_allocator, _reset_accumulated),
        "emptyCache": virtual.empty_cache,
        "clearCublasWorkspaces": virtual.clear_workspaces,
        "getAllocatorBackend": lambda: "native",
        "cudaCachingAllocator_enable": _enable,
        "cudaCachingAllocator_is_enabled": lambda: _is_enabled,
        "cudaCachingAllocator_raw_alloc": _allocate,
        "cudaCachingAllocator_raw_delete": _free,
        "setMemoryFraction": _set_fraction,
        "getMemoryFraction": lambda index: _fractions.get(index, 1.0),
        **memory_pools.FUNCTIONS,
    }
