"""What ``torch.cuda`` has and virtual GPUs do not: each raises an error that says what to use instead."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from xdevice.backends.torch.private_names import replace_name

_OPERATIONS = "run the operations themselves"
_TENSORS = "make tensors with torch.empty"
_KERNELS = "write the kernel as operations of torch"
_NVML = "torch.cuda.mem_get_info and memory_allocated work"

_WORDS = {
    "_cuda_getCurrentBlasHandle": ("torch.cuda.current_blas_handle", _OPERATIONS),
    "_cuda_getCurrentSolverHandle": ("torch.cuda.current_solver_handle", _OPERATIONS),
    "_cuda_getStreamFromExternal": ("torch.cuda.get_stream_from_external", "make a torch.cuda.Stream"),
    "_cuda_jiterator_compile_and_launch_kernel": ("torch.cuda.jiterator", _KERNELS),
    "_cuda_attach_out_of_memory_observer": ("observers of its allocator", "catch torch.OutOfMemoryError"),
    "_cuda_customAllocator": ("torch.cuda.memory.CUDAPluggableAllocator", _TENSORS),
    "_cuda_changeCurrentAllocator": ("torch.cuda.memory.change_current_allocator", _TENSORS),
    "_cuda_hostMemoryStats": ("torch.cuda.host_memory_stats", "torch.cuda.memory_stats works"),
    "_cuda_resetAccumulatedHostMemoryStats": ("torch.cuda.reset_accumulated_host_memory_stats", _TENSORS),
    "_cuda_resetPeakHostMemoryStats": ("torch.cuda.reset_peak_host_memory_stats", _TENSORS),
}
"""What ``torch.cuda`` calls of `torch._C`, by name: what the program called, and what to use instead."""

_NCCL = "unique_id init_rank all_reduce reduce broadcast all_gather reduce_scatter"


def refused(name: str, instead: str) -> Callable[..., NoReturn]:

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"virtual GPUs have no {name}; {instead}")

    return refuse


def _class(name: str, instead: str) -> type:
    """A class that cannot be instantiated."""
    refuse = refused(name, instead)
    return type(name.rpartition(".")[2], (), {"__new__": lambda cls, *args, **kwargs: refuse()})


def replace() -> None:
    for name, (called, instead) in _WORDS.items():
        replace_name(f"torch._C:{name}", refused(called, instead))
    for name in _NCCL.split():
        replace_name(
            f"torch._C:_nccl_{name}", refused(f"torch.cuda.nccl.{name}", "use torch.distributed, which gloo serves")
        )
    nvml = refused("NVML, which torch.cuda.utilization, temperature and power_draw ask", _NVML)
    for names, value in (
        ("CUDAGraph graphs.CUDAGraph", _class("torch.cuda.CUDAGraph", _OPERATIONS)),
        ("MemPool memory.MemPool", _class("torch.cuda.MemPool", _TENSORS)),
        ("ExternalStream streams.ExternalStream", _class("torch.cuda.ExternalStream", "make a torch.cuda.Stream")),
        ("graph_pool_handle graphs.graph_pool_handle", refused("torch.cuda.graph_pool_handle", _OPERATIONS)),
        ("list_gpu_processes memory.list_gpu_processes", refused("torch.cuda.list_gpu_processes", _NVML)),
        ("_compile_kernel", refused("torch.cuda._compile_kernel", _KERNELS)),
        ("_get_pynvml_handler", nvml),
    ):
        for name in names.split():
            replace_name(f"torch.cuda:{name}", value)
    for name in torch.cuda.tunable.__all__:  # TunableOp is off, and cannot be turned on
        refuse = refused(f"torch.cuda.tunable.{name}", "operations are the CPU's and are not tuned")
        off = name in ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled")
        replace_name(f"torch.cuda.tunable:{name}", (lambda: False) if off else refuse)
