"""The private names of TensorFlow that this adapter replaces or reads, each with what it is for.

A test compares the first two lists with what changes when virtual GPUs are enabled.
"""

from xdevice.kit.private_names import each

LAST_TRIED = "2.21.0"

_PYTHON, _DTENSOR = "tensorflow.python.", "tensorflow.dtensor.python."
_CONTEXT = f"{_PYTHON}eager.context:Context."
_OPS = f"{_PYTHON}framework.ops:"
_DISTRIBUTE = f"{_PYTHON}distribute."
_CROSS = f"{_DISTRIBUTE}cross_device_"
_SESSION = f"{_PYTHON}client.session:"
_TRANSLATED = "it takes names of devices, which are translated for the runtime"
_SHOWN = "a program sees the GPU's name, and the runtime its logical CPU's"
_KERNELS = "modules that choose kernels see no GPU"
_MEMORY = "it counts the tensors on the virtual GPU"
_SOFT = "operations that GPUs lack are placed on the CPU"
_LAYOUT = "images with their channels first, for which the CPU has few kernels"
_ASKED = "it answers for virtual GPUs as for CUDA's"
_NCCL = "the default is a reduction by NCCL, which logical CPUs lack"

_BOTH = each(
    f"{_PYTHON}framework.func_graph:FuncGraph.",
    "capture_call_time_value",
    "a branch of a graph gets the keys of collectives",
    ("closure", "spec"),
)

VIRTUAL = (
    *_BOTH,
    *each(f"{_DISTRIBUTE}mirrored_strategy:", "all_local_devices", "MirroredStrategy() uses the virtual GPUs alone"),
)
"""Replaced by virtual GPUs that do not stand in."""

STAND_IN = (
    *_BOTH,
    *each(_CONTEXT, "_initialize_physical_devices", "GPUs are listed", ("self", "reinitialize")),
    *each(_CONTEXT, "_initialize_logical_devices", "logical CPUs are listed as GPUs", ("self",)),
    *each(_CONTEXT, "config", "the runtime gets logical CPUs in place of the GPUs"),
    *each(_CONTEXT, "list_physical_devices list_logical_devices", _KERNELS, ("device_type",)),
    *each(_CONTEXT, "set_logical_device_configuration", "the GPUs follow the parts of a split CPU"),
    *each(_CONTEXT, "get_device_details", "a virtual GPU has a name", ("self", "device")),
    *each(_CONTEXT, "get_memory_info reset_memory_stats", _MEMORY, ("self", "dev")),
    *each(_CONTEXT, "_set_device", "GPU 0 is each thread's default device", ("device_name", "device_spec")),
    *each(f"{_DISTRIBUTE}device_util:", "current", "GPU 0 is the default device"),
    *each(f"{_PYTHON}framework.errors_impl:OpError.", "__init__", "errors name GPUs", ("node_def", "op", "message")),
    *each(_OPS, "EagerTensor.device EagerTensor.backing_device SymbolicTensor.device Operation.device", _SHOWN),
    *each(_OPS, "Graph._create_op_helper", _SOFT, ("self", "op", "compute_device")),
    *each(f"{_PYTHON}pywrap_tfe:TFE_Py_", "FastPathExecute Execute ExecuteCancelable", _SOFT),
    *each(f"{_PYTHON}pywrap_tfe:TFE_", "ToDlpackCapsule FromDlpackCapsule DlpackDevice", "DLPack knows virtual GPUs"),
    *each(_OPS, "Operation._set_device_from_string", _TRANSLATED),
    *each(_OPS, "_EagerTensorBase._copy_nograd", _TRANSLATED, ("ctx", "device_name")),
    *each(
        f"{_PYTHON}ops.gen_dataset_ops:",
        "multi_device_iterator anonymous_multi_device_iterator anonymous_multi_device_iterator_v3",
        _TRANSLATED,
        ("devices",),
    ),
    *each(f"{_PYTHON}ops.functional_ops:", "remote_call", _TRANSLATED, ("target",)),
    *each(f"{_CROSS}ops:", "AllReduceCrossDeviceOps.__init__", _NCCL, ("all_reduce_alg", "num_packs")),
    *each(f"{_CROSS}utils:", "CollectiveReplicaLauncher.__init__", _NCCL, ("options",)),
    *each(
        f"{_PYTHON}ops.gen_nn_ops:",
        "conv2d conv3d depthwise_conv2d_native max_pool max_pool3d avg_pool avg_pool3d bias_add "
        "fused_batch_norm_v2 fused_batch_norm_v3 conv2d_backprop_input conv3d_backprop_input_v2 "
        "depthwise_conv2d_native_backprop_input",
        _LAYOUT,
        ("data_format",),
    ),
    *each(f"{_PYTHON}ops.gen_array_ops:", "depth_to_space space_to_depth", _LAYOUT, ("data_format",)),
    *each(f"{_PYTHON}framework.test_util:", "is_gpu_available gpu_device_name", _ASKED),
    *each(f"{_PYTHON}platform.test:", "is_built_with_cuda is_built_with_gpu_support", _ASKED),
    *each("tensorflow:sysconfig.", "get_build_info", _ASKED),
    *each(f"{_PYTHON}client.device_lib:", "list_local_devices", _ASKED, ("session_config",)),
    *each(_SESSION, "BaseSession.__init__", "sessions of TensorFlow 1 have the GPUs", ("target", "graph", "config")),
    *each(_SESSION, "BaseSession.list_devices", _SHOWN, ("self",)),
    *each(f"{_PYTHON}training.server_lib:", "_make_server_def", "servers of a cluster have the GPUs"),
    *each(f"{_DTENSOR}layout:Mesh.", "__init__", _TRANSLATED, ("local_devices", "global_devices")),
    *each(f"{_DTENSOR}layout:Mesh.", "local_devices", _SHOWN),
    *each(f"{_DTENSOR}config:", "num_local_devices", _ASKED, ("device_type",)),
)
"""Replaced where virtual GPUs stand in."""

_EVERY_OPERATION = "strict() and copies: every operation goes through it; replaced for a block"
_COPIES = "copies are seen; replaced for a block"
_BESIDE = "gradients beside the forward pass"

OTHERS = (
    *each(f"{_PYTHON}autograph.core.config:", "CONVERSION_RULES Convert DoNotConvert", "xdevice is not rewritten"),
    *each(_CONTEXT, "host_address_space", "which devices are this process's"),
    *each(_CONTEXT, "configure_coordination_service", "a cluster without the service", ("service_type",)),
    *each(f"{_PYTHON}eager.context:", "_context", "tells whether the runtime has started"),
    *each(f"{_PYTHON}eager.context:", "async_wait", "synchronize()"),
    *each(f"{_PYTHON}eager.record:", "stop_recording", "a move that no tape sees"),
    *each(
        f"{_PYTHON}eager.record:",
        "record_operation",
        "the gradient of a move",
        ("op_type", "output_tensors", "input_tensors", "backward_function"),
    ),
    *each(
        f"{_PYTHON}eager.backprop:",
        "_gradient_function",
        _BESIDE,
        ("op_name", "attr_tuple", "num_inputs", "inputs", "outputs", "out_grads"),
    ),
    *each(f"{_PYTHON}pywrap_tfe:", "TFE_Py_RegisterGradientFunction", _BESIDE),
    *each(f"{_PYTHON}pywrap_tfe:TFE_Py_", "Execute ExecuteCancelable", _EVERY_OPERATION),
    *each(f"{_PYTHON}eager.core:", "_FallbackException", "an operation that takes the long way"),
    *each(f"{_PYTHON}framework.op_def_registry:", "get", "what an operation calls its arguments"),
    *each(_OPS, "_EagerTensorBase._numpy", _COPIES, ("self",)),
    *each(f"{_PYTHON}framework.constant_op:", "convert_to_eager_tensor", _COPIES, ("value", "ctx", "dtype")),
    *each(f"{_PYTHON}data.ops.iterator_ops:", "OwnedIterator._next_internal", _COPIES, ("self",)),
    *each(_CONTEXT, "get_function_def", "which devices and variables a function uses", ("name",)),
    *each(_OPS, "EagerTensor._copy", "a copy to another device", ("ctx", "device_name")),
    *each(_OPS, "EagerTensor._handle_data", "the shape of a variable"),
    *each(f"{_PYTHON}ops.resource_variable_ops:", "BaseResourceVariable ResourceVariable", "what is a variable"),
    *each(f"{_PYTHON}eager.polymorphic_function.concrete_function:", "ConcreteFunction", "what holds a variable"),
    *each(
        f"{_DISTRIBUTE}collective_all_reduce_strategy:CollectiveAllReduceExtended.",
        "_enable_check_health",
        "a cluster without health checks",
    ),
    *each(
        f"{_DISTRIBUTE}collective_util:",
        "Options",
        "options of a reduction",
        ("bytes_per_pack", "timeout_seconds", "implementation"),
    ),
    *each(
        _SESSION,
        "_DeviceAttributes",
        "the list of a session's devices",
        ("name", "device_type", "memory_limit_bytes", "incarnation"),
    ),
)
"""Read, or replaced for a while."""

NAMES = (*VIRTUAL, *STAND_IN, *OTHERS)
