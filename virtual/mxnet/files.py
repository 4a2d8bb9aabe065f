"""Arrays of virtual GPUs that stand in, in files, pickles and DLPack's capsules.

These contain ``gpu(i)``, as those of MXNet with CUDA do. After MXNet's library has written arrays,
their contexts are changed from ``cpu(1001 + i)`` to ``gpu(i)``. The library reads arrays of
``gpu(i)`` to the CPU; then they are copied to that GPU.
"""

import ctypes
import math
import struct
from collections.abc import Callable, Iterator
from functools import partial
from mmap import ACCESS_COPY, ACCESS_WRITE, mmap
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import mxnet as mx
from mxnet import base

from xdevice.backends.mxnet.hardware import FIRST_VIRTUAL, existing
from xdevice.backends.mxnet.mixing import Handle
from xdevice.backends.kit import dlpack
from xdevice.virtual.mxnet.private_names import Array, CPointer, CValue, in_library, names

Data: TypeAlias = Any  # a buffer

CPU, GPU = 1, 2  # MXNet's numbers for types of devices
_base: Any = base
_array_of: Any = names.value("mxnet.ndarray.sparse:_ndarray_cls")
_OneHandle = ctypes.c_void_p * 1
# The first word of an array, if its shape is one of MXNet's, or one of NumPy's
_MXNET_SHAPE, _NUMPY_SHAPE = 0xF993FAC9, 0xF993FACA
_HEADER_BYTES = struct.calcsize("<QQQ")  # of a file; the third number is the number of arrays
# dense, row-sparse and CSR; each is the number of index arrays that follow
_STORAGE_TYPES = range(3)
_DTYPE_BYTES = 4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2  # by MXNet's number of the dtype


class _SavedContext(NamedTuple):
    """The context of a saved array."""

    position: int  # in the data; 0, as the other fields, for an array without values
    device_type: int
    device_index: int


def start() -> None:
    """Replace the library's functions that write and read arrays."""
    _run_after("MXNDArraySave", _after_save)
    _run_after("MXNDArraySaveRawBytes", _after_save_raw)
    _run_after("MXNDArrayLoad", _after_load)
    _run_after("MXNDArrayLoadFromBuffer", _after_load_buffer)
    _run_after("MXNDArrayLoadFromRawBytes", _after_load_raw)
    _run_after("MXNDArrayToDLPack", _after_export)
    in_library("MXNDArrayFromDLPackEx")(_from_dlpack)


def _run_after(name: str, change: Callable[..., None]) -> None:
    """Call ``change`` with the same arguments after a function of the library, if that succeeds."""

    @in_library(name)
    def call(native: Callable[..., int], *args: CValue) -> int:
        status = native(*args)
        if status == 0:
            change(*args)
        return status


def _after_save(name: CValue, *_: CValue) -> None:
    _map_file(name, ACCESS_WRITE, _write_gpus)


def _after_save_raw(handle: Handle, length: CPointer, pointer: CPointer) -> None:
    address = ctypes.cast(pointer._obj, ctypes.c_void_p).value
    if address is not None:
        data = (ctypes.c_char * length._obj.value).from_address(address)
        _write_gpus(data, position=0, number=1)


def _after_load(name: CValue, _: CPointer, handles: CPointer, *__: CPointer) -> None:
    _map_file(name, ACCESS_COPY, partial(_move_to_gpus, handles._obj))


def _after_load_buffer(
    data: CValue, _: CValue, __: CPointer, handles: CPointer, *___: CPointer
) -> None:
    _move_to_gpus(handles._obj, getattr(data, "value", data))


def _after_load_raw(data: Data, _: CValue, handle: CPointer) -> None:
    _move_to_gpus(_OneHandle.from_buffer(handle._obj), data, position=0, number=1)


def _after_export(handle: Handle, tensor: CPointer) -> None:
    device = dlpack.device_at(tensor._obj.value)
    if device[0] == dlpack.CPU and device[1] >= FIRST_VIRTUAL:
        device[:] = [dlpack.CUDA, device[1] - FIRST_VIRTUAL]


def _from_dlpack(
    native: Callable[..., int], tensor: CValue, transient: CValue, handle: CPointer
) -> int:
    device = dlpack.device_at(getattr(tensor, "value", None) or ctypes.addressof(tensor._obj))
    device_type, index = device
    if device_type == dlpack.CUDA:
        device[:] = [dlpack.CPU, 0]
    status = native(tensor, transient, handle)
    if status == 0 and device_type == dlpack.CUDA:
        handle._obj.value = _moved(handle._obj.value, existing(index))
    return status


def _map_file(name: CValue, access: int, use: Callable[[Data], None]) -> None:
    """Call the function with the contents of the file, if it is a file on this machine."""
    path = Path(name.value.decode())
    if not path.is_file():
        return
    mode = "r+b" if access == ACCESS_WRITE else "rb"
    with path.open(mode) as file, mmap(file.fileno(), 0, access=access) as data:
        use(data)


def _write_gpus(data: Data, position: int = _HEADER_BYTES, number: int | None = None) -> None:
    """Change the contexts of virtual GPUs in saved arrays to ``gpu(i)``."""
    for context in _saved_contexts(data, position, number):
        if context.device_type == CPU and context.device_index >= FIRST_VIRTUAL:
            gpu_index = context.device_index - FIRST_VIRTUAL
            struct.pack_into("<ii", data, context.position, GPU, gpu_index)


def _move_to_gpus(
    handles: Any, data: Data, position: int = _HEADER_BYTES, number: int | None = None
) -> None:
    """Copy loaded arrays to the GPUs on which they were saved, and replace their handles."""
    for i, context in enumerate(_saved_contexts(data, position, number)):
        if context.device_type == GPU:
            handles[i] = _moved(handles[i], existing(context.device_index))


def _moved(handle: Handle, index: int) -> Handle:
    """The handle of a copy on a GPU; the original is freed."""
    array: Array = _array_of(ctypes.c_void_p(handle))
    copy: Array = array.copyto(mx.gpu(index))
    new_handle = ctypes.c_void_p()
    mx.base.check_call(_base._LIB.MXShallowCopyNDArray(copy.handle, ctypes.byref(new_handle)))
    return new_handle.value


def _saved_contexts(data: Data, position: int, number: int | None) -> Iterator[_SavedContext]:
    """The contexts of saved arrays; none for the formats of older versions.

    ``position`` is that of the first array. Without ``number``, the number of arrays is read from
    the eight bytes before it.
    """
    if number is None:
        (number,) = struct.unpack_from("<Q", data, position - struct.calcsize("<Q"))
    reader = _Reader(data, position)
    for _ in range(number):
        magic, storage_type = reader.read("Ii")
        if magic not in (_MXNET_SHAPE, _NUMPY_SHAPE) or storage_type not in _STORAGE_TYPES:
            return
        stored_shape = reader.read_shape() if storage_type else None
        shape = reader.read_shape()
        if shape is None or (not shape and magic == _MXNET_SHAPE):
            yield _SavedContext(0, 0, 0)
            continue
        context_position = reader.position
        device_type, index, dtype = reader.read("iii")
        yield _SavedContext(context_position, device_type, index)
        if stored_shape is None:
            stored_shape = shape
        parts = [(dtype, stored_shape)]
        for _ in range(storage_type):
            (index_dtype,) = reader.read("i")
            parts.append((index_dtype, reader.read_shape() or ()))
        for part_dtype, part_shape in parts:
            reader.position += _DTYPE_BYTES[part_dtype] * math.prod(part_shape)


class _Reader:
    """Reads numbers of saved arrays, one after another."""

    def __init__(self, data: Data, position: int) -> None:
        self._data, self.position = data, position

    def read(self, numbers: str) -> tuple[int, ...]:
        """The next numbers, in the format of `struct`."""
        values = struct.unpack_from(f"<{numbers}", self._data, self.position)
        self.position += struct.calcsize(f"<{numbers}")
        return values

    def read_shape(self) -> tuple[int, ...] | None:
        """The next shape; ``None`` if it is unknown."""
        (rank,) = self.read("i")
        return self.read(f"{rank}q") if rank >= 0 else None
