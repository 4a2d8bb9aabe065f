"""MXNet programs written for GPUs, unedited: virtual GPUs answer to ``mx.gpu(i)``.

To Python a virtual GPU is ``Context('gpu', i)`` in every respect; to MXNet's library it is ``cpu(1001 + i)``. The
border between the two is crossed in few places, and only there is one put for the other: the functions of the library
that take or give a device, which are replaced on ``mxnet.base._LIB``, and the text that operators make of a context.

To the library arrays of the CPU and of a virtual GPU are the CPU's alike, so each operation is refused here that has
both, as MXNet refuses it where GPUs are real. It never compares one GPU with another.

Saved arrays, pickles and DLPack's capsules hold ``gpu(i)``, as those of MXNet with CUDA do, and come back there: the
library's contexts are rewritten after it has written them, and arrays that say ``gpu(i)`` are moved after it has read
them, to the CPU.

Differs from a GPU: DLPack copies; page-locked memory is the host's. There is no RTC and no cuDNN, whose environment
variables do nothing, and a key-value store that is asked for as ``nccl`` is a ``device`` one.
"""

import ctypes
import math
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from mmap import ACCESS_COPY, ACCESS_WRITE, mmap
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet import base
from mxnet.runtime import Feature, Features

from xdevice.backends import mxnet as adapter
from xdevice.backends.mxnet import mixing
from xdevice.backends.mxnet.hardware import FIRST_VIRTUAL, count, existing
from xdevice.kit import dlpack
from xdevice.virtual.mxnet import kernels
from xdevice.virtual.mxnet.private_names import DEVICE_AT, in_library, in_place_of, names

CPU, GPU = 1, 2  # MXNet's numbers for types of devices
_GROUPS = {"MXExecutorBindEX": 4, "MXExecutorSimpleBindEx": 4, "MXExecutorSimpleBindEx64": 4}
"""Where the lists of types and indices that ``group2ctx`` gives begin, behind their length and names."""

_base: Any = base
_array_of: Any = names.value("mxnet.ndarray.sparse:_ndarray_cls")
_Handle = ctypes.c_void_p * 1
_MAGIC = 0xF993FAC9, 0xF993FACA  # of an array, with the shapes of MXNet and with those of NumPy
_HEADER = struct.calcsize("<QQQ")  # of a file, the last of which is the number of arrays
_STORAGES = range(
    3
)  # dense, of sparse rows, and CSR: each is the number of arrays of indices that it has
_BYTES = 4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2  # of each type, by MXNet's number
_updating = threading.local()


def start(n: int) -> None:
    for name, at in DEVICE_AT.items():
        if hasattr(_base._LIB, name):  # builds differ
            in_library(name)(partial(_taking, at, _GROUPS.get(name)))
    in_library("MXNDArrayGetContext")(_giving)
    in_library("MXGetGPUCount")(lambda _, count: _tell(count, n))
    in_library("MXGetGPUMemoryInformation64")(_memory)
    in_library("MXKVStoreCreate")(_without_nccl)
    for name in (mixing.OPERATOR, mixing.FUNCTION):
        in_library(name)(partial(_checked, name))
    in_place_of("mxnet.kvstore.kvstore:_updater_wrapper")(
        lambda wrap, updater: wrap(partial(_unchecked, updater))
    )
    kernels.start()
    in_library("MXGetLastError")(_in_gpus)
    _keep_in_files()
    Features()["CUDA"] = Feature(b"CUDA", True)
    in_place_of("mxnet.runtime:feature_list")(_with_cuda)
    adapter.translate(_in_text)


def _with_cuda(features: Any) -> list[Any]:
    return [Feature(b"CUDA", True) if each.name == "CUDA" else each for each in features()]


def _in_text(value: Any) -> Any:
    is_gpu = getattr(value, "device_typeid", None) == GPU
    return f"cpu({FIRST_VIRTUAL + existing(value.device_id)})" if is_gpu else value


def _number(value: Any) -> int:
    return int(getattr(value, "value", value))


def _taking(at: int, groups: int | None, function: Callable[..., int], *args: Any) -> int:
    if _number(args[at]) == GPU:
        index = existing(_number(args[at + 1]))
        args = (*args[:at], ctypes.c_int(CPU), ctypes.c_int(FIRST_VIRTUAL + index), *args[at + 2 :])
    if groups is not None:
        length, (_, types, indices) = args[groups - 1], args[groups : groups + 3]
        for k in range(_number(length) if length else 0):
            if types[k] == GPU:
                types[k], indices[k] = CPU, FIRST_VIRTUAL + existing(indices[k])
    return function(*args)


def _giving(function: Callable[..., int], handle: Any, kind: Any, index: Any) -> int:
    status = function(handle, kind, index)
    if kind._obj.value == CPU and 0 <= index._obj.value - FIRST_VIRTUAL < count("gpu"):
        kind._obj.value, index._obj.value = GPU, index._obj.value - FIRST_VIRTUAL
    return status


def _in_gpus(last_error: Callable[[], bytes]) -> bytes:
    """What the library says of ``cpu(1002)`` is about ``gpu(1)``."""

    def name(found: re.Match[bytes]) -> bytes:
        index = int(found[1]) - FIRST_VIRTUAL
        return b"gpu(%d)" % index if 0 <= index < count("gpu") else found[0]

    return re.sub(rb"\bcpu\((\d+)\)", name, last_error())


def _without_nccl(create: Callable[..., int], name: Any, out: Any) -> int:
    """A store that sums on the devices stands in for NCCL's, and says so: its type is ``device``."""
    return create(ctypes.c_char_p(b"device") if name.value == b"nccl" else name, out)


def _tell(pointer: Any, value: int) -> int:
    pointer._obj.value = value
    return 0


def _memory(_: Any, index: Any, free: Any, total: Any) -> int:
    existing(_number(index))
    page = os.sysconf("SC_PAGE_SIZE")
    return _tell(free, page * os.sysconf("SC_AVPHYS_PAGES")) or _tell(
        total, page * os.sysconf("SC_PHYS_PAGES")
    )


def _checked(call: str, function: Callable[..., int], *args: Any) -> int:
    for handles in () if getattr(_updating, "now", False) else mixing.operands(call, args):
        if len(handles) > 1:
            _check(handles, call, args)
    return function(*args)


def _check(handles: Sequence[Any], call: str, args: Any) -> None:
    places = [mixing.context_of(handle) for handle in handles]
    of_first = places[0][0] == CPU
    other = next((i for i, (kind, _) in enumerate(places) if (kind == CPU) is not of_first), None)
    if other is not None:
        name = (
            mixing.name_of(args[0].value) if call == mixing.OPERATOR else mixing.name_in(call, args)
        )
        first, second = (
            mx.Context(mx.Context.devtype2str[kind], index)
            for kind, index in (places[0], places[other])
        )
        raise mx.MXNetError(
            f"Operator {name} require all inputs live on the same context. But the first argument is on {first} while "
            f"the {other + 1}-th argument is on {second}"  # MXNet's own words
        )


def _unchecked(updater: Callable[..., None], *args: Any) -> None:
    """Let a key-value store update weights that it has on the CPU: only real GPUs' gradients bring them to a GPU."""
    _updating.now = True
    try:
        updater(*args)
    finally:
        _updating.now = False


def _keep_in_files() -> None:
    """Replace the library's functions that write and read arrays."""
    _after("MXNDArraySave", lambda name, *_: _in_file(name, ACCESS_WRITE, _name_gpus))
    _after("MXNDArraySaveRawBytes", _saved)
    _after(
        "MXNDArrayLoad",
        lambda name, _, handles, *__: _in_file(name, ACCESS_COPY, partial(_put_all, handles._obj)),
    )
    _after(
        "MXNDArrayLoadFromBuffer",
        lambda data, _, __, handles, *___: _put_all(handles._obj, getattr(data, "value", data)),
    )
    _after(
        "MXNDArrayLoadFromRawBytes",
        lambda data, _, handle: _put_all(_Handle.from_buffer(handle._obj), data, 0, 1),
    )
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
        if kind == CPU and index >= FIRST_VIRTUAL:
            struct.pack_into("<ii", data, at, GPU, index - FIRST_VIRTUAL)


def _put_all(handles: Any, data: Any, *span: int) -> None:
    for i, (_, kind, index) in enumerate(_contexts(data, *span)):
        if kind == GPU:
            handles[i] = _moved(handles[i], existing(index))


def _moved(handle: Any, index: int) -> Any:
    """The handle of a copy on a GPU; the first one is freed."""
    there: Any = _array_of(ctypes.c_void_p(handle)).copyto(mx.gpu(index))
    made = ctypes.c_void_p()
    mx.base.check_call(_base._LIB.MXShallowCopyNDArray(there.handle, ctypes.byref(made)))
    return made.value


def _contexts(
    data: Any, at: int = _HEADER, count: int | None = None
) -> Iterator[tuple[int, int, int]]:
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
