"""What ``torch.cuda`` asks of ``torch._C`` in a build with CUDA, answered or refused here; and what uses it."""

import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

from xdevice.kit.private_names import resolved
from xdevice.virtual.torch import runtime, streams
from xdevice.virtual.torch.compiled import REFUSE, WARN, compiled
from xdevice.virtual.torch.private_names import core, in_place_of, names, own, replace_name
from xdevice.virtual.torch.runtime import exchange, in_use

_ASKED = "synchronizeDevice", "getDeviceStats", "resetPeakStats", "resetAccumulatedStats"
_of_accelerator = (names.value(f"torch._C:_accelerator_{name}") for name in _ASKED)
_synchronize, _stats, _reset_peak, _reset_accumulated = _of_accelerator


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
    name, uuid, memory = (
        f"virtual GPU {index} (xdevice, on the CPU)",
        f"virtual-{index}",
        _memory_info(index)[1],
    )
    sizes = {
        "max_threads_per_multi_processor": 1024,
        "max_threads_per_block": 1024,
        "warp_size": 32,
    }
    kind = {
        "is_virtual": True,
        "is_integrated": True,
        "is_multi_gpu_board": False,
        "gcnArchName": "",
    }
    none = dict.fromkeys(_ZERO.split(), 0)
    return SimpleNamespace(
        name=name, uuid=uuid, total_memory=memory, multi_processor_count=1, **sizes, **kind, **none
    )


def _memory_info(index: int) -> tuple[int, int]:
    """Free and total bytes, by what is allocated where the host's are unknown."""
    free, total = runtime.memory_info(runtime.existing(index))
    capacity = in_use().capacity
    return capacity - in_use().allocated(index) if free is None else free, total or capacity


_raw: dict[int, torch.Tensor] = {}  # memory without a tensor of the program's, by address


def _allocate(size: int, stream: int) -> int:
    made = torch.empty(size, dtype=torch.uint8, device="cuda")
    _raw[made.data_ptr()] = made
    return made.data_ptr()


_fractions: dict[
    int, float
] = {}  # the part of each virtual GPU's memory that may be used, where it is not all


def _set_fraction(fraction: float, index: int) -> None:
    _fractions[index] = fraction
    unlimited = fraction == 1 and not in_use().limited
    compiled().limit(index, sys.maxsize if unlimited else int(fraction * in_use().capacity))


def _init() -> None:
    if not compiled().visible():
        raise RuntimeError("No CUDA GPUs are available")


def _of_memory(ask: Callable[[int], Any], index: int) -> Any:
    """What the allocator says of a device that exists."""
    if not 0 <= index < compiled().visible():
        raise RuntimeError(f"Invalid device argument {index}: did you call init?")
    return ask(index)


_sync_debug_modes = [0]
"""The one that is set, and once it has been, another."""


def _set_sync_debug_mode(mode: int) -> None:
    """0, or 1 to warn of what CUDA makes the host wait for, or 2 to refuse it: see late.h."""
    if not 0 <= mode <= 2:
        raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
    if len(_sync_debug_modes) == 1:
        words = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
        warnings.warn(words, UserWarning, stacklevel=4)
    _sync_debug_modes[:] = mode, mode
    compiled().check(WARN, mode == 1)
    compiled().check(REFUSE, mode == 2)


_NOTHING = """
    cudaCachingAllocator_enable sleep emptyCache ipc_collect
    clearCublasWorkspaces resetCublasWorkspaceSize resetCublasLtWorkspaceSize
    record_memory_history record_memory_history_legacy
"""
"""What does nothing: an operation is done when its call returns, and freed memory is the host's at once."""


def _answers() -> dict[str, Callable[..., Any]]:
    virtual = compiled()
    return {
        **dict.fromkeys(_NOTHING.split(), lambda *args, **kwargs: None),
        **dict.fromkeys(("setDevice", "exchangeDevice", "maybeExchangeDevice"), exchange),
        "getCompiledVersion": _zero,
        "set_sync_debug_mode": _set_sync_debug_mode,
        "get_sync_debug_mode": lambda: _sync_debug_modes[0],
        **dict.fromkeys(("isHistoryEnabled", "isCurrentStreamCapturing"), lambda: False),
        "getDeviceCount": virtual.visible,
        "init": _init,
        "synchronize": lambda: _synchronize(virtual.current()),
        "getDevice": virtual.current,
        "isInBadFork": virtual.is_forked,
        "hasPrimaryContext": lambda index: True,
        "canDeviceAccessPeer": lambda a, b: True,
        "getArchFlags": lambda: "",
        "memoryStats": partial(_of_memory, _stats),
        "resetPeakMemoryStats": partial(_of_memory, _reset_peak),
        "resetAccumulatedMemoryStats": partial(_of_memory, _reset_accumulated),
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
        for name in [
            name[6:]
            for name in dir(core)
            if name.startswith("_cuda_") and callable(getattr(core, name))
        ]:
            if name not in answers:
                replace_name(
                    f"torch._C:_cuda_{name}",
                    _refused(f"torch.cuda {name}", "it needs CUDA's driver"),
                )
    for name, word in answers.items():
        replace_name(f"torch._C:_cuda_{name}", word)
    # 2.29.7, which PyTorch 2.13 for CUDA requires: programs ask whether it is new enough for what they do
    replace_name("torch._C:_nccl_version", lambda: 2 << 32 | 29 << 16 | 7)
    replace_name("torch._C:_nccl_version_suffix", bytes)
    replace_name(
        "torch:version.cuda", getattr(own.version, "cuda", None) or "0.0"
    )  # which programs split into numbers
    _replace_python(answers)


_ERRORS = {0: "no error", 1: "invalid argument", 2: "out of memory"}

_MARKS = (
    "rangePushA",
    "rangePop",
    "rangeStartA",
    "rangeEnd",
    "markA",
    "deviceRangeStart",
    "deviceRangeEnd",
)
"""What ``torch.cuda.nvtx`` calls."""


def _replace_python(answers: dict[str, Callable[..., Any]]) -> None:
    """The same where ``torch.cuda`` has taken it over while it was imported."""
    left_out, queued = ("_check_cap", "_check_cub"), getattr(own.cuda, "_queued_calls", [])
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
            cudaError=type("cudaError", (int,), {"success": 0}),  # an enumeration
            cudaGetErrorString=lambda error: _ERRORS.get(error, "unrecognized error code"),
            cudaMemGetInfo=_memory_info,
            cudaHostRegister=lambda pointer, size, flags=0: compiled().pin(pointer, size),
            cudaHostUnregister=lambda pointer: compiled().pin(pointer, 0),
            cudaDeviceSynchronize=lambda: _synchronize(in_use().current()) or 0,
            cudaProfilerStart=_zero,
            cudaProfilerStop=_zero,
        ),
        "nvtx._nvtx": SimpleNamespace(**dict.fromkeys(_MARKS, _zero)),
    }.items():
        replace_name(f"torch.cuda:{name}", value)


def _refused(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"virtual GPUs have no {name}; {instead}")

    return refuse


def replace_unavailable() -> None:
    for line in (
        Path(__file__).with_name("unavailable.txt").read_text(encoding="utf-8").splitlines()
    ):
        if not line.startswith("#"):
            names, called, instead = re.split(" {2,}", line)
            paths: list[str] = names.split()
            value: Any = _refused(called, instead)
            if isinstance(getattr(*resolved(paths[0]), None), type):
                value = type(called.rpartition(".")[2], (), {"__new__": value})
            for path in paths:
                replace_name(path, value)
    for name in torch.cuda.tunable.__all__:  # TunableOp is off, and cannot be turned on
        refuse = _refused(
            f"torch.cuda.tunable.{name}", "operations are the CPU's and are not tuned"
        )
        off = name in ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled")
        replace_name(f"torch.cuda.tunable:{name}", (lambda: False) if off else refuse)


def replace_whole() -> None:
    """Replace profilers, cuDNN, preferred libraries and what shares tensors, which stand on ``torch.cuda``."""
    _profile()
    _share()
    kinds = ("linalg", "blas") if names.has("preferred libraries of linear algebra") else ()
    preferred = {kind: getattr(core, f"_get_{kind}_preferred_backend")() for kind in kinds}
    for (
        kind
    ) in preferred:  # which a program prefers: torch refuses those that its build does not have
        replace_name(f"torch._C:_get_{kind}_preferred_backend", partial(preferred.get, kind))
        replace_name(
            f"torch._C:_set_{kind}_preferred_backend", partial(preferred.__setitem__, kind)
        )

    @in_place_of("torch:ops.load_library")
    def load_library(load: Any, path: str) -> None:
        load(path)
        compiled().cover()  # it may have kernels for real GPUs, as torchvision's: let the CPU's replace them

    replace_name(
        "torch._C:_has_cuda", True
    )  # torch.backends.cuda.is_built(), which programs ask before they use GPUs
    replace_name(
        "torch._C:_has_cudnn", False
    )  # who asks gets the truth, also on a build that has it
    if hasattr(core, "_jit_override_can_fuse_on_gpu"):
        core._jit_override_can_fuse_on_gpu(False)
    # what cuDNN's functions read is behind a PropModule
    for name, value in (
        ("_cudnn", None),
        ("_init", lambda: False),
        ("is_acceptable", lambda tensor: False),
    ):
        replace_name(f"torch.backends.cudnn:m.{name}", value)
    os.environ.setdefault(
        "TRITON_INTERPRET", "1"
    )  # Triton's kernels run in its interpreter, which reads this first


def _profile() -> None:
    """Profile the CPU, where everything runs: recording CUDA's events needs a driver."""
    from torch.profiler import ProfilerActivity

    @in_place_of("torch.profiler.profiler:_KinetoProfile.__init__")  # all profilers derive from it
    def init(make: Any, self: Any, *, activities: Any = None, **kwargs: Any) -> None:
        kept = set(activities or ()) - {ProfilerActivity.CUDA}
        make(self, activities=kept or {ProfilerActivity.CPU}, **kwargs)

    @in_place_of("torch.autograd.profiler:profile.__init__")
    def init_legacy(make: Any, self: Any, enabled: bool = True, **kwargs: Any) -> None:
        if kwargs.get("use_cuda"):  # which PyTorch 2.15 has no longer
            kwargs["use_cuda"] = False
        if kwargs.get("use_device") == "cuda":
            kwargs["use_device"] = None
        make(self, enabled, **kwargs)

    replace_name("torch.profiler.profiler:supported_activities", lambda: {ProfilerActivity.CPU})
    replace_name("torch.autograd.profiler:emit_nvtx.__enter__", lambda self: self)
    replace_name("torch.autograd.profiler:emit_nvtx.__exit__", lambda self, *error: None)


def _share() -> None:
    """Send tensors to other processes in shared memory of the host, instead of by CUDA's handles."""
    if not names.has("tensors sent to other processes"):
        return
    plain: Any = reductions.reduce_tensor

    def reduce_tensor(tensor: Any) -> Any:
        whole = (
            tensor.layout == torch.strided and not tensor.is_nested
        )  # torch takes others apart, and sends the parts
        refused = tensor.requires_grad and not tensor.is_leaf  # by torch
        if (
            refused
            or not whole
            or not tensor.is_cuda
            or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        ):
            return plain(tensor)
        with torch.no_grad():
            # the tensor's memory as a CPU tensor, where other processes find it
            host: torch.Tensor = torch.ops.xdevice_virtual.host(tensor.detach())
            host.untyped_storage().share_memory_()
            torch.ops.xdevice_virtual.refresh(tensor.detach())
        return _received, (
            host,
            tensor.get_device(),
            type(tensor) is torch.nn.Parameter,
            tensor.requires_grad,
        )

    replace_name("torch.multiprocessing.reductions:reduce_tensor", reduce_tensor)
    for cls in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(cls, reduce_tensor)


def _received(host: torch.Tensor, index: int, parameter: bool, requires_grad: bool) -> torch.Tensor:
    own.cuda.init()
    made: torch.Tensor = torch.ops.xdevice_virtual.take(host, index)
    return (
        torch.nn.Parameter(made, requires_grad) if parameter else made.requires_grad_(requires_grad)
    )
