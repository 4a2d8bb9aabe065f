"""What ``PYTORCH_ALLOC_CONF`` and ``PYTORCH_CUDA_ALLOC_CONF`` set.

torch's own parser reads what all accelerators have. A build without CUDA passes over the rest.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

from xdevice.virtual.torch.compiled import compiled
from xdevice.virtual.torch.private_names import core

_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""The variables, in the order in which CUDA's allocator looks for them."""

_FOLLOWED = """
    max_split_size_mb max_non_split_rounding_mb garbage_collection_threshold large_segment_size_mb
    roundup_power2_divisions expandable_segments per_process_memory_fraction backend
"""

_WITHOUT_EFFECT = """
    release_lock_on_cudamalloc release_lock_on_hipmalloc pinned_use_cuda_host_register
    pinned_use_hip_host_register pinned_num_register_threads pinned_reserve_segment_size_mb
    pinned_use_background_threads pinned_max_round_threshold_mb pinned_max_cached_size_mb
    pinned_free_catch_all graph_capture_record_stream_reuse throw_on_cudamalloc_oom
"""
"""What changes only times, memory of the host, graphs, or when an error is raised."""

_KEYS = frozenset((_FOLLOWED + _WITHOUT_EFFECT).split())


def _settings() -> list[str | None]:
    return [os.environ.get(name) for name in _VARIABLES]


_at_import = _settings()


def read() -> dict[str, str]:
    """The settings, checked. CUDA's allocator reads them when it is first used."""
    settings = _settings()
    text = next((each for each in settings if each), "")
    found = dict(_parts(text))
    for key in found:
        if key not in _KEYS:
            raise ValueError(f"Unrecognized key '{key}' in CUDA allocator config.")
    if found.get("backend", "native") != "native":
        raise NotImplementedError(
            f"virtual GPUs have no allocator {found['backend']}; remove backend:{found['backend']}"
            " from PYTORCH_CUDA_ALLOC_CONF"
        )
    if settings != _at_import:
        core._accelerator_setAllocatorSettings(text)
    return found


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The keys and values. Commas within brackets are part of a value."""
    for part in re.findall(r"(?:\[[^]]*\]|[^,\[])+", re.sub(r"\s", "", text)):
        key, _, value = part.partition(":")
        yield key, value


def in_snapshot() -> dict[str, Any]:
    """The settings as ``torch.cuda.memory._snapshot`` has them."""
    text: str = core._accelerator_getAllocatorSettings()
    found = dict(_parts(text))
    words = compiled().allocator_settings().value.decode().split()
    max_split_size, threshold, expandable, *divisions = words
    starts = [str(1 << i) for i in range(len(divisions))]  # in MiB
    flags = (
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "graph_capture_record_stream_reuse",
    )
    return {
        "PYTORCH_CUDA_ALLOC_CONF": text,
        "max_split_size": int(max_split_size),
        "garbage_collection_threshold": float(threshold),
        "expandable_segments": expandable == "1",
        "pinned_num_register_threads": int(found.get("pinned_num_register_threads", 1)),
        "roundup_power2_divisions": dict(zip(starts, map(int, divisions), strict=True)),
        **{flag: found.get(flag) == "True" for flag in flags},
    }
