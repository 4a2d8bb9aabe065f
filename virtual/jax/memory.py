"""The memory of virtual GPUs that stand in, as ``device.memory_stats()`` tells it: the live arrays.

XLA's allocator of the host keeps no account, so peaks are not known.
"""

import os
from typing import Any

from xdevice.backends.jax import hardware
from xdevice.backends.jax.memory import live_sizes
from xdevice.contract import NativeDevice
from xdevice.device import Device
from xdevice.virtual import request
from xdevice.virtual.jax.private_names import names, replace_name

_MEMORY_STATS = "jaxlib._jax:Device.memory_stats"

_FRACTIONS = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
_FRACTION = 0.75
"""The part of a GPU's memory that JAX's allocator takes, unless a variable says otherwise."""


def replace() -> None:
    native_memory_stats = names.value(_MEMORY_STATS)

    def memory_stats(self: NativeDevice) -> Any:
        if hardware.ordinal(self):
            return _memory_stats(hardware.ordinal(self) - 1)
        return native_memory_stats(self)

    replace_name(_MEMORY_STATS, memory_stats)


def _limit() -> int:
    """The bytes that the allocator may take: of a model's memory a part, else the host's memory."""
    memory = request.memory()
    if memory is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fractions = (os.environ.get(name) for name in _FRACTIONS)
    return int(memory * float(next(filter(None, fractions), _FRACTION)))


def _memory_stats(index: int) -> dict[str, float]:
    """The memory of the GPU's arrays, by the names of a GPU's allocator."""
    live = sum(live_sizes(Device("gpu", index)))
    limit = _limit()
    unknown = float("nan")  # programs format it as a number
    return {
        "bytes_in_use": live,
        "pool_bytes": live,
        "peak_bytes_in_use": unknown,
        "peak_pool_bytes": unknown,
        "num_allocs": unknown,
        "largest_alloc_size": unknown,
        "bytes_reserved": 0,
        "peak_bytes_reserved": 0,
        "bytes_limit": limit,
        "largest_free_block_bytes": limit - live,
    }
