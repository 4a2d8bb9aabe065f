"""Seeing who reads the memory of an object through Python's buffer protocol.

NumPy's functions, ``memoryview`` and other C code ask an object for its buffer,
without calling a method of its class. From Python 3.12 on, most classes have
the method as well: ``__buffer__``. It is replaced, and Python calls the
replacement. For other classes (TensorFlow 2.21's, which sets the C function
after it has made the class) and before Python 3.12, `ctypes` replaces the C
function in the class's ``PyTypeObject``.
"""

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from xdevice.backends.kit.private_names import replaced
from xdevice.errors import NotSupportedError

Exporter: TypeAlias = Any
"""An object that has a buffer."""

Report: TypeAlias = Callable[[Exporter], object]
"""A function that is called before an object's buffer is read, and raises to forbid that."""

_GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)

_FAILURE = -1


class _BufferProcs(ctypes.Structure):
    _fields_ = (("bf_getbuffer", ctypes.c_void_p), ("bf_releasebuffer", ctypes.c_void_p))


class _TypeObject(ctypes.Structure):
    """The beginning of CPython's ``PyTypeObject``."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("ob_size", ctypes.c_ssize_t),
        ("tp_name", ctypes.c_char_p),
        ("tp_basicsize", ctypes.c_ssize_t),
        ("before_buffer", ctypes.c_void_p * 15),
        ("tp_as_buffer", ctypes.POINTER(_BufferProcs)),
    )


class _Slot:
    """The C function by which the buffers of a class are read.

    It is replaced while there are reports. The replacement is kept for ever,
    since another thread may still run it.
    """

    def __init__(self, cls: type) -> None:
        type_object = _TypeObject.from_address(id(cls))
        if type_object.tp_basicsize != cls.__basicsize__ or not type_object.tp_as_buffer:
            raise NotSupportedError(
                f"this Python does not show where the buffer of {cls.__name__} is read; use CPython"
            )
        self.reports: list[Report] = []
        self._procs: _BufferProcs = type_object.tp_as_buffer.contents
        self._original_address = self._procs.bf_getbuffer
        self._original = _GetBuffer(self._original_address)
        self._replacement = _GetBuffer(self._get_buffer)

    def _get_buffer(self, obj: Exporter, view: int, flags: int) -> int:
        try:
            for report in self.reports:
                report(obj)
            status: int = self._original(obj, view, flags)
        except BaseException:  # ctypes would print it and go on
            return _FAILURE
        return status

    def update(self) -> None:
        """Replace the function if there are reports, and restore it otherwise."""
        if self.reports:
            self._procs.bf_getbuffer = ctypes.cast(self._replacement, ctypes.c_void_p).value
        else:
            self._procs.bf_getbuffer = self._original_address


_slots: dict[type, _Slot] = {}


@contextmanager
def watched(cls: type, report: Report) -> Generator[None]:
    """A block in which ``report(obj)`` is called before the buffer of such an object is read.

    An error that it raises forbids that. If `ctypes` replaces the function, the
    reader does not get this error: NumPy then calls the object's ``__array__``,
    and ``memoryview`` raises a `SystemError`.
    """
    if "__buffer__" in vars(cls):
        block = replaced(cls, "__buffer__", lambda original: _method(original, report))
    else:
        block = _watched_slot(cls, report)
    with block:
        yield


def _method(original: Callable[..., Any], report: Report) -> Callable[..., Any]:
    def get_buffer(obj: Exporter, flags: int, /) -> Any:
        report(obj)
        return original(obj, flags)

    return get_buffer


@contextmanager
def _watched_slot(cls: type, report: Report) -> Generator[None]:
    if cls not in _slots:
        _slots[cls] = _Slot(cls)
    slot = _slots[cls]
    slot.reports.append(report)
    slot.update()
    try:
        yield
    finally:
        slot.reports.remove(report)
        slot.update()
