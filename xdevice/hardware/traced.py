"""The device of a tensor that a framework's compiler or transformation traces."""

from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NoReturn

from xdevice.device import Device
from xdevice.errors import UnknownPlacementError

_PROBLEM = (
    "the device of a traced tensor is known when the compiled function runs; "
    "pass it on as device=, or ask outside the compiled function"
)
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type)


class UnhashableDeviceError(UnknownPlacementError, TypeError):
    """The error of ``hash``, a `TypeError` as for other objects: PaddlePaddle's compiler expects it."""


class TracedDevice(Device):
    """The device of a traced tensor, which is known when the compiled function runs.

    A factory takes it as ``device=`` and leaves the placement to the compiler.
    Its kind, its index, a comparison and a scope raise
    `UnknownPlacementError`.
    """

    __slots__ = ()

    def __new__(cls) -> "TracedDevice":
        return object.__new__(cls)

    def __repr__(self) -> str:
        return "<device of a traced tensor, known when the compiled function runs>"

    def __str__(self) -> str:
        return repr(self)

    def unknown(self, *_: object, **__: object) -> NoReturn:
        """Raise the error of every method but ``repr``."""
        raise UnknownPlacementError(_PROBLEM)

    def unhashable(self) -> NoReturn:
        raise UnhashableDeviceError(_PROBLEM)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _FUNCTIONS):
            self.unknown()
        return False  # PaddlePaddle's compiler compares with functions

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = unhashable
    __lt__ = __le__ = __gt__ = __ge__ = unknown
    __enter__ = __reduce__ = unknown
    kind: Any = property(unknown)
    index: Any = property(unknown)


TRACED = TracedDevice()  # one for all traced tensors
