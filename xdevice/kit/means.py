"""How the mean over processes is computed, so that the mean of equal numbers is that number, bit for bit."""

from __future__ import annotations

_EXACT = (1, 2, 4)
"""So many equal numbers add up exactly in their own dtype, in any order; three, five or eight do not."""

_WIDER = {"float32": "float64", "complex64": "complex128"}
_NARROW = ("float16", "bfloat16", "float8")


def summed_in(name: str, size: int) -> str:
    """The dtype in which numbers of the named dtype are added up for their mean over so many processes.

    In it, the sum of equal numbers is exact, and that of short ones does not overflow. Of float64 nothing is wider:
    the last bit of its mean may differ.

    >>> summed_in("float16", 2), summed_in("float32", 2), summed_in("float32", 3)
    ('float32', 'float32', 'float64')
    """
    if name.startswith(_NARROW):
        return "float32"
    return name if size in _EXACT else _WIDER.get(name, name)
