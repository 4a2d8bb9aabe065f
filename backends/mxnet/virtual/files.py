"""Saved arrays, pickles and DLPack's capsules hold ``gpu(i)``, as those of MXNet with CUDA do, and come back there.

MXNet's library writes the context that it has for a virtual GPU, ``cpu(1001 + i)``, and loads to the CPU. Its contexts
are rewritten after it has written them, and arrays that say ``gpu(i)`` are moved after it has read them.
"""

import ctypes
import math
import struct
from collections.abc import Callable, Iterator
from functools import partial
from mmap import ACCESS_COPY, ACCESS_WRITE, mmap
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet import base
from mxnet.ndarray.sparse import _ndarray_cls

from xdevice.backends.mxnet.hardware import FIRST_VIRTUAL, existing
from xdevice.backends.mxnet.private_names import in_library
from xdevice.kit import dlpack

_base: Any = base
_Handle = ctypes.c_void_p * 1
_CPU, _GPU = 1, 2
_MAGIC = 0xF993FAC9, 0xF993FACA  # of an array, with the shapes of MXNet and with those of NumPy
_HEADER = struct.calcsize("<QQQ")  # of a file, the last of which is the number of arrays
_STORAGES = range(3)  # dense, of sparse rows, and CSR: each is the number of arrays of indices that it has
_BYTES = 4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2  # of each type, by MXNet's number


def start() -> None:
    """Replace the library's functions that write and read arrays."""
    _after("MXNDArraySave", lambda name, *_: _in_file(name, ACCESS_WRITE, _name_gpus))
    _after("MXNDArraySaveRawBytes", _saved)
    _after("MXNDArrayLoad", lambda name, _, handles, *__: _in_file(name, ACCESS_COPY, partial(_put_all, handles._obj)))
    _after(
        "MXNDArrayLoadFromBuffer",
        lambda data, _, __, handles, *___: _put_all(handles._obj, getattr(data, "value", data)),
    )
    _after("MXNDArrayLoadFromRawBytes", lambda data, _, handle: _put_all(_Handle.from_buffer(handle._obj), data, 0, 1))
    _after("MXNDArrayToDLPack", _exported)
    in_library("MXNDArrayFromDLPackEx")(_take)


def _after(name: str, change: Callable[..., None]) -> None:
    """Let the library's function be followed by the other with the same arguments, if it succeeds."""

    @in_library(name)
    def call(function: Callable[..., int], *args: Any) -> int:
        status = function(*args)
        if status == 0:
            change(*args)
        return status


def _saved(handle: Any, length: Any, pointer: Any) -> None:
    address = ctypes.cast(pointer._obj, ctypes.c_void_p).value
    if address is not None:
        _name_gpus((ctypes.c_char * length._obj.value).from_address(address), 0, 1)


def _exported(handle: Any, tensor: Any) -> None:
    device = dlpack.device_at(tensor._obj.value)
    if device[0] == dlpack.CPU and device[1] >= FIRST_VIRTUAL:
        device[:] = [dlpack.CUDA, device[1] - FIRST_VIRTUAL]


def _take(take: Any, tensor: Any, transient: Any, handle: Any) -> int:
    device = dlpack.device_at(getattr(tensor, "value", None) or ctypes.addressof(tensor._obj))
    kind, index = device
    if kind == dlpack.CUDA:
        device[:] = [dlpack.CPU, 0]
    status: int = take(tensor, transient, handle)
    if status == 0 and kind == dlpack.CUDA:
        handle._obj.value = _moved(handle._obj.value, existing(index))
    return status


def _in_file(name: Any, access: int, change: Callable[[Any], None]) -> None:
    path = Path(name.value.decode())
    if path.is_file():
        with (
            path.open("r+b" if access == ACCESS_WRITE else "rb") as file,
            mmap(file.fileno(), 0, access=access) as data,
        ):
            change(data)


def _name_gpus(data: Any, *span: int) -> None:
    for at, kind, index in _contexts(data, *span):
        if kind == _CPU and index >= FIRST_VIRTUAL:
            struct.pack_into("<ii", data, at, _GPU, index - FIRST_VIRTUAL)


def _put_all(handles: Any, data: Any, *span: int) -> None:
    for i, (_, kind, index) in enumerate(_contexts(data, *span)):
        if kind == _GPU:
            handles[i] = _moved(handles[i], existing(index))


def _moved(handle: Any, index: int) -> Any:
    """The handle of a copy on a GPU; the first one is freed."""
    there: Any = _ndarray_cls(ctypes.c_void_p(handle)).copyto(mx.gpu(index))
    made = ctypes.c_void_p()
    mx.base.check_call(_base._LIB.MXShallowCopyNDArray(there.handle, ctypes.byref(made)))
    return made.value


def _contexts(data: Any, at: int = _HEADER, count: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Where the context of each array is, and the context; zeros for one without values; none in older files."""

    def read(numbers: str) -> tuple[int, ...]:
        nonlocal at
        at += struct.calcsize("<" + numbers)
        return struct.unpack_from("<" + numbers, data, at - struct.calcsize("<" + numbers))

    def shape() -> tuple[int, ...] | None:
        (rank,) = read("i")
        return read(f"{rank}q") if rank >= 0 else None

    for _ in range(struct.unpack_from("<Q", data, at - 8)[0] if count is None else count):
        magic, storage = read("Ii")
        if magic not in _MAGIC or storage not in _STORAGES:
            return
        stored = shape() if storage else None
        whole = shape()
        if whole is None or (not whole and magic == _MAGIC[0]):
            yield 0, 0, 0
            continue
        where, (kind, index, dtype) = at, read("iii")
        yield where, kind, index
        parts = [(dtype, whole if stored is None else stored)]
        parts += [(read("i")[0], shape() or ()) for _ in range(storage)]
        at += sum(_BYTES[kind] * math.prod(sizes) for kind, sizes in parts)
