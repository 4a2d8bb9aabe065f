"""The names inside PyTorch that the adapter replaces or relies on, and does not find in its documentation.

Replacements are made by `replace_name`, which takes names of this list only. `check` reads the list before virtual
GPUs are made, and ``xdevice doctor`` whenever it is run: a name that has gone, or takes other parameters, is told.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from xdevice.kit import private_names
from xdevice.kit.private_names import PrivateName, each

LAST_TRIED = "2.13.0"
"""The last version of PyTorch under which all tests have passed."""

own: Any = torch
core: Any = torch._C  # pyright: ignore[reportPrivateUsage]  # it has no public counterpart
aten: Any = torch.ops.aten
library: Any = torch.library
storages: Any = torch.UntypedStorage

ON_CPU = core.DispatchKeySet(core.DispatchKey.CPU)
"""Dispatches operations on sizes and strides to the CPU's kernels, which do not read the memory."""


def storage_of(tensor: torch.Tensor) -> Any:
    """The tensor's storage, identified by its ``_cdata``."""
    return tensor.untyped_storage()


_name = PrivateName
_optional = partial(PrivateName, optional=True)

_BOTH = (
    _name("torch.autograd:Variable._execution_engine", "backward in one thread, where autograd has none for a device"),
    _name("torch:_TorchCompileInductorWrapper.__call__", "torch.compile by aot_eager", ("self", "model_", "inputs_")),
    *each("torch:UntypedStorage.", "__new__ new resize_", "storages that pickle and torch.load make"),
    *each("torch._C:", "_scatter _gather _broadcast _broadcast_coalesced", "DataParallel", optional=True),
    *each("torch._C:", "_scatter_out _gather_out _broadcast_out", "torch.cuda.comm", optional=True),
    _name("torch.cuda.nccl:is_available", "DataParallel", ("tensors",)),
    *each("torch.distributed:Work.", "get_future result", "hooks of DistributedDataParallel"),
    *each("torch.distributed:ProcessGroup.", "_start_coalescing _end_coalescing", "coalesced collectives"),
    _name(
        "torch.distributed.distributed_c10d:_new_process_group_helper",
        "groups that gloo serves",
        ("group_size", "group_rank", "global_ranks_in_group", "backend", "backend_options", "device_id"),
    ),
    _name("torch.distributed.distributed_c10d:default_pg_nccl_timeout", "groups that are made for NCCL"),
)
"""Replaced on all virtual GPUs."""

VIRTUAL = (
    *_BOTH,
    _name("torch.nn:Module._apply", "Module.to, which moves parameters in place", ("self", "fn")),
    *each("torch._C:", "_accelerator_getStream _accelerator_setStream", "torch.accelerator's streams"),
)
"""Replaced under ``vgpu``."""

_IN_PYTHON = (
    *each(
        "torch._C:_accelerator_",
        "getDeviceIndex setDeviceIndex exchangeDevice maybeExchangeDevice synchronizeDevice isAllocatorInitialized "
        "getDeviceStats resetPeakStats resetAccumulatedStats getMemoryInfo emptyCache",
        "torch.accelerator, which asks a guard that knows one device",
    ),
    _optional("torch._C:_accelerator_emptyHostCache", "torch.accelerator, since PyTorch 2.12"),
    _name("torch:Generator", "generators of virtual GPUs"),
    *each("torch:Tensor.", "to new new_tensor", "vgpu without an index, which is the current one"),
    *each(
        "torch:",
        "arange as_tensor asarray empty empty_like empty_strided eye full full_like linspace logspace normal ones "
        "ones_like rand rand_like randint randint_like randn randn_like randperm tensor zeros zeros_like",
        "vgpu without an index, and pinned memory",
    ),
)
"""Replaced under ``vgpu`` where it is written in Python."""

STAND_IN = (
    *_BOTH,
    _optional("torch._C:_cuda_*", "what torch.cuda asks of a build with CUDA: see virtual/cuda/api.py, unavailable.py"),
    _optional("torch._C:_nccl_*", "what torch.cuda.nccl asks of a build with NCCL"),
    *each(
        "torch.cuda:",
        "_is_in_bad_fork _exchange_device _maybe_exchange_device _device_count_nvml "
        "_cached_device_count default_generators graphs._cuda_isCurrentStreamCapturing _cudart nvtx._nvtx",
        "torch.cuda, which took them over when it was imported",
    ),
    _optional("torch.cuda:_get_device_properties", "torch.cuda.get_device_properties"),
    *each("torch.cuda:", "Stream streams.Stream Event streams.Event", "streams and events"),
    *each(
        "torch.cuda:", "CUDAGraph graphs.CUDAGraph graphs.graph_pool_handle graph_pool_handle", "an error: no graphs"
    ),
    *each("torch.cuda:", "MemPool memory.MemPool", "an error: no pools of memory"),
    *each("torch.cuda:", "ExternalStream streams.ExternalStream", "an error: no streams of others"),
    *each("torch.cuda:", "list_gpu_processes memory.list_gpu_processes _get_pynvml_handler", "an error: no driver"),
    _name("torch.cuda:_compile_kernel", "an error: no kernels of CUDA's", ("kernel_source", "kernel_name")),
    *each("torch.cuda.tunable:", "is_enabled tuning_is_enabled record_untuned_is_enabled", "nothing is tuned"),
    _optional("torch.cuda.tunable:*", "an error: nothing is tuned"),
    _optional("torch.cuda:*Tensor", "types of tensors, which a build for the CPU refuses to make"),
    _name("torch:set_default_tensor_type", "torch.cuda.FloatTensor as the default", ("t",)),
    _name("torch:ops.load_library", "libraries with kernels for CUDA", ("path",)),
    _name("torch.multiprocessing.reductions:reduce_tensor", "tensors sent to other processes", ("tensor",)),
    _name("torch.profiler.profiler:_KinetoProfile.__init__", "profiles of the CPU", ("self", "activities")),
    _name("torch.profiler.profiler:supported_activities", "profiles of the CPU", ()),
    _name("torch.autograd.profiler:profile.__init__", "profiles of the CPU", ("self", "enabled", "use_cuda")),
    *each("torch.autograd.profiler:emit_nvtx.", "__enter__ __exit__", "profiles of the CPU"),
    _name("torch._C:_has_cudnn", "modules that would choose a kernel of cuDNN's"),
    *each("torch.backends.cudnn:m.", "_cudnn _init is_acceptable", "modules that would choose a kernel of cuDNN's"),
    _name("torch.distributed.distributed_c10d:_NCCL_AVAILABLE", "is_nccl_available()"),
    _optional("torch.distributed.distributed_c10d:ProcessGroupNCCL", "ProcessGroupNCCL.Options"),
    _optional("torch.distributed:ProcessGroupNCCL", "ProcessGroupNCCL.Options"),
)
"""Replaced while they stand in for CUDA's."""

_LATER = (_name("torch.distributed.tensor._random:_PhiloxState", "random numbers of DTensor", ("state",)),)
"""Replaced when the first process group is made."""

OTHERS = (
    *each("torch._C:", "DispatchKey DispatchKeySet _ExcludeDispatchKeyGuard", "kernels that call the CPU's"),
    *each(
        "torch._C:_dispatch_",
        "get_registrations_for_dispatch_key has_kernel_for_dispatch_key kernel_for_dispatch_key_is_fallthrough",
        "which operations have kernels",
    ),
    *each("torch._C:", "_to_dlpack _from_dlpack _storage_Use_Count", "memory under another device's name"),
    *each("torch._C:", "_acc.DeviceGuard _autograd.DeviceType", "devices that are written in Python"),
    *each("torch._C:", "_is_multithreading_enabled _set_multithreading_enabled", "backward in one thread"),
    *each("torch:", "_C._swap_tensor_impl _has_compatible_shallow_copy_type", "parameters that move in place"),
    *each("torch.nn:Parameter.", "_backward_hooks _post_accumulate_grad_hooks", "parameters that move in place"),
    *each("torch.nn.parameter:", "UninitializedTensorMixin._allowed_methods", "lazy modules, which move by vgpu"),
    *each("torch._C:", "_GLIBCXX_USE_CXX11_ABI", "the plug-in"),
    *each("torch._C:", "_get_privateuse1_backend_name", "whether another package has the device type"),
    _name("torch:_register_device_module", "torch.vgpu", ("device_type", "module")),
    _name(
        "torch.utils.backend_registration:_setup_privateuseone_for_python_backend",
        "devices that are written in Python",
        ("rename", "backend_module", "device_guard"),
    ),
    _name("torch.utils._device:_device_constructors", "a default device", ()),
    *each("torch.jit._builtins:", "_register_builtin _find_builtin", "TorchScript, which cannot compile wrappers"),
    *each(
        "torch._C:",
        "_len_torch_function_stack _pop_torch_function_stack _push_on_torch_function_stack",
        "strict blocks that are left in any order",
    ),
    _name("torch._C:_jit_override_can_fuse_on_gpu", "TorchScript without fused kernels"),
    _name("torch.cuda:_queued_calls", "checks of CUDA's versions, which are left out"),
    *each("torch.distributed:", "Backend.backend_capability Backend.default_device_backend_map", "groups by gloo"),
    *each("torch.distributed:ProcessGroup.", "_get_backend _register_backend _set_default_backend", "groups by gloo"),
    _name("torch.distributed.distributed_c10d:_world.pg_map", "get_backend()"),
    _name("torch.distributed.tensor:DTensor._op_dispatcher._custom_op_handlers", "attention on DTensor"),
    _name("torch._dynamo.backends.debugging:aot_eager", "torch.compile", ("gm", "fake_tensor_inputs")),
    _name("torch.utils._pytree:SUPPORTED_NODES", "containers that are registered with PyTorch"),
)
"""Read, or called."""

_REPLACED = (*VIRTUAL, *_IN_PYTHON, *STAND_IN, *_LATER)
NAMES = (*dict.fromkeys((*_REPLACED, *OTHERS)),)


def check() -> None:
    """Raise `VirtualDeviceError` if a name in an imported module has gone or takes other parameters."""
    private_names.check(NAMES, "torch", torch.__version__, LAST_TRIED)


def replace_name(path: str, value: Any) -> None:
    """Put the value in the place of PyTorch's own; the path is one of the list's."""
    private_names.replace(_REPLACED, path, value)
