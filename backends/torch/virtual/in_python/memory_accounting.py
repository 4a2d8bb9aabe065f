"""The memory that each virtual GPU holds, by a count of live storages.

torch keeps the Python object of a storage as long as the storage lives, so the callback of a weak reference
runs when the memory is freed, in any thread.
"""

import re
from collections import deque
from threading import Lock
from typing import NoReturn
from weakref import finalize

import torch

from xdevice.backends.torch.virtual.runtime import NAME, in_use

_held: list[int] = []  # bytes now, by device
_most: list[int] = []  # the largest number so far
_lock = Lock()

# What is freed is queued: that may happen at any moment, even while this thread holds the lock.
_freed: deque[tuple[int, int]] = deque()


def open_for(n: int) -> None:
    _held[:], _most[:] = [0] * n, [0] * n


def enter(tensor: torch.Tensor, index: int) -> None:
    """Count the memory of a new tensor."""
    in_use().use(True)
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    with _lock:
        _settle()
        if in_use().limited and _held[index] + size > in_use().capacity:
            out_of_memory(index, size)
        finalize(storage, _freed.append, (index, size)).atexit = False
        _held[index] += size
        _most[index] = max(_most[index], _held[index])


def out_of_memory(index: int, wanted: int) -> NoReturn:
    capacity = in_use().capacity
    free = max(capacity - _held[index], 0)
    raise torch.OutOfMemoryError(
        f"{NAME} out of memory. Tried to allocate {_readable(wanted)}. GPU {index} has a total capacity of "
        f"{_readable(capacity)} of which {_readable(free)} is free. It is virtual, in the host's "
        f"memory, and {_readable(_held[index])} are allocated by PyTorch"
    )


def check_host(error: RuntimeError, index: int) -> None:
    """Raise torch's error if the host's memory is at an end, for which the CPU's allocator has no type of its own."""
    wanted = re.search(r"can't allocate memory: you tried to allocate (\d+)", str(error))
    if wanted:
        out_of_memory(index, int(wanted[1]))


def _readable(size: int) -> str:
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << bits:
            return f"{size / (1 << bits):.2f} {unit}"
    return f"{size} bytes"


def _settle() -> None:
    while _freed:
        index, size = _freed.popleft()
        _held[index] -= size


def allocated(index: int) -> int:
    with _lock:
        _settle()
        return _held[index]


def peak(index: int) -> int:
    with _lock:
        return _most[index]


def reset_peak(index: int) -> None:
    with _lock:
        _settle()
        _most[index] = _held[index]
