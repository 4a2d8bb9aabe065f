"""Saved arrays, pickles and DLPack's capsules hold ``gpu(i)``, as those of MXNet with CUDA do, and come back there.

MXNet's library writes the context that it has for a virtual GPU, ``cpu(1001 + i)``, and loads to the CPU. Its contexts
are rewritten after it has written them, and arrays that say ``gpu(i)`` are moved after it has read them.
"""

import ctypes
import math
import struct
from collections.abc import Iterator
from mmap import ACCESS_COPY, ACCESS_WRITE, mmap
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet.ndarray.sparse import _ndarray_cls

from xdevice.backends.mxnet.hardware import FIRST_VIRTUAL, existing
from xdevice.backends.mxnet.private_names import in_library
from xdevice.kit import dlpack

_CPU, _GPU = 1, 2
_MAGIC = 0xF993FAC9, 0xF993FACA  # of an array, with the shapes of MXNet and with those of NumPy
_HEADER = struct.calcsize("<QQQ")  # of a file, the last of which is the number of arrays
_PARTS = {0: 0, 1: 1, 2: 2}  # how many arrays of indices a dense one has, one of sparse rows, and one of CSR
_BYTES = 4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2  # of each type, by MXNet's number


def start(library: Any) -> None:
    """Replace the library's functions that write and read arrays."""

    @in_library("MXNDArraySave")
    def saved(save: Any, name: Any, *rest: Any) -> int:
        status: int = save(name, *rest)
        if status == 0 and (path := _path(name)).is_file():
            with path.open("r+b") as file, mmap(file.fileno(), 0, access=ACCESS_WRITE) as data:
                _name_gpus(data, _places(data))
        return status

    @in_library("MXNDArraySaveRawBytes")
    def saved_raw(save_raw: Any, handle: Any, length: Any, pointer: Any) -> int:
        status: int = save_raw(handle, length, pointer)
        address = ctypes.cast(pointer._obj, ctypes.c_void_p).value
        if status == 0 and address is not None:
            data = (ctypes.c_char * length._obj.value).from_address(address)
            _name_gpus(data, _places(data, 0, 1))
        return status

    @in_library("MXNDArrayLoad")
    def loaded(load: Any, name: Any, count: Any, handles: Any, *names: Any) -> int:
        status: int = load(name, count, handles, *names)
        if status == 0 and count._obj.value and (path := _path(name)).is_file():
            with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_COPY) as data:
                put_all(data, handles._obj)
        return status

    @in_library("MXNDArrayLoadFromBuffer")
    def loaded_buffer(load: Any, buffer: Any, size: Any, count: Any, handles: Any, *names: Any) -> int:
        status: int = load(buffer, size, count, handles, *names)
        if status == 0 and count._obj.value:
            put_all(getattr(buffer, "value", buffer), handles._obj)
        return status

    @in_library("MXNDArrayLoadFromRawBytes")
    def loaded_raw(load: Any, pointer: Any, length: Any, handle: Any) -> int:
        status: int = load(pointer, length, handle)
        index = _gpu(pointer, next(_places(pointer, 0, 1), None)) if status == 0 else None
        if index is not None:
            handle._obj.value = _moved(library, handle._obj.value, existing(index))
        return status

    def put_all(data: Any, handles: Any) -> None:
        for i, at in enumerate(_places(data)):
            if (index := _gpu(data, at)) is not None:
                handles[i] = _moved(library, handles[i], existing(index))

    _start_dlpack(library)


def _start_dlpack(library: Any) -> None:
    @in_library("MXNDArrayToDLPack")
    def exported(export: Any, handle: Any, tensor: Any) -> int:
        status: int = export(handle, tensor)
        device = dlpack.device_at(tensor._obj.value)
        if status == 0 and device[0] == dlpack.CPU and device[1] >= FIRST_VIRTUAL:
            device[:] = [dlpack.CUDA, device[1] - FIRST_VIRTUAL]
        return status

    @in_library("MXNDArrayFromDLPackEx")
    def taken(take: Any, tensor: Any, transient: Any, handle: Any) -> int:
        device = dlpack.device_at(getattr(tensor, "value", None) or ctypes.addressof(tensor._obj))
        kind, index = device
        if kind == dlpack.CUDA:
            device[:] = [dlpack.CPU, 0]
        status: int = take(tensor, transient, handle)
        if status == 0 and kind == dlpack.CUDA:
            handle._obj.value = _moved(library, handle._obj.value, existing(index))
        return status


def _path(name: Any) -> Path:
    return Path(name.value.decode())


def _name_gpus(data: Any, places: Iterator[int | None]) -> None:
    for at in places:
        if at is not None:
            kind, index = struct.unpack_from("<ii", data, at)
            if kind == _CPU and index >= FIRST_VIRTUAL:
                struct.pack_into("<ii", data, at, _GPU, index - FIRST_VIRTUAL)


def _gpu(data: Any, at: int | None) -> int | None:
    kind, index = struct.unpack_from("<ii", data, at) if at is not None else (_CPU, 0)
    return index if kind == _GPU else None


def _moved(library: Any, handle: Any, index: int) -> Any:
    """The handle of a copy on a GPU; the first one is freed."""
    there: Any = _ndarray_cls(ctypes.c_void_p(handle)).copyto(mx.gpu(index))
    made = ctypes.c_void_p()
    mx.base.check_call(library.MXShallowCopyNDArray(there.handle, ctypes.byref(made)))
    return made.value


def _places(data: Any, at: int = _HEADER, count: int | None = None) -> Iterator[int | None]:
    """Where the context of each array is, None for one without values; none are found in files of older versions."""

    def read(numbers: str) -> tuple[int, ...]:
        nonlocal at
        at += struct.calcsize("<" + numbers)
        return struct.unpack_from("<" + numbers, data, at - struct.calcsize("<" + numbers))

    def shape() -> tuple[int, ...] | None:
        (rank,) = read("i")
        return read(f"{rank}q") if rank >= 0 else None

    for _ in range(struct.unpack_from("<Q", data, at - 8)[0] if count is None else count):
        magic, storage = read("Ii")
        if magic not in _MAGIC or storage not in _PARTS:
            return
        stored = shape() if _PARTS[storage] else None
        whole = shape()
        if whole is None or (not whole and magic == _MAGIC[0]):
            yield None
            continue
        yield at
        *_, dtype = read("iii")
        parts = [(dtype, whole if stored is None else stored)]
        parts += [(read("i")[0], shape() or ()) for _ in range(_PARTS[storage])]
        at += sum(_BYTES[kind] * math.prod(sizes) for kind, sizes in parts)
