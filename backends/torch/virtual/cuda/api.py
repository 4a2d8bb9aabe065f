"""What ``torch.cuda`` asks of ``torch._C`` in a build with CUDA, answered for virtual GPUs."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch.private_names import core
from xdevice.backends.torch.virtual.cuda import streams
from xdevice.backends.torch.virtual.cuda.unavailable import refused
from xdevice.backends.torch.virtual.runtime import exchange, in_use
from xdevice.machine import host_memory

if TYPE_CHECKING:
    from collections.abc import Callable


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Does nothing: an operation is done when its call returns, and freed memory is the host's at once."""


def _zero(*args: Any) -> int:
    return 0


def _count() -> int:
    return in_use().count


def _properties(index: int) -> SimpleNamespace:
    """Capability 0.0, since no program for real GPUs can be compiled for it."""
    sizes = dict.fromkeys(
        (
            "regs_per_multiprocessor",
            "L2_cache_size",
            "shared_memory_per_block",
            "shared_memory_per_block_optin",
            "shared_memory_per_multiprocessor",
            "clock_rate",
            "memory_clock_rate",
            "memory_bus_width",
            "pci_bus_id",
            "pci_device_id",
            "pci_domain_id",
        ),
        0,
    )
    return SimpleNamespace(
        name=f"virtual GPU {index} (xdevice, on the CPU)",
        total_memory=memory_info(index)[1],
        is_virtual=True,
        major=0,
        minor=0,
        multi_processor_count=1,
        warp_size=32,
        max_threads_per_multi_processor=1024,
        max_threads_per_block=1024,
        is_integrated=True,
        is_multi_gpu_board=False,
        gcnArchName="",
        uuid=f"virtual-{index}",
        **sizes,
    )


def memory_info(index: int) -> tuple[int, int]:
    """Free and total bytes: of the virtual GPU where memory is limited, else of the host."""
    if in_use().limited:
        return max(in_use().capacity - in_use().allocated(index), 0), in_use().capacity
    total, free = host_memory()
    return (free if free is not None else in_use().capacity - in_use().allocated(index)), total or in_use().capacity


def _statistics(index: int) -> dict[str, Any]:
    """Under torch's keys; reserved is what is allocated, since nothing is cached."""
    now, total = in_use().allocated(index), in_use().total(index)
    held = {"current": now, "peak": in_use().peak(index), "allocated": total, "freed": total - now}
    none = dict.fromkeys(held, 0)
    found: dict[str, Any] = {}
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        found[name] = {"all": dict(held), "small_pool": dict(none), "large_pool": dict(held)}
    for name in ("inactive_split_bytes", "allocation", "active", "segment", "inactive_split"):
        found[name] = {"all": dict(none), "small_pool": dict(none), "large_pool": dict(none)}
    counts = ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"]
    return found | dict.fromkeys(("oversize_allocations", "oversize_segments"), none) | dict.fromkeys(counts, 0)


_fractions: dict[int, float] = {}
"""The part of each virtual GPU's memory that may be used, where it is not all."""


def _set_fraction(fraction: float, index: int) -> None:
    _fractions[index] = fraction
    unlimited = fraction == 1 and not in_use().limited
    in_use().limit(index, sys.maxsize if unlimited else int(fraction * in_use().capacity))


def _answers() -> dict[str, Callable[..., Any]]:
    virtual = in_use()
    return {
        "init": _nothing,
        "getDeviceCount": _count,
        "getDevice": virtual.current,
        "setDevice": exchange,
        "exchangeDevice": exchange,
        "maybeExchangeDevice": exchange,
        "synchronize": _nothing,
        "sleep": _nothing,
        "emptyCache": _nothing,
        "ipc_collect": _nothing,
        "clearCublasWorkspaces": _nothing,
        "isInBadFork": virtual.is_forked,
        "hasPrimaryContext": lambda index: True,
        "canDeviceAccessPeer": lambda a, b: True,
        "getArchFlags": lambda: "",
        "getCompiledVersion": _zero,
        "memoryStats": _statistics,
        "resetPeakMemoryStats": virtual.reset_peak,
        "resetAccumulatedMemoryStats": virtual.reset_total,
        "memorySnapshot": lambda *args: {"segments": [], "device_traces": []},
        "record_memory_history": _nothing,
        "record_memory_history_legacy": _nothing,
        "isHistoryEnabled": lambda: False,
        "getAllocatorBackend": lambda: "native",
        "cudaCachingAllocator_is_enabled": lambda: True,
        "setMemoryFraction": _set_fraction,
        "getMemoryFraction": lambda index: _fractions.get(index, 1.0),
        "getCurrentStream": streams.current,
        "getDefaultStream": streams.default,
        "setStream": streams.choose,
        "getCurrentRawStream": lambda index: streams.current(index)[0],
        "isCurrentStreamCapturing": lambda: False,
        "get_sync_debug_mode": _zero,
        "set_sync_debug_mode": _nothing,
    }


def _own(word: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: torch.compile keeps one handler for each, and refuses a second."""
    return lambda *args, **kwargs: word(*args, **kwargs)


def replace() -> None:
    """Let ``torch.cuda`` find what it asks for."""
    answers, cuda = {name: _own(word) for name, word in _answers().items()}, torch.cuda
    built = hasattr(core, "_cuda_getDeviceCount")
    for name in [name[6:] for name in dir(core) if name.startswith("_cuda_")] if built else []:
        if name not in answers and callable(getattr(core, f"_cuda_{name}")):
            setattr(core, f"_cuda_{name}", refused(f"torch.cuda {name}", "it needs CUDA's driver"))
    for name, word in answers.items():
        setattr(core, f"_cuda_{name}", word)
    core._nccl_version, core._nccl_version_suffix = _zero, bytes  # asked by torch's own log: there is none
    _replace_python(cuda, answers)


_CUDART = "cudaProfilerStart", "cudaProfilerStop", "cudaDeviceSynchronize", "cudaHostRegister", "cudaHostUnregister"
"""What ``torch.cuda.cudart()`` does at once, since the memory is the host's."""


def _replace_python(cuda: Any, answers: dict[str, Callable[..., Any]]) -> None:
    """The same where ``torch.cuda`` has taken it over while it was imported."""
    cuda._is_in_bad_fork = cuda.random._is_in_bad_fork = answers["isInBadFork"]
    cuda._exchange_device, cuda._maybe_exchange_device = answers["exchangeDevice"], answers["maybeExchangeDevice"]
    cuda._get_device_properties, cuda._device_count_nvml = _properties, lambda: -1
    cuda._cached_device_count = None
    cuda._queued_calls[:] = [call for call in cuda._queued_calls if not call[0].__name__.startswith("_check_cap")]
    cuda._queued_calls[:] = [call for call in cuda._queued_calls if not call[0].__name__.startswith("_check_cub")]
    cuda.default_generators = tuple(in_use().generators)
    cuda.graphs._cuda_isCurrentStreamCapturing = answers["isCurrentStreamCapturing"]
    done = dict.fromkeys(_CUDART, _zero)
    cuda._cudart = SimpleNamespace(
        cudaMemGetInfo=memory_info, cudaError=SimpleNamespace(success=0), cudaGetErrorString=str, **done
    )
    marks = dict.fromkeys(("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA"), _zero)
    cuda.nvtx._nvtx = SimpleNamespace(**marks)
