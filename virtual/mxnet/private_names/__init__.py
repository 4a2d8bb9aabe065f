"""The private names of MXNet that only virtual GPUs replace or read: see ``names.txt``."""

from collections.abc import Callable
from typing import Any, TypeAlias

from xdevice.backends.kit.private_names import PrivateNames

# MXNet has no types for checkers
Array: TypeAlias = Any
CPointer: TypeAlias = Any  # by which a function of MXNet's library returns a value
CValue: TypeAlias = (
    Any  # an argument of a function of the library: one of ctypes' or Python's values
)
Function: TypeAlias = Callable[..., Any]

LAST_TRIED = {"1.9.1": "3.10 3.11"}
"""The newest version that has all of these names, and passed on virtual GPUs.

The value names the Pythons that have wheels of it.
"""

DEVICE_AT = {
    "MXNDArrayCreate": 2,
    "MXNDArrayCreateEx": 2,
    "MXNDArrayCreateEx64": 2,
    "MXNDArrayCreateSparseEx": 3,
    "MXNDArrayCreateSparseEx64": 3,
    "MXExecutorBindEX": 1,
    "MXExecutorSimpleBindEx": 1,
    "MXExecutorSimpleBindEx64": 1,
    "MXExecutorReshapeEx": 2,
    "MXRandomSeedContext": 1,
    "MXStorageEmptyCache": 0,
}
"""For functions of MXNet's library, the index of the argument with the type of a device.

The next argument is the device's number.
"""

names = PrivateNames(__file__, "mxnet", "mxnet", LAST_TRIED, DEVICE_AT=" ".join(DEVICE_AT))
VIRTUAL, STAND_IN, NAMES = names.of("VIRTUAL"), names.of("STAND_IN"), names.of()
in_place_of = names.in_place_of


def in_library(name: str) -> Callable[[Function], Function]:
    """Decorate a function to replace one of MXNet's library.

    The function is called with the library's own, and then with the arguments.
    """
    return in_place_of(f"mxnet.base:_LIB.{name}")
