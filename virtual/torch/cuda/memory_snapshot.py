"""The segments and blocks of the caching allocator, as ``torch.cuda.memory_snapshot`` returns them."""

from typing import Any

from xdevice.virtual.torch.compiled import compiled


def snapshot(*args: Any) -> dict[str, Any]:
    """What ``torch._C._cuda_memorySnapshot`` returns, without a history of allocations."""
    virtual = compiled()
    devices = range(virtual.visible())
    return {
        "segments": [segment for index in devices for segment in _segments(index)],
        "device_traces": [[] for _ in devices],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _segments(device: int) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = []
    for line in compiled().blocks(device).value.decode().splitlines():
        address, size, requested, stream, large, expandable, allocated, first = map(
            int, line.split()
        )
        if first:
            segments.append(_segment(device, address, stream, bool(large), bool(expandable)))
        segment = segments[-1]
        segment["total_size"] += size
        for name in ("allocated_size", "active_size"):
            segment[name] += size * allocated
        segment["requested_size"] += requested
        segment["blocks"].append(
            {
                "address": address,
                "size": size,
                "requested_size": requested,
                "state": "active_allocated" if allocated else "inactive",
                "frames": [],
            }
        )
    return segments


def _segment(
    device: int, address: int, stream: int, large: bool, expandable: bool
) -> dict[str, Any]:
    return {
        "device": device,
        "address": address,
        "total_size": 0,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": stream,
        "segment_type": "large" if large else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": expandable,
        "frames": [],
        "blocks": [],
    }
