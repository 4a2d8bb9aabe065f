"""The memory that each virtual GPU holds: a count of live storages.

torch keeps the Python object of a storage as long as the storage lives, so the callback of a weak reference
runs when the memory is freed, in any thread.
"""

from __future__ import annotations

import weakref
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

from xdevice.backends.torch.virtual import devices

if TYPE_CHECKING:
    from typing import Any

    import torch

_held: list[int] = []  # bytes now, by device
_most: list[int] = []  # the largest number so far
_lock = Lock()


class _Entry(weakref.ref):  # type: ignore[type-arg]  # of a storage; generic only for checkers
    __slots__ = ("index", "size")

    index: int
    size: int


_entries: set[_Entry] = set()
_freed: deque[tuple[int, int]] = deque()


def open_for(n: int) -> None:
    """Start counting for that many devices."""
    _held[:], _most[:] = [0] * n, [0] * n


def enter(tensor: torch.Tensor, index: int) -> None:
    """Count the memory of a new tensor."""
    devices.used = True
    storage = tensor.untyped_storage()
    entry = _Entry(storage, _strike)
    entry.index, entry.size = index, storage.nbytes()
    _entries.add(entry)
    with _lock:
        _settle()
        _held[index] += entry.size
        _most[index] = max(_most[index], _held[index])


# May run at any moment, even while this thread holds the lock, so it only queues the entry.
def _strike(entry: Any, strike: Any = _entries.discard, queue: Any = _freed.append) -> None:
    strike(entry)
    queue((entry.index, entry.size))


def _settle() -> None:
    while _freed:
        index, size = _freed.popleft()
        _held[index] -= size


def allocated(index: int) -> int:
    """Bytes in live tensors."""
    with _lock:
        _settle()
        return _held[index]


def peak(index: int) -> int:
    """The largest number of bytes so far, or since `forget_peak`."""
    with _lock:
        return _most[index]


def forget_peak(index: int) -> None:
    """Reset the peak to what is allocated now."""
    with _lock:
        _settle()
        _most[index] = _held[index]
