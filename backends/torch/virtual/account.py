"""How much memory each virtual GPU holds: an account of live storages.

torch keeps the Python object of a storage for as long as the storage lives, so a weak reference to it
tells when the memory is freed, by whichever thread.
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
_most: list[int] = []  # the most there ever was
_lock = Lock()


class _Entry(weakref.ref):  # type: ignore[type-arg]  # of a storage; generic only for checkers
    __slots__ = ("index", "size")

    index: int
    size: int


_entries: set[_Entry] = set()
_freed: deque[tuple[int, int]] = deque()


def open_for(n: int) -> None:
    """Begin the account of that many devices."""
    _held[:], _most[:] = [0] * n, [0] * n


def enter(tensor: torch.Tensor, index: int) -> None:
    """The tensor is in new memory."""
    devices.used = True
    storage = tensor.untyped_storage()
    entry = _Entry(storage, _strike)
    entry.index, entry.size = index, storage.nbytes()
    _entries.add(entry)
    with _lock:
        _settle()
        _held[index] += entry.size
        _most[index] = max(_most[index], _held[index])


# Called at any moment, also while this thread holds the lock: so it only leaves word.
def _strike(entry: Any, strike: Any = _entries.discard, leave_word: Any = _freed.append) -> None:
    strike(entry)
    leave_word((entry.index, entry.size))


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
    """The most bytes that there ever were, or since `forget_peak`."""
    with _lock:
        return _most[index]


def forget_peak(index: int) -> None:
    """Let the peak be what is allocated now."""
    with _lock:
        _settle()
        _most[index] = _held[index]
