"""MXNet programs written for GPUs, unedited: virtual GPUs answer to ``mx.gpu(i)``.

To Python a virtual GPU is ``Context('gpu', i)`` in every respect; to MXNet's library it is ``cpu(1001 + i)``. The
border between the two is crossed in few places, and only there is one put for the other: the functions of the library
that take or give a device, which are replaced on ``mxnet.base._LIB``, and the text that operators make of a context.

Differs from a GPU: DLPack copies; page-locked memory is the host's. There is no RTC and no cuDNN, whose environment
variables do nothing, and a key-value store that is asked for as ``nccl`` is a ``device`` one.
"""

import ctypes
import os
import re
from collections.abc import Callable
from typing import Any

import mxnet as mx
from mxnet.runtime import Feature, Features

from xdevice.backends.mxnet import private_names, text
from xdevice.backends.mxnet.hardware import FIRST_VIRTUAL
from xdevice.backends.mxnet.virtual import files, kernels, mixing

CPU, GPU = 1, 2  # MXNet's numbers for types of devices

_GROUPS = {"MXExecutorBindEX": 4, "MXExecutorSimpleBindEx": 4, "MXExecutorSimpleBindEx64": 4}
"""Where the lists of types and indices that ``group2ctx`` gives begin, behind their length and names."""


def start(n: int) -> None:
    """Let n virtual GPUs stand in."""
    library: Any = mx.base._LIB  # pyright: ignore[reportPrivateUsage]  # all calls go through it
    for name, at in private_names.DEVICE_AT.items():
        if hasattr(library, name):  # builds differ
            setattr(library, name, _taking(getattr(library, name), at, _GROUPS.get(name), n))
    library.MXNDArrayGetContext = _giving(library.MXNDArrayGetContext, n)
    library.MXGetGPUCount = lambda count: _tell(count, n)
    library.MXGetGPUMemoryInformation64 = lambda index, free, total: _memory(_checked(_number(index), n), free, total)
    library.MXKVStoreCreate = _without_nccl(library.MXKVStoreCreate)
    mixing.start(library)
    kernels.start()
    library.MXGetLastError = _in_gpus(library.MXGetLastError, n)
    files.start(library, lambda index: _checked(index, n))
    Features()["CUDA"] = Feature(b"CUDA", True)
    text.translate(lambda value: _in_text(value, n))


def _in_text(value: Any, n: int) -> Any:
    if getattr(value, "device_typeid", None) != GPU:
        return value
    return f"cpu({FIRST_VIRTUAL + _checked(value.device_id, n)})"


def _checked(index: int, n: int) -> int:
    if not 0 <= index < n:
        raise mx.MXNetError(f"invalid device ordinal {index}: there are {n} virtual GPUs")
    return index


def _number(value: Any) -> int:
    return int(getattr(value, "value", value))


def _taking(function: Callable[..., int], at: int, groups: int | None, n: int) -> Callable[..., int]:
    def call(*args: Any) -> int:
        if _number(args[at]) == GPU:
            index = _checked(_number(args[at + 1]), n)
            args = (*args[:at], ctypes.c_int(CPU), ctypes.c_int(FIRST_VIRTUAL + index), *args[at + 2 :])
        if groups is not None:
            length, (_, types, indices) = args[groups - 1], args[groups : groups + 3]
            for k in range(_number(length) if length else 0):
                if types[k] == GPU:
                    types[k], indices[k] = CPU, FIRST_VIRTUAL + _checked(indices[k], n)
        return function(*args)

    return call


def _giving(function: Callable[..., int], n: int) -> Callable[..., int]:
    def call(handle: Any, kind: Any, index: Any) -> int:
        status = function(handle, kind, index)
        if kind._obj.value == CPU and 0 <= index._obj.value - FIRST_VIRTUAL < n:
            kind._obj.value, index._obj.value = GPU, index._obj.value - FIRST_VIRTUAL
        return status

    return call


def _in_gpus(last_error: Callable[[], bytes], n: int) -> Callable[[], bytes]:
    """What the library says of ``cpu(1002)`` is about ``gpu(1)``."""

    def name(found: re.Match[bytes]) -> bytes:
        index = int(found[1]) - FIRST_VIRTUAL
        return b"gpu(%d)" % index if 0 <= index < n else found[0]

    return lambda: re.sub(rb"\bcpu\((\d+)\)", name, last_error())


def _without_nccl(create: Callable[..., int]) -> Callable[..., int]:
    """A store that sums on the devices stands in for NCCL's, and says so: its type is ``device``."""

    def call(name: Any, out: Any) -> int:
        return create(ctypes.c_char_p(b"device") if name.value == b"nccl" else name, out)

    return call


def _tell(pointer: Any, value: int) -> int:
    pointer._obj.value = value
    return 0


def _memory(index: Any, free: Any, total: Any) -> int:
    page = os.sysconf("SC_PAGE_SIZE")
    return _tell(free, page * os.sysconf("SC_AVPHYS_PAGES")) or _tell(total, page * os.sysconf("SC_PHYS_PAGES"))
