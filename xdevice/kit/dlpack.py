"""The device of a DLPack capsule: two numbers after the address at the start of a ``DLTensor``."""

import ctypes
from typing import Any

CPU, CUDA = 1, 2  # DLPack's numbers for devices

_tensor_in: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def device_in(capsule: Any) -> tuple[int, int]:
    """The kind of device, and its index."""
    kind, index = device_at(_tensor_in(capsule, b"dltensor"))
    return kind, index


def labelled(capsule: Any, kind: int, index: int) -> Any:
    """The capsule, changed so that its memory is on this device."""
    device_at(_tensor_in(capsule, b"dltensor"))[:] = [kind, index]
    return capsule


def device_at(address: int) -> Any:
    """The two numbers of a ``DLTensor``, to be read or written."""
    return (ctypes.c_int * 2).from_address(address + ctypes.sizeof(ctypes.c_void_p))
