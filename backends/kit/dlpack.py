"""The device of a DLPack capsule, as numbers that can be changed.

They follow the address at the start of a ``DLTensor``.
"""

import ctypes
from typing import Any, TypeAlias

CPU, CUDA = 1, 2  # DLPack's numbers for devices

Capsule: TypeAlias = Any
"""A ``PyCapsule`` with the name ``dltensor``."""

DeviceNumbers: TypeAlias = Any
"""A ``ctypes`` array of two integers: the kind of device, and its index."""

_PyCapsule_GetPointer: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def device_in(capsule: Capsule) -> tuple[int, int]:
    """The kind of device, and its index."""
    kind, index = device_at(_address(capsule))
    return kind, index


def labelled(capsule: Capsule, kind: int, index: int) -> Capsule:
    """The same capsule, changed so that its memory is on this device."""
    device_at(_address(capsule))[:] = [kind, index]
    return capsule


def device_at(address: int) -> DeviceNumbers:
    """The two numbers of a ``DLTensor``, to be read or written."""
    numbers = ctypes.c_int * 2
    return numbers.from_address(address + ctypes.sizeof(ctypes.c_void_p))


def _address(capsule: Capsule) -> int:
    """The address of the capsule's ``DLTensor``."""
    address: int = _PyCapsule_GetPointer(capsule, b"dltensor")
    return address
