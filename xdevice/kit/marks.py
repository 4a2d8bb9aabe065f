"""A mark of what memory holds, by which the same values are known when they are sent again."""

import ctypes
from typing import Any

_WHOLE = 4096  # bytes that are read as a whole: of more, as many are looked at, spread over all


def mark(address: int, nbytes: int) -> int:
    """A number for these bytes: the same one for the same values, and 0 for none."""
    if not address or not nbytes:
        return 0
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    step = (
        1 if nbytes <= _WHOLE else nbytes // _WHOLE | 1
    )  # odd, so that each byte of a number is looked at
    return hash((nbytes, memory[::step])) or 1


def mark_of(array: Any) -> int:
    """That of a NumPy array's memory; 0 where its elements are apart."""
    return (
        mark(array.ctypes.data, array.nbytes)
        if array.flags.forc and not array.dtype.hasobject
        else 0
    )
