"""Marks of values in memory: equal values have equal marks."""

import ctypes
from typing import Any, TypeAlias

NumpyArray: TypeAlias = Any

# Memory of at most this number of bytes is read completely. Of more memory
# about as many bytes are read, evenly spread.
_SAMPLE = 4096


def mark(address: int, nbytes: int) -> int:
    """A number for these bytes: the same one for the same values, and 0 for none."""
    if not address or not nbytes:
        return 0
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    step = 1
    if nbytes > _SAMPLE:
        # odd, so that every byte position of a number is read
        step = nbytes // _SAMPLE | 1
    return hash((nbytes, memory[::step])) or 1


def mark_of(array: NumpyArray) -> int:
    """The mark of a NumPy array's memory.

    0 if the memory is not contiguous, or has objects.
    """
    if not array.flags.forc or array.dtype.hasobject:
        return 0
    return mark(array.ctypes.data, array.nbytes)
