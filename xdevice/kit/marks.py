"""Marks of the values in memory, which are equal if the same values are sent again."""

import ctypes
from typing import Any

# Up to this number of bytes all are read, and of more bytes about as many,
# evenly spread.
_SAMPLE = 4096


def mark(address: int, nbytes: int) -> int:
    """A number for these bytes: the same one for the same values, and 0 for none."""
    if not address or not nbytes:
        return 0
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    # odd, so that every byte position of a number is read
    step = 1 if nbytes <= _SAMPLE else nbytes // _SAMPLE | 1
    return hash((nbytes, memory[::step])) or 1


def mark_of(array: Any) -> int:
    """The mark of a NumPy array's memory.

    0 if the memory is not contiguous, or has objects.
    """
    if not array.flags.forc or array.dtype.hasobject:
        return 0
    return mark(array.ctypes.data, array.nbytes)
