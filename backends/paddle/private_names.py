"""The private names of PaddlePaddle that this adapter replaces or reads, each with what it is for.

A test compares the first two lists with what changes when virtual GPUs are enabled. ``paddle.base.core`` is not public,
and lacks on a build for the CPU what ``ADDED`` lists.
"""

from xdevice.kit.private_names import each

LAST_TRIED = "3.3.1"

_CORE, _FRAMEWORK = "paddle.base.core:", "paddle.base.framework:"
_ON_THE_CPU = "the CPU's operation leaves its results on the CPU"
_PLACE = "a place of a virtual GPU is a place of CUDA's"
_GPU = "it knows the virtual GPUs"
_MEMORY = "figures of a virtual GPU's memory"
_LOOKED_AT = "strict() and watching look at its calls; replaced for a block"
_DYNAMIC = "threads stay in dynamic mode after the first has ended"

VIRTUAL = (
    *each("paddle._C_ops:", "embedding rmsprop_", _ON_THE_CPU),
    *each("paddle._legacy_C_ops:", "check_finite_and_unscale coalesce_tensor", _ON_THE_CPU),
    *each(_CORE, "default_custom_device_generator", "the CPU's kernels draw random numbers by its generator"),
    *each(f"{_CORE}Place.", "get_device_type get_device_id", "Tensor.device of a virtual GPU", optional=True),
)
"""Replaced by virtual GPUs."""

STAND_IN = (
    *VIRTUAL,
    *each(_CORE, "CUDAPlace CustomPlace.__repr__ CustomPlace.__str__ CustomPlace.get_device_type", _PLACE),
    *each(f"{_CORE}Place.", "__repr__ __str__ is_gpu_place is_custom_place gpu_device_id", _PLACE),
    *each(_CORE, "CUDAPinnedPlace", "page-locked memory is the CPU's"),
    *each("paddle:Tensor.", "_place_str", "a tensor is printed with its GPU"),
    *each("paddle.base.", "framework:is_compiled_with_cuda core:is_compiled_with_cuda", "the build seems to have CUDA"),
    *each(_CORE, "get_all_custom_device_type", "virtual GPUs are not custom devices"),
    *each(_CORE, "get_all_device_type get_available_device get_device_properties", _GPU),
    *each(_CORE, "is_float16_supported is_bfloat16_supported", _GPU),
    *each(
        _CORE,
        "_get_current_stream _set_current_stream _cuda_synchronize _device_synchronize default_cuda_generator",
        "streams and generators of virtual GPUs",
        optional=True,
    ),
    *each(_FRAMEWORK, "_global_flags_", "flags that only a build for CUDA has"),
    *each("paddle.static:Executor.", "__init__", "static graphs of a GPU are computed on the CPU", ("self", "place")),
    *each("paddle.device.cuda:", "Stream Event create_stream create_event", "streams and events of virtual GPUs"),
    *each("paddle.device.cuda.graphs:", "CoreCUDAGraph", "CUDA graphs are not supported"),
    *each(
        "paddle.device:",
        "memory_allocated max_memory_allocated memory_reserved max_memory_reserved "
        "reset_max_memory_allocated reset_max_memory_reserved empty_cache device_count",
        _MEMORY,
        optional=True,  # PaddlePaddle 3.0 lacks some
    ),
)
"""Replaced where virtual GPUs stand in."""

ADDED = (
    *("cuda_empty_cache", "cudnn_version", "get_cuda_current_device_id", "get_cuda_device_count"),
    *("gpu_memory_available", "nccl_version", "NCCLConfig", "ProcessGroupNCCL"),
)
"""Functions of ``paddle.base.core`` that only a build for CUDA has, and that virtual GPUs provide."""

OTHERS = (
    *each(f"{_CORE}Place.", "custom_device_type custom_device_id", "which place is a virtual GPU's"),
    *each(_CORE, "CustomDeviceStream CustomDeviceEvent", "streams and events of virtual GPUs are made of it"),
    *each(_CORE, "_get_current_custom_device_stream _set_current_custom_device_stream", "streams of virtual GPUs"),
    *each(_CORE, "_synchronize_custom_device", "it waits for a virtual GPU"),
    *each(_CORE, "ProcessGroupGloo.create", "groups for NCCL use gloo"),
    *each(_CORE, "default_cpu_generator", "the CPU's kernels draw random numbers by it"),
    *each(_CORE, "get_custom_device_count", "the number of virtual GPUs"),
    *each(_CORE, "device_memory_stat_current_value device_memory_stat_peak_value", _MEMORY),
    *each(f"{_CORE}eager.", "run_backward run_partial_grad tensor_copy", _LOOKED_AT),
    *each("paddle._C_ops:", "__all__", f"every operation: {_LOOKED_AT}"),
    *each("paddle:Tensor.", "_getitem_dygraph _setitem_dygraph _getitem_from_offset", _LOOKED_AT),
    *each(
        "paddle.io.dataloader.dataloader_iter:",
        "_DataLoaderIterBase",
        "whose batches a thread copies; replaced for a block",
    ),
    *each(f"{_CORE}Place.", "_equals", "strict() and watching compare places"),
    *each(_FRAMEWORK, "_current_expected_place_", "the current device"),
    *each(_FRAMEWORK, "_get_paddle_place", "the device of a static graph", ("place",)),
    *each(_FRAMEWORK, "global_var._functional_dygraph_context_manager GlobalThreadLocal.__init__", _DYNAMIC),
    *each("paddle.distributed.parallel:", "_get_modified_flags", "a start without reports; replaced for a while"),
    *each("paddle:Tensor.", "_copy_to", "a copy to another device that keeps the gradient"),
    *each("paddle:Tensor.", "value", "an operation of the CPU that writes to its argument"),
)
"""Read, or replaced for a while."""

NAMES = (*STAND_IN, *OTHERS)
