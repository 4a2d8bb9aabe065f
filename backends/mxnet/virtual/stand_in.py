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
from functools import partial
from typing import Any

import mxnet as mx
from mxnet.runtime import Feature, Features

from xdevice.backends.mxnet import private_names, text
from xdevice.backends.mxnet.hardware import FIRST_VIRTUAL, count, existing
from xdevice.backends.mxnet.private_names import in_library
from xdevice.backends.mxnet.virtual import files, kernels, mixing

CPU, GPU = 1, 2  # MXNet's numbers for types of devices

_GROUPS = {"MXExecutorBindEX": 4, "MXExecutorSimpleBindEx": 4, "MXExecutorSimpleBindEx64": 4}
"""Where the lists of types and indices that ``group2ctx`` gives begin, behind their length and names."""


def start(n: int) -> None:
    """Let n virtual GPUs stand in."""
    library: Any = mx.base._LIB  # pyright: ignore[reportPrivateUsage]  # all calls go through it
    for name, at in private_names.DEVICE_AT.items():
        if hasattr(library, name):  # builds differ
            in_library(name)(partial(_taking, at, _GROUPS.get(name)))
    in_library("MXNDArrayGetContext")(_giving)
    in_library("MXGetGPUCount")(lambda _, count: _tell(count, n))
    in_library("MXGetGPUMemoryInformation64")(_memory)
    in_library("MXKVStoreCreate")(_without_nccl)
    mixing.start()
    kernels.start()
    in_library("MXGetLastError")(_in_gpus)
    files.start(library)
    Features()["CUDA"] = Feature(b"CUDA", True)
    text.translate(_in_text)


def _in_text(value: Any) -> Any:
    if getattr(value, "device_typeid", None) != GPU:
        return value
    return f"cpu({FIRST_VIRTUAL + existing(value.device_id)})"


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
    return _tell(free, page * os.sysconf("SC_AVPHYS_PAGES")) or _tell(total, page * os.sysconf("SC_PHYS_PAGES"))
