"""The private names of JAX that this adapter replaces or reads, each with what it is for.

A test compares the first two lists with what changes when virtual GPUs are enabled.
"""

from xdevice.kit.private_names import each

LAST_TRIED = "0.10.2"

_BRIDGE, _LIBRARY = "jax._src.xla_bridge:", "jaxlib._jax:"
_LISTS = "jax.devices() and its like list the virtual GPUs and leave out the CPU"
_ATTRIBUTES = "a program sees 'gpu', and JAX the CPU's platform, by which it chooses lowerings"
_ERROR = "the error about devices that do not match names GPUs"

VIRTUAL = (
    *each(_BRIDGE, "devices device_count local_device_count", _LISTS, ("backend",)),
    *each(_BRIDGE, "local_devices", _LISTS, ("process_index", "backend", "host_id")),
    *each("jax._src.interpreters.pxla:", "get_default_device", "the default device is the CPU, or virtual GPU 0"),
    *each("jax:Device.", "__str__ __repr__", "a virtual GPU is printed as one"),
)
"""Replaced by virtual GPUs."""

STAND_IN = (
    *VIRTUAL,
    *each(_BRIDGE, "default_backend", "it is 'gpu'"),
    *each(_BRIDGE, "get_backend", "'gpu' and 'cuda' mean the client of the CPU", ("platform",)),
    *each("jax:", "live_arrays", "it takes 'gpu' and 'cuda'", ("platform",)),
    *each("jax._src.config:Config.", "update", "settings of platforms choose the default backend", ("name", "val")),
    *each("jax._src.pjit:", "_create_sharding_with_device_backend", "the deprecated jit(backend='gpu')", optional=True),
    *each("jax._src.stages:DeviceAssignmentMismatch.", "device_ids platform", _ERROR, optional=True),
    *each(f"{_LIBRARY}Device.", "platform device_kind id local_hardware_id", _ATTRIBUTES),
    *each(_LIBRARY, "Device.memory_stats", "it counts the arrays on the virtual GPU"),
    *each(_LIBRARY, "Client.platform ArrayImpl.platform ArrayImpl.__dlpack_device__", _ATTRIBUTES),
    *each(_LIBRARY, "ArrayImpl._check_and_rearrange", _ERROR),
    *each(_LIBRARY, "ArrayImpl.__dlpack__", "its capsule says that it is on a GPU", ("stream",)),
    *each("jax._src.dlpack:", "from_dlpack", "an array comes back on its GPU", ("external_array", "device", "copy")),
    *each("jax.dlpack:", "from_dlpack", "an array comes back on its GPU"),
    *each(_BRIDGE, "_get_backend_uncached", "errors list CUDA", ("platform",), optional=True),
)
"""Replaced where virtual GPUs stand in."""

_LOWERED = "primitives that only the CPU lowers are refused on virtual GPUs"
_SEEN = "watch_transfers(): replaced for a block"
_THROUGH = "watch_transfers(): calls that send something pass through Python"

OTHERS = (
    *each("jax._src.interpreters.mlir:", "_platform_specific_lowerings _lowerings", _LOWERED),
    *each("jax._src.dispatch:", "prim_requires_devices_during_lowering", _LOWERED),
    *each(_LIBRARY, "ArrayImpl._value ArrayImpl.copy_to_host_async", _SEEN),
    *each(_LIBRARY, "ArrayImpl._npy_value", "watch_transfers(): whether JAX keeps what it has copied"),
    *each("jax._src.interpreters.pxla:", "xc.batched_device_put", _SEEN),
    *each("jax._src.interpreters.pxla:", "xc.batched_copy_array_to_devices_with_sharding", _SEEN, optional=True),
    *each("jax._src.pjit:", "_get_fastpath_data", _THROUGH),
    *each("jax._src.pjit:", "_cpp_pjit_cache*", "watch_transfers(): cleared in older versions", optional=True),
    *each("jax._src.config:", "guard_lib transfer_guard_lib config_ext", _THROUGH, optional=True),
    *each("jax._src.interpreters.pxla:", "shard_args", _SEEN),
    *each("jax._src.layout:", "Layout", _THROUGH, optional=True),
    *each(_BRIDGE, "backends_are_initialized", "share_gpus(): whether JAX has taken memory"),
    *each(_BRIDGE, "process_index process_count", "lists of devices of this process"),
    *each("jax._src.core:", "trace_state_clean", "tells quickly that nothing is traced", optional=True),
    *each("jax._src.pjit:", "_run_python_pjit", "strict(): replaced for a block; JAX 0.10", optional=True),
    *each("jax._src.pjit:", "_python_pjit_helper", "strict(): replaced for a block; older JAX", optional=True),
    *each(_LIBRARY, "make_gloo_tcp_collectives", "gloo uses the job's address; replaced for a while", optional=True),
    *each("jax._src.tree_util:", "_registry", "registered classes, up to JAX 0.4.34", optional=True),
)
"""Read, or replaced for a while."""

NAMES = (*STAND_IN, *OTHERS)
