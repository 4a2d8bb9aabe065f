"""The private names of JAX that this adapter replaces or reads, each with what it is for.

A test compares the first two lists with what changes when virtual GPUs are enabled.
"""

from __future__ import annotations

from xdevice.kit.private_names import PrivateName

LAST_TRIED = "0.10.2"

_LISTS = "jax.devices() and its like list the virtual GPUs and leave out the CPU"
_ATTRIBUTES = "a program sees 'gpu', and JAX the CPU's platform, by which it chooses lowerings"
_ERROR = "the error about devices that do not match names GPUs"
_PRINTED = "a virtual GPU is printed as one"

VIRTUAL = (
    PrivateName("jax._src.xla_bridge:devices", _LISTS, ("backend",)),
    PrivateName("jax._src.xla_bridge:local_devices", _LISTS, ("process_index", "backend", "host_id")),
    PrivateName("jax._src.xla_bridge:device_count", _LISTS, ("backend",)),
    PrivateName("jax._src.xla_bridge:local_device_count", _LISTS, ("backend",)),
    PrivateName("jax._src.interpreters.pxla:get_default_device", "the default device is the CPU, or virtual GPU 0"),
    PrivateName("jax:Device.__str__", _PRINTED),
    PrivateName("jax:Device.__repr__", _PRINTED),
)
"""Replaced by virtual GPUs."""

STAND_IN = (
    *VIRTUAL,
    PrivateName("jax._src.xla_bridge:default_backend", "it is 'gpu'"),
    PrivateName("jax._src.xla_bridge:get_backend", "'gpu' and 'cuda' mean the client of the CPU", ("platform",)),
    PrivateName("jax:live_arrays", "it takes 'gpu' and 'cuda'", ("platform",)),
    PrivateName("jax._src.config:Config.update", "settings of platforms choose the default backend", ("name", "val")),
    PrivateName(
        "jax._src.pjit:_create_sharding_with_device_backend",
        "jax.jit(backend='gpu'), which is deprecated",
        ("device", "backend"),
        optional=True,
    ),
    PrivateName("jax._src.stages:DeviceAssignmentMismatch.device_ids", _ERROR, optional=True),
    PrivateName("jax._src.stages:DeviceAssignmentMismatch.platform", _ERROR, optional=True),
    PrivateName("jaxlib._jax:Device.platform", _ATTRIBUTES),
    PrivateName("jaxlib._jax:Device.device_kind", _ATTRIBUTES),
    PrivateName("jaxlib._jax:Device.id", _ATTRIBUTES),
    PrivateName("jaxlib._jax:Device.local_hardware_id", _ATTRIBUTES),
    PrivateName("jaxlib._jax:Device.memory_stats", "it counts the arrays on the virtual GPU"),
    PrivateName("jaxlib._jax:Client.platform", _ATTRIBUTES),
    PrivateName("jaxlib._jax:ArrayImpl.platform", _ATTRIBUTES),
    PrivateName("jaxlib._jax:ArrayImpl.__dlpack_device__", _ATTRIBUTES),
    PrivateName("jaxlib._jax:ArrayImpl.__dlpack__", "it ignores a stream", ("stream",)),
    PrivateName("jax._src.xla_bridge:_get_backend_uncached", "errors list CUDA", ("platform",), optional=True),
)
"""Replaced where virtual GPUs stand in."""

OTHERS = (
    PrivateName("jax._src.xla_bridge:process_index", "lists of devices of this process"),
    PrivateName("jax._src.xla_bridge:process_count", "lists of devices of this process"),
    PrivateName("jax._src.core:trace_state_clean", "tells quickly that nothing is traced", optional=True),
    PrivateName("jax._src.pjit:_run_python_pjit", "strict(): replaced for a block; JAX 0.10", optional=True),
    PrivateName("jax._src.pjit:_python_pjit_helper", "strict(): replaced for a block; older JAX", optional=True),
    PrivateName(
        "jaxlib._jax:make_gloo_tcp_collectives", "gloo uses the job's address; replaced for a while", optional=True
    ),
    PrivateName("jax._src.tree_util:_registry", "registered classes, up to JAX 0.4.34", optional=True),
)
"""Read, or replaced for a while."""

NAMES = (*STAND_IN, *OTHERS)
