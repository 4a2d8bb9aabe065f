"""The memory of virtual GPUs that stand in, as ``gpu_memory_info`` reports it.

MXNet keeps no account of the host's memory. With a model of GPU, the arrays that the program holds
are therefore counted when it asks. They take blocks of the pool that MXNet has for each GPU. The
pool keeps the block of a deleted array for the next array of that size, until `empty_cache`.

Not counted are arrays that the program never held when it asked, such as the values that a
backward pass needs, sparse arrays, temporary memory, and the context of CUDA.
"""

import ctypes
import gc
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from mxnet import base
from mxnet.ndarray import NDArray

from xdevice.backends.mxnet.hardware import existing
from xdevice.virtual import request
from xdevice.virtual.mxnet.files import GPU
from xdevice.virtual.mxnet.private_names import Array, CPointer, CValue, Function, in_library

Blocks: TypeAlias = Counter[int]
"""How many blocks there are of each size."""

_base: Any = base
_PAGE = int(os.environ.get("MXNET_GPU_MEM_POOL_PAGE_SIZE", "4096"))
_LARGE = int(os.environ.get("MXNET_GPU_MEM_LARGE_ALLOC_ROUND_SIZE", str(2 << 20)))

_pools: defaultdict[int, Blocks] = defaultdict(Counter)
"""The blocks of each GPU's pool, in use or not, by the GPU's index."""


class _Span(NamedTuple):
    """The memory of an array."""

    start: int
    end: int


def start() -> None:
    in_library("MXGetGPUMemoryInformation64")(_memory_information)
    in_library("MXStorageEmptyCache")(_empty_cache)


def _memory_information(_: Function, index: CValue, free: CPointer, total: CPointer) -> int:
    gpu = existing(_as_int(index))
    page = os.sysconf("SC_PAGE_SIZE")
    memory, available = request.memory(), page * os.sysconf("SC_AVPHYS_PAGES")
    if memory is not None:
        available = max(memory - _in_pool(gpu), 0)
    free._obj.value = available
    total._obj.value = memory or page * os.sysconf("SC_PHYS_PAGES")
    return 0


def _empty_cache(native: Function, device_type: CValue, index: CValue) -> int:
    if _as_int(device_type) == GPU:
        _pools.pop(_as_int(index), None)
    status: int = native(device_type, index)
    return status


def _in_pool(gpu: int) -> int:
    """The bytes of a GPU's pool, to which the blocks of new arrays are added."""
    pool = _pools[gpu]
    pool |= _live_blocks(gpu)  # the larger number of each size
    return sum(size * number for size, number in pool.items())


def _live_blocks(gpu: int) -> Blocks:
    """The blocks of the arrays that the program holds."""
    return Counter(_size_of_block(span.end - span.start) for span in _separate(gpu))


def _separate(gpu: int) -> Iterator[_Span]:
    """The memory of each array that is not a view of another one."""
    end = 0
    spans = {span for array in _arrays_on(gpu) if (span := _span_of(array)) is not None}
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.end > end:
            yield span
            end = span.end


def _arrays_on(gpu: int) -> Iterator[Array]:
    """The dense arrays on a GPU that Python's collector knows, and their gradients."""
    # the class of an object: its __class__ may be a property that imports a module
    arrays = [item for item in gc.get_objects() if issubclass(type(item), NDArray)]
    for array in arrays:
        context = array.context
        if (context.device_typeid, context.device_id) == (GPU, gpu) and array.stype == "default":
            yield array
            if array.grad is not None and array.grad.stype == "default":
                yield array.grad


def _span_of(array: Array) -> _Span | None:
    """The memory of a dense array; ``None`` if it has none."""
    pointer = ctypes.c_void_p()
    failed = _base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer))
    if failed or not pointer.value:
        return None
    return _Span(pointer.value, pointer.value + array.size * np.dtype(array.dtype).itemsize)


def _size_of_block(nbytes: int) -> int:
    """What the pool allocates for so many bytes."""
    size = _rounded_up(nbytes, _PAGE)
    return _rounded_up(size, _LARGE) if size > _LARGE else size


def _rounded_up(number: int, step: int) -> int:
    return -(-number // step) * step


def _as_int(value: CValue) -> int:
    """The number in an argument, which is one of ctypes' integers or one of Python's."""
    number: Any = getattr(value, "value", value)
    return int(number)
