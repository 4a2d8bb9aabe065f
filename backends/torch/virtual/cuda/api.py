"""What ``torch.cuda`` asks of ``torch._C`` in a build with CUDA, answered for virtual GPUs, or refused."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch

from xdevice.backends.torch.private_names import core, own, replace_name
from xdevice.backends.torch.virtual import runtime, streams
from xdevice.backends.torch.virtual.compiled.plug_in import compiled
from xdevice.backends.torch.virtual.runtime import exchange, in_use
from xdevice.kit.private_names import resolved


def _zero(*args: Any) -> int:
    return 0


_ZERO = """
    major minor regs_per_multiprocessor L2_cache_size shared_memory_per_block shared_memory_per_block_optin
    shared_memory_per_multiprocessor clock_rate memory_clock_rate memory_bus_width
    pci_bus_id pci_device_id pci_domain_id
"""
"""The properties that are 0."""


def _properties(index: int) -> SimpleNamespace:
    """Capability 0.0, since no program for real GPUs can be compiled for it."""
    name, uuid, memory = f"virtual GPU {index} (xdevice, on the CPU)", f"virtual-{index}", _memory_info(index)[1]
    sizes = {"max_threads_per_multi_processor": 1024, "max_threads_per_block": 1024, "warp_size": 32}
    kind = {"is_virtual": True, "is_integrated": True, "is_multi_gpu_board": False, "gcnArchName": ""}
    none = dict.fromkeys(_ZERO.split(), 0)
    return SimpleNamespace(name=name, uuid=uuid, total_memory=memory, multi_processor_count=1, **sizes, **kind, **none)


def _memory_info(index: int) -> tuple[int, int]:
    """Free and total bytes, by what is allocated where the host's are unknown."""
    free, total = runtime.memory_info(index)
    capacity = in_use().capacity
    return capacity - in_use().allocated(index) if free is None else free, total or capacity


_raw: dict[int, torch.Tensor] = {}
"""Memory without a tensor of the program's, by address."""


def _allocate(size: int, stream: int) -> int:
    made = torch.empty(size, dtype=torch.uint8, device="cuda")
    _raw[made.data_ptr()] = made
    return made.data_ptr()


_fractions: dict[int, float] = {}
"""The part of each virtual GPU's memory that may be used, where it is not all."""


def _set_fraction(fraction: float, index: int) -> None:
    _fractions[index] = fraction
    unlimited = fraction == 1 and not in_use().limited
    compiled().limit(index, sys.maxsize if unlimited else int(fraction * in_use().capacity))


def _init() -> None:
    if not compiled().visible():
        raise RuntimeError("No CUDA GPUs are available")


_NOTHING = """
    cudaCachingAllocator_enable sleep emptyCache ipc_collect clearCublasWorkspaces set_sync_debug_mode
    record_memory_history record_memory_history_legacy
"""
"""What does nothing: an operation is done when its call returns, and freed memory is the host's at once."""


def _answers() -> dict[str, Callable[..., Any]]:
    virtual = compiled()
    return {
        **dict.fromkeys(_NOTHING.split(), lambda *args, **kwargs: None),
        **dict.fromkeys(("setDevice", "exchangeDevice", "maybeExchangeDevice"), exchange),
        **dict.fromkeys(("getCompiledVersion", "get_sync_debug_mode"), _zero),
        **dict.fromkeys(("isHistoryEnabled", "isCurrentStreamCapturing"), lambda: False),
        "getDeviceCount": virtual.visible,
        "init": _init,
        "synchronize": lambda: core._accelerator_synchronizeDevice(virtual.current()),
        "getDevice": virtual.current,
        "isInBadFork": virtual.is_forked,
        "hasPrimaryContext": lambda index: True,
        "canDeviceAccessPeer": lambda a, b: True,
        "getArchFlags": lambda: "",
        "memoryStats": core._accelerator_getDeviceStats,
        "resetPeakMemoryStats": core._accelerator_resetPeakStats,
        "resetAccumulatedMemoryStats": core._accelerator_resetAccumulatedStats,
        "memorySnapshot": lambda *args: {"segments": [], "device_traces": []},
        "getAllocatorBackend": lambda: "native",
        "cudaCachingAllocator_is_enabled": lambda: True,
        "cudaCachingAllocator_raw_alloc": _allocate,
        "cudaCachingAllocator_raw_delete": lambda address: _raw.pop(address, None),
        "setMemoryFraction": _set_fraction,
        "getMemoryFraction": lambda index: _fractions.get(index, 1.0),
        "getCurrentStream": streams.current_on_cuda,
        "getDefaultStream": lambda index: (0, index, streams.CUDA),
        "setStream": streams.set_on_cuda,
        "getCurrentRawStream": lambda index: streams.current_on_cuda(index)[0],
    }


def _own(word: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: torch.compile keeps one handler for each, and refuses a second."""
    return lambda *args, **kwargs: word(*args, **kwargs)


def replace() -> None:
    answers = {name: _own(word) for name, word in _answers().items()}
    if hasattr(core, "_cuda_getDeviceCount"):  # a build with CUDA
        for name in [name[6:] for name in dir(core) if name.startswith("_cuda_") and callable(getattr(core, name))]:
            if name not in answers:
                replace_name(f"torch._C:_cuda_{name}", _refused(f"torch.cuda {name}", "it needs CUDA's driver"))
    for name, word in answers.items():
        replace_name(f"torch._C:_cuda_{name}", word)
    # 2.29.7, which PyTorch 2.13 for CUDA requires: programs ask whether it is new enough for what they do
    replace_name("torch._C:_nccl_version", lambda: 2 << 32 | 29 << 16 | 7)
    replace_name("torch._C:_nccl_version_suffix", bytes)
    replace_name("torch:version.cuda", own.version.cuda or "0.0")  # which programs split into numbers
    _replace_python(answers)


_ERRORS = {0: "no error", 1: "invalid argument", 2: "out of memory"}


class _Error(int):
    """``torch.cuda.cudart().cudaError``, an enumeration."""

    success = 0


_MARKS = "rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA", "deviceRangeStart", "deviceRangeEnd"
"""What ``torch.cuda.nvtx`` calls."""


def _replace_python(answers: dict[str, Callable[..., Any]]) -> None:
    """The same where ``torch.cuda`` has taken it over while it was imported."""
    left_out, queued = ("_check_cap", "_check_cub"), own.cuda._queued_calls
    queued[:] = [call for call in queued if not call[0].__name__.startswith(left_out)]
    for name, value in {
        "_is_in_bad_fork": answers["isInBadFork"],
        "_exchange_device": answers["exchangeDevice"],
        "_maybe_exchange_device": answers["maybeExchangeDevice"],
        "_get_device_properties": _properties,
        "_device_count_nvml": lambda: -1,
        "_cached_device_count": None,
        "default_generators": tuple(in_use().generators),
        "graphs._cuda_isCurrentStreamCapturing": answers["isCurrentStreamCapturing"],
        "_cudart": SimpleNamespace(
            cudaError=_Error,
            cudaGetErrorString=lambda error: _ERRORS.get(error, "unrecognized error code"),
            cudaMemGetInfo=_memory_info,
            cudaHostRegister=lambda pointer, size, flags=0: compiled().pin(pointer, size),
            cudaHostUnregister=lambda pointer: compiled().pin(pointer, 0),
            cudaDeviceSynchronize=lambda: core._accelerator_synchronizeDevice(in_use().current()) or 0,
            cudaProfilerStart=_zero,
            cudaProfilerStop=_zero,
        ),
        "nvtx._nvtx": SimpleNamespace(**dict.fromkeys(_MARKS, _zero)),
    }.items():
        replace_name(f"torch.cuda:{name}", value)


# ---------------------------------------------------------------- what virtual GPUs do not have


def _refused(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function that raises an error, which says what to use instead."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"virtual GPUs have no {name}; {instead}")

    return refuse


def replace_unavailable() -> None:
    for line in Path(__file__).with_name("unavailable.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            names, called, instead = re.split(" {2,}", line)
            paths: list[str] = names.split()
            value: Any = _refused(called, instead)
            if isinstance(getattr(*resolved(paths[0]), None), type):
                value = type(called.rpartition(".")[2], (), {"__new__": value})
            for path in paths:
                replace_name(path, value)
    for name in torch.cuda.tunable.__all__:  # TunableOp is off, and cannot be turned on
        refuse = _refused(f"torch.cuda.tunable.{name}", "operations are the CPU's and are not tuned")
        off = name in ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled")
        replace_name(f"torch.cuda.tunable:{name}", (lambda: False) if off else refuse)
