"""The private names of TensorFlow that this adapter replaces or reads, each with what it is for.

A test compares the first two lists with what changes when virtual GPUs are enabled.
"""

from __future__ import annotations

from xdevice.kit.private_names import PrivateName

LAST_TRIED = "2.21.0"

_CONTEXT = "tensorflow.python.eager.context:Context"
_OPS = "tensorflow.python.framework.ops"
_DISTRIBUTE = "tensorflow.python.distribute"
_DATASETS = "tensorflow.python.ops.gen_dataset_ops"
_TRANSLATED = "it takes names of devices, which are translated for the runtime"
_SHOWN = "a program sees the GPU's name, and the runtime its logical CPU's"
_MEMORY = "it counts the tensors on the virtual GPU"
_ASKED = "it answers for virtual GPUs as for CUDA's"
_NCCL = "the default is a reduction by NCCL, which logical CPUs lack"

VIRTUAL = (
    PrivateName(
        f"{_DISTRIBUTE}.mirrored_strategy:all_local_devices",
        "MirroredStrategy() uses the virtual GPUs and not the CPU",
        ("num_gpus",),
    ),
)
"""Replaced by virtual GPUs that do not stand in."""

STAND_IN = (
    PrivateName(f"{_CONTEXT}._initialize_physical_devices", "GPUs are listed", ("self", "reinitialize")),
    PrivateName(f"{_CONTEXT}._initialize_logical_devices", "logical CPUs are listed as GPUs", ("self",)),
    PrivateName(f"{_CONTEXT}.config", "the runtime gets logical CPUs in place of the GPUs"),
    PrivateName(f"{_CONTEXT}.list_physical_devices", "modules that choose kernels see no GPU", ("device_type",)),
    PrivateName(f"{_CONTEXT}.list_logical_devices", "modules that choose kernels see no GPU", ("device_type",)),
    PrivateName(f"{_CONTEXT}.set_logical_device_configuration", "the GPUs follow the parts of a split CPU"),
    PrivateName(f"{_CONTEXT}.get_device_details", "a virtual GPU has a name", ("self", "device")),
    PrivateName(f"{_CONTEXT}.get_memory_info", _MEMORY, ("self", "dev")),
    PrivateName(f"{_CONTEXT}.reset_memory_stats", _MEMORY, ("self", "dev")),
    PrivateName(f"{_CONTEXT}._set_device", "GPU 0 is each thread's default device", ("device_name", "device_spec")),
    PrivateName(f"{_DISTRIBUTE}.device_util:current", "GPU 0 is the default device"),
    PrivateName("tensorflow.python.eager.core:_status_to_exception", "errors name GPUs", ("status",)),
    PrivateName(f"{_OPS}:EagerTensor.device", _SHOWN),
    PrivateName(f"{_OPS}:EagerTensor.backing_device", _SHOWN),
    PrivateName(f"{_OPS}:SymbolicTensor.device", _SHOWN),
    PrivateName(f"{_OPS}:Operation.device", _SHOWN),
    PrivateName(f"{_OPS}:Operation._set_device_from_string", _TRANSLATED),
    PrivateName(f"{_OPS}:_EagerTensorBase._copy_nograd", _TRANSLATED, ("ctx", "device_name")),
    PrivateName(f"{_DATASETS}:multi_device_iterator", _TRANSLATED, ("devices",)),
    PrivateName(f"{_DATASETS}:anonymous_multi_device_iterator", _TRANSLATED, ("devices",)),
    PrivateName(f"{_DATASETS}:anonymous_multi_device_iterator_v3", _TRANSLATED, ("devices",)),
    PrivateName("tensorflow.python.ops.functional_ops:remote_call", _TRANSLATED, ("target",)),
    PrivateName(
        f"{_DISTRIBUTE}.cross_device_ops:AllReduceCrossDeviceOps.__init__",
        _NCCL,
        ("all_reduce_alg", "num_packs"),
    ),
    PrivateName(f"{_DISTRIBUTE}.cross_device_utils:CollectiveReplicaLauncher.__init__", _NCCL, ("options",)),
    PrivateName("tensorflow.python.framework.test_util:is_gpu_available", _ASKED),
    PrivateName("tensorflow.python.framework.test_util:gpu_device_name", _ASKED),
    PrivateName("tensorflow.python.platform.test:is_built_with_cuda", _ASKED),
    PrivateName("tensorflow.python.platform.test:is_built_with_gpu_support", _ASKED),
    PrivateName("tensorflow:sysconfig.get_build_info", _ASKED),
    PrivateName("tensorflow.python.client.device_lib:list_local_devices", _ASKED, ("session_config",)),
    PrivateName(
        "tensorflow.python.client.session:BaseSession.__init__",
        "sessions of TensorFlow 1 have the GPUs",
        ("target", "graph", "config"),
    ),
    PrivateName("tensorflow.python.client.session:BaseSession.list_devices", _SHOWN, ("self",)),
    PrivateName("tensorflow.python.training.server_lib:_make_server_def", "servers of a cluster have the GPUs"),
    PrivateName("tensorflow.dtensor.python.layout:Mesh.__init__", _TRANSLATED, ("local_devices", "global_devices")),
    PrivateName("tensorflow.dtensor.python.layout:Mesh.local_devices", _SHOWN),
    PrivateName("tensorflow.dtensor.python.config:num_local_devices", _ASKED, ("device_type",)),
)
"""Replaced where virtual GPUs stand in."""

_EVERY_OPERATION = "strict(): every operation goes through it; replaced for a block"

OTHERS = (
    PrivateName(f"{_CONTEXT}.host_address_space", "which devices are this process's"),
    PrivateName(f"{_CONTEXT}.configure_coordination_service", "a cluster without the service", ("service_type",)),
    PrivateName("tensorflow.python.eager.context:_context", "tells whether the runtime has started"),
    PrivateName("tensorflow.python.eager.context:async_wait", "synchronize()"),
    PrivateName("tensorflow.python.eager.record:stop_recording", "a move that no tape sees"),
    PrivateName(
        "tensorflow.python.eager.record:record_operation",
        "the gradient of a move",
        ("op_type", "output_tensors", "input_tensors", "backward_function"),
    ),
    PrivateName(
        "tensorflow.python.eager.backprop:_gradient_function",
        "gradients beside the forward pass",
        ("op_name", "attr_tuple", "num_inputs", "inputs", "outputs", "out_grads"),
    ),
    PrivateName("tensorflow.python.pywrap_tfe:TFE_Py_RegisterGradientFunction", "gradients beside the forward pass"),
    PrivateName("tensorflow.python.pywrap_tfe:TFE_Py_FastPathExecute", _EVERY_OPERATION),
    PrivateName("tensorflow.python.pywrap_tfe:TFE_Py_Execute", _EVERY_OPERATION),
    PrivateName("tensorflow.python.pywrap_tfe:TFE_Py_ExecuteCancelable", _EVERY_OPERATION),
    PrivateName("tensorflow.python.eager.core:_FallbackException", "strict(): an operation that takes the long way"),
    PrivateName("tensorflow.python.framework.op_def_registry:get", "strict(): what an operation calls its arguments"),
    PrivateName(f"{_OPS}:EagerTensor._copy", "a copy to another device", ("ctx", "device_name")),
    PrivateName(f"{_OPS}:EagerTensor._handle_data", "the shape of a variable"),
    PrivateName("tensorflow.python.ops.resource_variable_ops:BaseResourceVariable", "which objects are variables"),
    PrivateName("tensorflow.python.ops.resource_variable_ops:ResourceVariable", "which objects are variables"),
    PrivateName(
        "tensorflow.python.eager.polymorphic_function.concrete_function:ConcreteFunction",
        "functions that hold a variable",
    ),
    PrivateName(
        f"{_DISTRIBUTE}.collective_all_reduce_strategy:CollectiveAllReduceExtended._enable_check_health",
        "a cluster without health checks",
    ),
    PrivateName(
        f"{_DISTRIBUTE}.collective_util:Options",
        "options of a reduction",
        ("bytes_per_pack", "timeout_seconds", "implementation"),
    ),
    PrivateName(
        "tensorflow.python.client.session:_DeviceAttributes",
        "the list of a session's devices",
        ("name", "device_type", "memory_limit_bytes", "incarnation"),
    ),
)
"""Read, or replaced for a while."""

NAMES = (*VIRTUAL, *STAND_IN, *OTHERS)
