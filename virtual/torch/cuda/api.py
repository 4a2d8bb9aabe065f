"""The functions of ``torch._C`` that ``torch.cuda`` calls in a build with CUDA, and their users."""

import os
import re
import warnings
from collections.abc import Callable, Collection
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
from torch.multiprocessing import reductions

from xdevice.backends.kit.private_names import resolved
from xdevice.virtual.models import MODELS, Model
from xdevice.virtual.torch import streams
from xdevice.virtual.torch.compiled import REFUSE, WARN, compiled
from xdevice.virtual.torch.cuda import memory_functions, memory_pools
from xdevice.virtual.torch.private_names import (
    Function,
    core,
    in_place_of,
    names,
    replace_name,
    untyped_torch,
)
from xdevice.virtual.torch.runtime import exchange, in_use

_complete = names.value("torch._C:_accelerator_synchronizeDevice")


def _zero(*args: Any) -> int:
    return 0


_ZERO_PROPERTIES = """
    regs_per_multiprocessor L2_cache_size
    shared_memory_per_block shared_memory_per_block_optin shared_memory_per_multiprocessor
    clock_rate memory_clock_rate memory_bus_width pci_bus_id pci_device_id pci_domain_id
"""
"""The properties that are 0."""

_NO_MODEL = Model("", multiprocessors=1, threads=1024, memory=0, capability=(0, 0))
"""Without a model. Capability 0.0: no program for real GPUs can be compiled for it."""


def _properties(index: int) -> SimpleNamespace:
    gpu = MODELS.get(in_use().request.model, _NO_MODEL)
    note = "xdevice, on the CPU"
    name = f"virtual GPU {index}"
    return SimpleNamespace(
        name=f"{gpu.name} ({name}: {note})" if gpu.name else f"{name} ({note})",
        uuid=f"virtual-{index}",
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=in_use().capacity,
        multi_processor_count=gpu.multiprocessors,
        max_threads_per_multi_processor=gpu.threads,
        max_threads_per_block=1024,
        warp_size=32,
        is_virtual=True,
        is_integrated=True,
        is_multi_gpu_board=False,
        gcnArchName="",
        **dict.fromkeys(_ZERO_PROPERTIES.split(), 0),
    )


def _init() -> None:
    if not _count_gpus():
        raise RuntimeError("No CUDA GPUs are available")
    memory_functions.begin()


def _count_gpus() -> int:
    """The number that CUDA's driver returns. It starts for this, so that forks cannot use it."""
    number = compiled().visible()
    compiled().count_gpus()
    return number


def _arch_flags() -> str:
    compiled().count_gpus()
    return ""


_sync_debug_mode: int | None = None
"""``None`` until the program sets it."""


def _get_sync_debug_mode() -> int:
    return _sync_debug_mode or 0


def _set_sync_debug_mode(mode: int) -> None:
    """Set what happens when CUDA makes the host wait: nothing (0), a warning (1), an error (2)."""
    global _sync_debug_mode
    if type(mode) is not int or not 0 <= mode <= 2:  # a truth value is refused, too
        raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
    if _sync_debug_mode is None:
        warnings.warn(
            "Synchronization debug mode is a prototype feature and does not yet detect all "
            "synchronizing operations",
            UserWarning,
            stacklevel=4,
        )
    _sync_debug_mode = mode
    compiled().check(WARN, mode == 1)
    compiled().check(REFUSE, mode == 2)


_NO_EFFECT = """
    sleep ipc_collect
    resetCublasWorkspaceSize resetCublasLtWorkspaceSize
"""
"""The functions that do nothing: operations are synchronous."""


def _functions() -> dict[str, Callable[..., Any]]:
    """The functions of ``torch._C``, by name without the prefix ``_cuda_``."""
    virtual = compiled()
    return {
        **dict.fromkeys(_NO_EFFECT.split(), lambda *args, **kwargs: None),
        **dict.fromkeys(("setDevice", "exchangeDevice", "maybeExchangeDevice"), exchange),
        "getCompiledVersion": _zero,
        "set_sync_debug_mode": _set_sync_debug_mode,
        "get_sync_debug_mode": _get_sync_debug_mode,
        "isCurrentStreamCapturing": lambda: False,
        "getDeviceCount": _count_gpus,
        "init": _init,
        "synchronize": _synchronize,
        "getDevice": virtual.current,
        "isInBadFork": virtual.is_forked,
        "hasPrimaryContext": lambda index: True,
        "canDeviceAccessPeer": lambda a, b: True,
        "getArchFlags": _arch_flags,
        **memory_functions.functions(),
        "getCurrentStream": streams.current_on_cuda,
        "getDefaultStream": streams.default_on_cuda,
        "setStream": streams.set_on_cuda,
        "getCurrentRawStream": streams.current_handle,
    }


def _new_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """A new function object: torch.compile accepts one handler for each, and refuses a second."""
    return lambda *args, **kwargs: function(*args, **kwargs)


def replace() -> None:
    functions = {name: _new_function(function) for name, function in _functions().items()}
    if hasattr(core, "_cuda_getDeviceCount"):  # a build with CUDA
        _refuse_functions_except(functions)
    for name, function in functions.items():
        replace_name(f"torch._C:_cuda_{name}", function)
    # Programs compare NCCL's version with what they need: 2.29.7 is that of PyTorch 2.13 for CUDA.
    replace_name("torch._C:_nccl_version", lambda: 2 << 32 | 29 << 16 | 7)
    replace_name("torch._C:_nccl_version_suffix", bytes)
    # programs split the version into numbers
    cuda_version = getattr(untyped_torch.version, "cuda", None) or "0.0"
    replace_name("torch:version.cuda", cuda_version)
    _replace_in_torch_cuda(functions)


def _refuse_functions_except(functions: Collection[str]) -> None:
    prefix = "_cuda_"
    for attribute in dir(core):
        name = attribute.removeprefix(prefix)
        if not attribute.startswith(prefix) or name in functions:
            continue
        if callable(getattr(core, attribute)):
            refuse = _refused(f"torch.cuda {name}", "it needs CUDA's driver")
            replace_name(f"torch._C:{attribute}", refuse)


_ERRORS = {0: "no error", 1: "invalid argument", 2: "out of memory"}

_NVTX_FUNCTIONS = (
    "rangePushA",
    "rangePop",
    "rangeStartA",
    "rangeEnd",
    "markA",
    "deviceRangeStart",
    "deviceRangeEnd",
)
"""The functions that ``torch.cuda.nvtx`` calls."""


def _replace_in_torch_cuda(functions: dict[str, Callable[..., Any]]) -> None:
    """Replace what ``torch.cuda`` copied from ``torch._C`` when it was imported."""
    queued_calls = getattr(untyped_torch.cuda, "_queued_calls", [])
    checks_of_build = ("_check_cap", "_check_cub")
    queued_calls[:] = [
        call for call in queued_calls if not call[0].__name__.startswith(checks_of_build)
    ]
    for name, value in {
        "_is_in_bad_fork": functions["isInBadFork"],
        "_exchange_device": functions["exchangeDevice"],
        "_maybe_exchange_device": functions["maybeExchangeDevice"],
        "_get_device_properties": _properties,
        "_device_count_nvml": lambda: len(compiled().named()),
        "_cached_device_count": None,
        "default_generators": tuple(in_use().generators),
        "graphs._cuda_isCurrentStreamCapturing": functions["isCurrentStreamCapturing"],
        "_cudart": _cuda_runtime(),
        "list_gpu_processes": memory_functions.list_processes,
        "memory.list_gpu_processes": memory_functions.list_processes,
        "MemPool": memory_pools.MemPool,
        "memory.MemPool": memory_pools.MemPool,
        "graphs._graph_pool_handle": memory_pools.new_id,
        **{f"memory._cuda_{name}": functions[name] for name in memory_pools.FUNCTIONS},
        "nvtx._nvtx": SimpleNamespace(**dict.fromkeys(_NVTX_FUNCTIONS, _zero)),
    }.items():
        replace_name(f"torch.cuda:{name}", value)


def _synchronize() -> None:
    compiled().make_context(compiled().current())  # PyTorch does nothing before the first tensor
    _complete(compiled().current())


def _device_synchronize() -> int:
    _synchronize()
    return 0  # no error


def _cuda_runtime() -> SimpleNamespace:
    """The functions of CUDA's runtime that ``torch.cuda.cudart()`` provides."""
    return SimpleNamespace(
        cudaError=type("cudaError", (int,), {"success": 0}),  # an enumeration
        cudaGetErrorString=lambda error: _ERRORS.get(error, "unrecognized error code"),
        cudaMemGetInfo=memory_functions.free_and_total,
        cudaHostRegister=lambda pointer, size, flags=0: compiled().pin(pointer, size),
        cudaHostUnregister=lambda pointer: compiled().pin(pointer, 0),
        cudaDeviceSynchronize=_device_synchronize,
        cudaProfilerStart=_zero,
        cudaProfilerStop=_zero,
    )


def _refused(name: str, remedy: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"virtual GPUs have no {name}; {remedy}")

    return refuse


def replace_unavailable() -> None:
    """Make functions that virtual GPUs do not have raise an error that names an alternative."""
    table = Path(__file__).with_name("unavailable.txt").read_text(encoding="utf-8")
    for line in table.splitlines():
        if line.startswith("#"):
            continue
        paths, public_name, remedy = re.split(" {2,}", line)
        _replace_by_error(paths.split(), public_name, remedy)
    for name in torch.cuda.tunable.__all__:  # TunableOp is off, and cannot be turned on
        value: Callable[..., Any]
        if name in ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled"):
            value = _new_function(_false)
        else:
            remedy = "operations are the CPU's and are not tuned"
            value = _refused(f"torch.cuda.tunable.{name}", remedy)
        replace_name(f"torch.cuda.tunable:{name}", value)


def _replace_by_error(paths: list[str], public_name: str, remedy: str) -> None:
    value: Any = _refused(public_name, remedy)
    if isinstance(getattr(*resolved(paths[0]), None), type):
        value = type(public_name.rpartition(".")[2], (), {"__new__": value})
    for path in paths:
        replace_name(path, value)


def _false(*args: Any) -> bool:
    return False


def replace_users() -> None:
    """Replace what uses ``torch.cuda``: profilers, shared tensors, cuDNN, linear algebra."""
    _replace_profilers()
    _replace_sharing()
    _replace_preferred_libraries()
    _replace_cudnn()

    @in_place_of("torch:ops.load_library")
    def load_library(native: Function, path: str) -> None:
        native(path)
        # the library may have kernels for real GPUs, as torchvision has: use those for the CPU
        compiled().replace_kernels_of_libraries()

    # torch.backends.cuda.is_built(), which programs call before they use GPUs
    replace_name("torch._C:_has_cuda", True)
    if hasattr(core, "_jit_override_can_fuse_on_gpu"):
        core._jit_override_can_fuse_on_gpu(False)
    # Triton reads this when it is imported, and runs kernels in its interpreter
    os.environ.setdefault("TRITON_INTERPRET", "1")


def _replace_preferred_libraries() -> None:
    """Keep what the program prefers: torch refuses libraries that its build does not have."""
    if not names.has("preferred libraries of linear algebra"):
        return
    preferred = {
        "linalg": core._get_linalg_preferred_backend(),
        "blas": core._get_blas_preferred_backend(),
    }
    for kind in preferred:
        getter = partial(preferred.get, kind)
        setter = partial(preferred.__setitem__, kind)
        replace_name(f"torch._C:_get_{kind}_preferred_backend", getter)
        replace_name(f"torch._C:_set_{kind}_preferred_backend", setter)


def _replace_cudnn() -> None:
    """There is no cuDNN, even in a build of torch that has it."""
    replace_name("torch._C:_has_cudnn", False)
    # the module that cuDNN's functions read is behind a PropModule
    replace_name("torch.backends.cudnn:m._cudnn", None)
    replace_name("torch.backends.cudnn:m._init", _new_function(_false))
    replace_name("torch.backends.cudnn:m.is_acceptable", _new_function(_false))


def _replace_profilers() -> None:
    """Profile the CPU, where everything runs: recording CUDA's events needs a driver."""
    from torch.profiler import ProfilerActivity

    @in_place_of("torch.profiler.profiler:_KinetoProfile.__init__")  # all profilers derive from it
    def init(native: Function, self: object, *, activities: Any = None, **kwargs: object) -> None:
        without_cuda = set(activities or ()) - {ProfilerActivity.CUDA}
        native(self, activities=without_cuda or {ProfilerActivity.CPU}, **kwargs)

    @in_place_of("torch.autograd.profiler:profile.__init__")
    def init_legacy(native: Function, self: object, enabled: bool = True, **kwargs: object) -> None:
        if kwargs.get("use_cuda"):  # PyTorch 2.15 no longer has this parameter
            kwargs["use_cuda"] = False
        if kwargs.get("use_device") == "cuda":
            kwargs["use_device"] = None
        native(self, enabled, **kwargs)

    replace_name("torch.profiler.profiler:supported_activities", lambda: {ProfilerActivity.CPU})
    replace_name("torch.autograd.profiler:emit_nvtx.__enter__", lambda self: self)
    replace_name("torch.autograd.profiler:emit_nvtx.__exit__", lambda self, *error: None)


def _replace_sharing() -> None:
    """Send tensors to other processes in shared memory of the host, not by handles of CUDA."""
    if not names.has("tensors sent to other processes"):
        return
    native_reduce: Any = reductions.reduce_tensor

    def reduce_tensor(tensor: Any) -> Any:
        if not _is_shareable(tensor):
            return native_reduce(tensor)
        with torch.no_grad():
            # the tensor's memory as a CPU tensor, which other processes can open
            host: torch.Tensor = torch.ops.xdevice_virtual.host(tensor.detach())
            host.untyped_storage().share_memory_()
            torch.ops.xdevice_virtual.refresh(tensor.detach())
        is_parameter = type(tensor) is torch.nn.Parameter
        return _rebuild, (host, tensor.get_device(), is_parameter, tensor.requires_grad)

    replace_name("torch.multiprocessing.reductions:reduce_tensor", reduce_tensor)
    for cls in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(cls, reduce_tensor)


def _is_shareable(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on a GPU, dense and a leaf.

    torch sends the parts of sparse and nested tensors, and refuses tensors that are not leaves.
    """
    if not tensor.is_cuda or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if tensor.layout != torch.strided or tensor.is_nested:
        return False
    return tensor.is_leaf or not tensor.requires_grad


def _rebuild(
    host: torch.Tensor, index: int, is_parameter: bool, requires_grad: bool
) -> torch.Tensor:
    untyped_torch.cuda.init()
    tensor: torch.Tensor = torch.ops.xdevice_virtual.take(host, index)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)
