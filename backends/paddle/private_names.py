"""The private names of PaddlePaddle that this adapter replaces or reads, each with what it is for.

A test compares the first two lists with what changes when virtual GPUs are enabled. ``paddle.base.core`` is not public,
and lacks on a build for the CPU what ``ADDED`` lists.
"""

from __future__ import annotations

from xdevice.kit.private_names import PrivateName

LAST_TRIED = "3.3.1"

_CORE = "paddle.base.core"
_DEVICE = "paddle.device"
_ON_THE_CPU = "the CPU's operation leaves its results on the CPU"
_PLACE = "a place of a virtual GPU is a place of CUDA's"
_BUILD = "the build seems to be one for CUDA"
_GPU = "it knows the virtual GPUs"
_MEMORY = "figures of a virtual GPU's memory"

VIRTUAL = (
    PrivateName("paddle._C_ops:embedding", _ON_THE_CPU),
    PrivateName("paddle._C_ops:rmsprop_", _ON_THE_CPU),
    PrivateName("paddle._legacy_C_ops:check_finite_and_unscale", _ON_THE_CPU),
    PrivateName("paddle._legacy_C_ops:coalesce_tensor", _ON_THE_CPU),
    PrivateName(f"{_CORE}:default_custom_device_generator", "the CPU's kernels draw random numbers by its generator"),
    PrivateName(f"{_CORE}:Place.get_device_type", "Tensor.device of a virtual GPU", optional=True),
    PrivateName(f"{_CORE}:Place.get_device_id", "Tensor.device of a virtual GPU", optional=True),
)
"""Replaced by virtual GPUs."""

STAND_IN = (
    *VIRTUAL,
    PrivateName(f"{_CORE}:CUDAPlace", _PLACE),
    PrivateName(f"{_CORE}:CUDAPinnedPlace", "page-locked memory is the CPU's"),
    *(
        PrivateName(f"{_CORE}:{kind}.{name}", _PLACE)
        for kind in ("Place", "CustomPlace")
        for name in ("__repr__", "__str__")
    ),
    PrivateName(f"{_CORE}:CustomPlace.get_device_type", _PLACE),
    PrivateName(f"{_CORE}:Place.is_gpu_place", _PLACE),
    PrivateName(f"{_CORE}:Place.is_custom_place", _PLACE),
    PrivateName(f"{_CORE}:Place.gpu_device_id", _PLACE),
    PrivateName("paddle:Tensor._place_str", "a tensor is printed with its GPU"),
    PrivateName("paddle.base.framework:is_compiled_with_cuda", _BUILD),
    PrivateName(f"{_CORE}:is_compiled_with_cuda", _BUILD),
    PrivateName(f"{_CORE}:get_all_custom_device_type", "virtual GPUs are not custom devices"),
    PrivateName(f"{_CORE}:get_all_device_type", _GPU),
    PrivateName(f"{_CORE}:get_available_device", _GPU),
    PrivateName(f"{_CORE}:get_device_properties", _GPU),
    PrivateName(f"{_CORE}:is_float16_supported", _GPU),
    PrivateName(f"{_CORE}:is_bfloat16_supported", _GPU),
    *(
        PrivateName(f"{_CORE}:{name}", "streams and generators of virtual GPUs", optional=True)
        for name in (
            *("_get_current_stream", "_set_current_stream", "_cuda_synchronize", "_device_synchronize"),
            "default_cuda_generator",
        )
    ),
    PrivateName("paddle.base.framework:_global_flags_", "flags that only a build for CUDA has"),
    PrivateName("paddle.static:Executor.__init__", "static graphs of a GPU are computed on the CPU", ("self", "place")),
    *(
        PrivateName(f"{_DEVICE}.cuda:{name}", "streams and events of virtual GPUs")
        for name in ("Stream", "Event", "create_stream", "create_event")
    ),
    PrivateName(f"{_DEVICE}.cuda.graphs:CoreCUDAGraph", "CUDA graphs are not supported"),
    *(
        PrivateName(f"{_DEVICE}:{name}", _MEMORY, optional=True)  # PaddlePaddle 3.0 lacks some
        for name in (
            *("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
            *("reset_max_memory_allocated", "reset_max_memory_reserved", "empty_cache", "device_count"),
        )
    ),
)
"""Replaced where virtual GPUs stand in."""

ADDED = (
    *("cuda_empty_cache", "cudnn_version", "get_cuda_current_device_id", "get_cuda_device_count"),
    *("gpu_memory_available", "nccl_version", "NCCLConfig", "ProcessGroupNCCL"),
)
"""Functions of ``paddle.base.core`` that only a build for CUDA has, and that virtual GPUs provide."""

_STREAMS = "streams and events of virtual GPUs are made of it"

OTHERS = (
    PrivateName(f"{_CORE}:Place.custom_device_type", "which place is a virtual GPU's"),
    PrivateName(f"{_CORE}:Place.custom_device_id", "which place is a virtual GPU's"),
    PrivateName(f"{_CORE}:CustomDeviceStream", _STREAMS),
    PrivateName(f"{_CORE}:CustomDeviceEvent", _STREAMS),
    PrivateName(f"{_CORE}:_get_current_custom_device_stream", _STREAMS),
    PrivateName(f"{_CORE}:_set_current_custom_device_stream", _STREAMS),
    PrivateName(f"{_CORE}:_synchronize_custom_device", "it waits for a virtual GPU"),
    PrivateName(f"{_CORE}:ProcessGroupGloo.create", "groups for NCCL use gloo"),
    PrivateName(f"{_CORE}:default_cpu_generator", "the CPU's kernels draw random numbers by it"),
    PrivateName(f"{_CORE}:get_custom_device_count", "the number of virtual GPUs"),
    PrivateName(f"{_CORE}:device_memory_stat_current_value", _MEMORY),
    PrivateName(f"{_CORE}:device_memory_stat_peak_value", _MEMORY),
    PrivateName(f"{_CORE}:eager.run_backward", "strict(): replaced for a block"),
    PrivateName(f"{_CORE}:eager.run_partial_grad", "strict(): replaced for a block"),
    PrivateName("paddle._C_ops:__all__", "strict(): every operation is replaced for a block"),
    PrivateName("paddle.base.framework:_current_expected_place_", "the current device"),
    PrivateName("paddle.base.framework:_get_paddle_place", "the device of a static graph", ("place",)),
    PrivateName("paddle.base.framework:global_var._functional_dygraph_context_manager", "dynamic mode of a thread"),
    PrivateName("paddle.base.framework:GlobalThreadLocal.__init__", "dynamic mode of the main thread; replaced"),
    PrivateName("paddle.distributed.parallel:_get_modified_flags", "a start without reports; replaced for a while"),
    PrivateName("paddle:Tensor._copy_to", "a copy to another device that keeps the gradient"),
    PrivateName("paddle:Tensor.value", "an operation of the CPU that writes to its argument"),
)
"""Read, or replaced for a while."""

NAMES = (*STAND_IN, *OTHERS)
