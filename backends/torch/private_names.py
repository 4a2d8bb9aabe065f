"""The names inside PyTorch that the adapter replaces or relies on, and does not find in its documentation.

Replacements are made by `replace_name`, which takes names of this list only. `check` reads the list before virtual
GPUs are made, and ``xdevice doctor`` whenever it is run: a name that has gone, or takes other parameters, is told.
"""

import re
from typing import Any

import torch

from xdevice.kit import private_names
from xdevice.kit.private_names import PrivateName

LAST_TRIED = "2.13.0"
"""The last version of PyTorch under which all tests have passed."""

own: Any = torch
core: Any = torch._C  # pyright: ignore[reportPrivateUsage]  # it has no public counterpart
aten: Any = torch.ops.aten
storages: Any = torch.UntypedStorage

ON_CPU = core.DispatchKeySet(core.DispatchKey.CPU)
"""Dispatches operations on sizes and strides to the CPU's kernels, which do not read the memory."""


def storage_of(tensor: torch.Tensor) -> Any:
    """The tensor's storage, identified by its ``_cdata``."""
    return tensor.untyped_storage()


def untraced(kernel: Any) -> Any:
    """The function, which Dynamo no longer follows: torch calls it while Dynamo looks at the program's frames."""
    dynamo = core._dynamo.eval_frame
    never = dynamo._FrameAction.SKIP
    if hasattr(kernel, "__code__"):
        dynamo.set_code_exec_strategy(kernel.__code__, dynamo._FrameExecStrategy(never, never))
    return kernel


_registered: list[Any] = []  # registrations last as long as these objects


def kernels_of(space: str, kind: str = "IMPL") -> Any:
    """A library for kernels of operations in that namespace; it lasts as long as the process."""
    _registered.append(own.library.Library(space, kind))
    return _registered[-1]


def overload_of(name: str) -> Any:
    """The operation of ATen's, such as ``add.Tensor``."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _listed(table: str) -> tuple[PrivateName, ...]:
    """The names of a table whose rows are an owner, its names, perhaps their parameters, and the reason.

    A question mark at the beginning says that some versions or builds lack the names.
    """
    found: list[PrivateName] = []
    for row in table.strip().splitlines():
        paths, reason = row.split(" -- ")
        paths, _, parameters = paths.partition("(")
        owner, *names = paths.removeprefix("?").split()
        wanted = tuple(re.findall(r"\w+", parameters))
        found += [PrivateName(owner + name, reason, wanted, row.startswith("?")) for name in names or [""]]
    return tuple(found)


_BOTH = _listed("""
torch.autograd:Variable._execution_engine -- backward in one thread, where autograd has none for a device
torch:_TorchCompileInductorWrapper.__call__(self, model_, inputs_) -- torch.compile by aot_eager
torch.nested._internal.ops:jagged_scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal) \
-- causal attention of jagged tensors
torch:UntypedStorage. __new__ new resize_ -- storages that pickle and torch.load make
?torch._C: _scatter _gather _broadcast _broadcast_coalesced -- DataParallel
?torch._C: _scatter_out _gather_out _broadcast_out -- torch.cuda.comm
torch.cuda.nccl:is_available(tensors) -- DataParallel
torch.distributed:Work. get_future result -- hooks of DistributedDataParallel
torch.distributed:ProcessGroup. _start_coalescing _end_coalescing -- coalesced collectives
torch.distributed.distributed_c10d:_new_process_group_helper(\
group_size, group_rank, global_ranks_in_group, backend, backend_options, device_id) -- groups that gloo serves
torch.distributed.distributed_c10d:default_pg_nccl_timeout -- groups that are made for NCCL
torch.distributed:split_group(parent_pg, split_ranks, timeout, pg_options, group_desc) -- groups that are split off
torch.distributed. distributed_c10d:split_group device_mesh:split_group -- groups that are split off
torch.autograd.profiler:_rewrite_name(name, with_wildcard) -- the work of groups that are made for NCCL
torch.distributed.distributed_c10d:_get_split_source(pg) -- groups that are made for NCCL
torch.distributed.distributed_c10d:_NCCL_AVAILABLE -- is_nccl_available()
?torch.distributed.distributed_c10d:ProcessGroupNCCL -- groups that are made for NCCL
?torch.distributed:ProcessGroupNCCL -- groups that are made for NCCL
?torch._C:_distributed_c10d._hash_tensors -- TORCH_DISTRIBUTED_DEBUG=DETAIL in groups that are made for NCCL
""")
"""Replaced on all virtual GPUs."""

VIRTUAL = _BOTH + _listed("""
torch.nn:Module._apply(self, fn) -- Module.to, which moves parameters in place
torch._C: _accelerator_getStream _accelerator_setStream -- torch.accelerator's streams
""")
"""Replaced under ``vgpu``."""

FACTORIES = """
arange as_tensor asarray empty empty_like empty_strided eye full full_like linspace logspace normal ones ones_like
rand rand_like randint randint_like randn randn_like randperm tensor zeros zeros_like
"""

_IN_PYTHON = _listed(f"""
torch._C:_accelerator_ getDeviceIndex setDeviceIndex exchangeDevice maybeExchangeDevice synchronizeDevice \
isAllocatorInitialized getDeviceStats resetPeakStats resetAccumulatedStats getMemoryInfo emptyCache \
-- torch.accelerator, which asks a guard that knows one device
?torch._C:_accelerator_emptyHostCache -- torch.accelerator, since PyTorch 2.12
torch:Generator -- generators of virtual GPUs
torch:Tensor. to new new_tensor -- vgpu without an index, which is the current one
torch: {" ".join(FACTORIES.split())} -- vgpu without an index, and pinned memory
""")
"""Replaced under ``vgpu`` where it is written in Python."""

STAND_IN = _BOTH + _listed("""
?torch._C:_cuda_* -- what torch.cuda asks of a build with CUDA: see virtual/cuda/api.py, unavailable.py
?torch._C:_nccl_* -- what torch.cuda.nccl asks of a build with NCCL
torch.cuda: _is_in_bad_fork _exchange_device _maybe_exchange_device _device_count_nvml _cached_device_count \
default_generators graphs._cuda_isCurrentStreamCapturing _cudart nvtx._nvtx \
-- torch.cuda, which took them over when it was imported
?torch.cuda:_get_device_properties -- torch.cuda.get_device_properties
torch.cuda: Stream streams.Stream Event streams.Event -- streams and events
torch.cuda: CUDAGraph graphs.CUDAGraph graphs.graph_pool_handle graph_pool_handle -- an error: no graphs
torch.cuda: MemPool memory.MemPool -- an error: no pools of memory
torch.cuda: ExternalStream streams.ExternalStream -- an error: no streams of others
torch.cuda: list_gpu_processes memory.list_gpu_processes _get_pynvml_handler -- an error: no driver
torch.cuda:_compile_kernel(kernel_source, kernel_name) -- an error: no kernels of CUDA's
torch.cuda.tunable: is_enabled tuning_is_enabled record_untuned_is_enabled -- nothing is tuned
?torch.cuda.tunable:* -- an error: nothing is tuned
?torch.cuda:*Tensor -- types of tensors, which a build for the CPU refuses to make
torch:set_default_tensor_type(t) -- torch.cuda.FloatTensor as the default
torch:ops.load_library(path) -- libraries with kernels for CUDA
torch.multiprocessing.reductions:reduce_tensor(tensor) -- tensors sent to other processes
torch.profiler.profiler:_KinetoProfile.__init__(self, activities) -- profiles of the CPU
torch.profiler.profiler:supported_activities -- profiles of the CPU
torch.autograd.profiler:profile.__init__(self, enabled, use_cuda) -- profiles of the CPU
torch.autograd.profiler:emit_nvtx. __enter__ __exit__ -- profiles of the CPU
torch:version.cuda -- programs that split it into numbers
torch._C: _get_linalg_preferred_backend _set_linalg_preferred_backend _get_blas_preferred_backend \
_set_blas_preferred_backend -- torch.backends.cuda.preferred_linalg_library and preferred_blas_library
torch._C:_has_cudnn -- modules that would choose a kernel of cuDNN's
torch.backends.cudnn:m. _cudnn _init is_acceptable -- modules that would choose a kernel of cuDNN's
""")
"""Replaced while they stand in for CUDA's."""

_LATER = _listed("""
torch.distributed.tensor._random:_PhiloxState(state) -- random numbers of DTensor
torch.cuda._sanitizer:CUDASanitizerErrors -- races of streams, with the lines of the program
""")
"""Replaced when the first process group is made, and where races are looked for."""

OTHERS = _listed("""
torch._C: DispatchKey DispatchKeySet _ExcludeDispatchKeyGuard -- kernels that call the CPU's
torch._C:_dispatch_ get_registrations_for_dispatch_key has_kernel_for_dispatch_key \
kernel_for_dispatch_key_is_fallthrough -- which operations have kernels
torch._C: _to_dlpack _from_dlpack _storage_Use_Count -- memory under another device's name
torch._C: _acc.DeviceGuard _autograd.DeviceType -- devices that are written in Python
torch._C: _is_multithreading_enabled _set_multithreading_enabled -- backward in one thread
torch._C: _stash_obj_in_tls _get_obj_in_tls _is_key_in_tls DisableTorchFunction -- copies that are seen
?torch._C:_remove_obj_from_tls -- copies that are seen, since PyTorch 2.13
torch: _C._swap_tensor_impl _has_compatible_shallow_copy_type -- parameters that move in place
torch.nn:Parameter. _backward_hooks _post_accumulate_grad_hooks -- parameters that move in place
torch.nn.parameter:UninitializedTensorMixin._allowed_methods -- lazy modules, which move by vgpu
torch._C:_GLIBCXX_USE_CXX11_ABI -- the plug-in
torch._C:_get_privateuse1_backend_name -- whether another package has the device type
torch:_register_device_module(device_type, module) -- torch.vgpu
torch.utils.backend_registration:_setup_privateuseone_for_python_backend(rename, backend_module, device_guard) \
-- devices that are written in Python
torch.utils._device:_device_constructors -- a default device
torch.jit._builtins: _register_builtin _find_builtin -- TorchScript, which cannot compile wrappers
torch._C: _len_torch_function_stack _pop_torch_function_stack _push_on_torch_function_stack \
-- strict blocks that are left in any order
torch._C:_jit_override_can_fuse_on_gpu -- TorchScript without fused kernels
torch.cuda:_lazy_call(callable) -- share_gpus(): a limit for when CUDA starts
torch.cuda:_queued_calls -- checks of CUDA's versions, which are left out
torch.distributed:Backend. backend_capability default_device_backend_map -- groups by gloo
torch.distributed:ProcessGroup. _get_backend _register_backend _device_types -- groups by gloo
torch.distributed.distributed_c10d:_world.pg_map -- the store by which processes tell each other their GPUs
torch._C:_distributed_c10d._create_work_from_future -- collectives that gloo does not have
torch.distributed.tensor:DTensor._op_dispatcher._custom_op_handlers -- attention on DTensor
torch._C: _dynamo.eval_frame._FrameAction _dynamo.eval_frame._FrameExecStrategy \
_dynamo.eval_frame.set_code_exec_strategy -- kernels in Python beside torch.compile
torch._dynamo.backends.debugging:aot_eager(gm, fake_tensor_inputs) -- torch.compile
torch.utils._pytree:SUPPORTED_NODES -- containers that are registered with PyTorch
""")
"""Read, or called."""

_REPLACED = (*VIRTUAL, *_IN_PYTHON, *STAND_IN, *_LATER)
NAMES = (*dict.fromkeys((*_REPLACED, *OTHERS)),)


def check() -> None:
    """Raise `VirtualDeviceError` if a name in an imported module has gone or takes other parameters."""
    private_names.check(NAMES, "torch", torch.__version__, LAST_TRIED)


def replace_name(path: str, value: Any) -> None:
    """Put the value in the place of PyTorch's own; the path is one of the list's."""
    private_names.replace(_REPLACED, path, value)
