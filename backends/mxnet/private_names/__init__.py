"""The private names of MXNet that this adapter replaces or reads: see ``names.txt``."""

from collections.abc import Callable
from typing import Any

from xdevice.kit.private_names import PrivateNames

LAST_TRIED = {"1.9.1": "3.10 3.11"}
"""The newest version that has all of these names, and passed on virtual GPUs; by version, the Pythons with wheels."""

DEVICE_AT = {  # of MXNet's functions: which argument is the type of a device; its index is the next one
    **dict.fromkeys(("MXNDArrayCreate", "MXNDArrayCreateEx", "MXNDArrayCreateEx64"), 2),
    **dict.fromkeys(("MXNDArrayCreateSparseEx", "MXNDArrayCreateSparseEx64"), 3),
    **dict.fromkeys(("MXExecutorBindEX", "MXExecutorSimpleBindEx", "MXExecutorSimpleBindEx64"), 1),
    "MXExecutorReshapeEx": 2,
    "MXRandomSeedContext": 1,
    "MXStorageEmptyCache": 0,
}

TEXT = (  # modules that make text for the library, of operators, symbols, iterators and key-value stores, by str
    *("_ctypes.ndarray", "_ctypes.symbol", "ndarray.ndarray", "ndarray.numpy._op"),
    *("symbol.symbol", "symbol.numpy._symbol", "kvstore.base", "io.io"),
)

# what those modules have of their own under NumPy 2, and under NumPy 1 only where virtual GPUs stand in
ADDED = ("str",)
_words = {"DEVICE_AT": " ".join(DEVICE_AT), "TEXT": " ".join(f"{name}:str" for name in TEXT)}
names = PrivateNames(__file__, "mxnet", "mxnet", LAST_TRIED, **_words)
VIRTUAL, STAND_IN, NAMES = (
    names.of("VIRTUAL"),
    names.of("STAND_IN"),
    names.of(),
)  # the first is empty
in_place_of = names.in_place_of


def in_library(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function to take the place of one of MXNet's library, which it is given before the arguments."""
    return in_place_of(f"mxnet.base:_LIB.{name}")
