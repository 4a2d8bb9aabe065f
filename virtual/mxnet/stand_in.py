"""MXNet programs written for GPUs, unedited: virtual GPUs answer to ``mx.gpu(i)``.

In Python a virtual GPU is ``Context('gpu', i)``; in MXNet's library it is ``cpu(1001 + i)``. One is
converted to the other in two places: in the functions of the library that accept or return a
device, which are replaced in ``mxnet.base._LIB``, and in the text that operators write for a
context.

For the library, arrays of the CPU and of a virtual GPU are both the CPU's. An operation on both is
therefore refused here, as MXNet refuses it with real GPUs. Like MXNet, this does not compare one
GPU with another.

Differs from a GPU: random numbers are the CPU's; an operator for which MXNet's CPU has no kernel,
such as ``fft`` and layers of float16, raises MXNet's error; saved arrays and pickles are loaded to
the CPU; DLPack's capsules say that they are the CPU's; memory is the host's. There is no RTC and no
cuDNN, so cuDNN's environment variables have no effect. A key-value store ``nccl`` is a ``device``
one.
"""

import ctypes
import os
import re
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mxnet as mx
from mxnet import base
from mxnet.runtime import Feature, Features

from xdevice.backends import mxnet as adapter
from xdevice.backends.mxnet import mixing
from xdevice.backends.mxnet.hardware import FIRST_VIRTUAL, count, existing
from xdevice.backends.mxnet.mixing import Arguments, Function, Handle
from xdevice.virtual.mxnet.private_names import (
    DEVICE_AT,
    CPointer,
    CValue,
    in_library,
    in_place_of,
)

CPU, GPU = 1, 2
"""MXNet's numbers for types of devices."""

_base: Any = base
_GROUPS_AT = {"MXExecutorBindEX": 4, "MXExecutorSimpleBindEx": 4, "MXExecutorSimpleBindEx64": 4}
"""The index of the argument with the names of ``group2ctx``.

The length of the names precedes it, and their types and indices follow.
"""


class _Update(threading.local):
    """Whether this thread runs an updater of a key-value store."""

    is_running = False


_update = _Update()


def start(number: int) -> None:
    """Let the virtual GPUs stand in; ``number`` is how many there are."""
    _convert_devices(number)
    for name in (mixing.OPERATOR, mixing.FUNCTION):
        in_library(name)(partial(_check_contexts, name))
    in_place_of("mxnet.kvstore.kvstore:_updater_wrapper")(_wrap_updater)
    in_library("MXKVStoreCreate")(_create_store)
    Features()["CUDA"] = Feature(b"CUDA", True)
    in_place_of("mxnet.runtime:feature_list")(_features)


def _convert_devices(number: int) -> None:
    """Replace the functions that accept or return a device.

    ``gpu(i)`` in Python is ``cpu(1001 + i)`` in the library.
    """
    for name, index in DEVICE_AT.items():
        if hasattr(_base._LIB, name):  # builds differ
            in_library(name)(partial(_call_with_device, index, _GROUPS_AT.get(name)))
    in_library("MXNDArrayGetContext")(_get_context)
    in_library("MXGetGPUCount")(lambda _, pointer: _return(pointer, number))
    in_library("MXGetGPUMemoryInformation64")(_memory_of_host)
    in_library("MXGetLastError")(_last_error)
    adapter.translate(_context_in_text)


def _features(native: Function) -> list[Feature]:
    cuda = Feature(b"CUDA", True)
    return [cuda if feature.name == "CUDA" else feature for feature in native()]


def _context_in_text(value: Any) -> object:
    """The text of a context in the arguments of an operator; other values are returned as they are."""
    if getattr(value, "device_typeid", None) != GPU:
        return value
    return f"cpu({FIRST_VIRTUAL + existing(value.device_id)})"


def _as_int(value: CValue) -> int:
    """The number in an argument, which is one of ctypes' integers or one of Python's."""
    number: Any = getattr(value, "value", value)
    return int(number)


def _call_with_device(
    device_at: int, groups_at: int | None, native: Callable[..., int], *args: CValue
) -> int:
    if _as_int(args[device_at]) == GPU:
        index = FIRST_VIRTUAL + existing(_as_int(args[device_at + 1]))
        device = ctypes.c_int(CPU), ctypes.c_int(index)
        args = (*args[:device_at], *device, *args[device_at + 2 :])
    if groups_at is not None:
        length, _, types, indices = args[groups_at - 1 : groups_at + 3]
        _convert_groups(_as_int(length) if length else 0, types, indices)
    return native(*args)


def _convert_groups(number: int, types: CValue, indices: CValue) -> None:
    """Convert the devices of ``group2ctx`` in place, from Python's to the library's."""
    for i in range(number):
        if types[i] == GPU:
            types[i] = CPU
            indices[i] = FIRST_VIRTUAL + existing(indices[i])


def _get_context(
    native: Callable[..., int], handle: Handle, device_type: CPointer, index: CPointer
) -> int:
    status = native(handle, device_type, index)
    gpu_index = index._obj.value - FIRST_VIRTUAL
    if device_type._obj.value == CPU and 0 <= gpu_index < count("gpu"):
        device_type._obj.value = GPU
        index._obj.value = gpu_index
    return status


def _memory_of_host(_: Function, index: CValue, free: CPointer, total: CPointer) -> int:
    existing(_as_int(index))  # raises an error where this GPU does not exist
    page = os.sysconf("SC_PAGE_SIZE")
    free._obj.value = page * os.sysconf("SC_AVPHYS_PAGES")
    total._obj.value = page * os.sysconf("SC_PHYS_PAGES")
    return 0


def _last_error(native: Callable[[], bytes]) -> bytes:
    """The library's message, with ``gpu(1)`` in place of ``cpu(1002)``."""

    def gpu_name(match: re.Match[bytes]) -> bytes:
        index = int(match[1]) - FIRST_VIRTUAL
        return b"gpu(%d)" % index if 0 <= index < count("gpu") else match[0]

    return re.sub(rb"\bcpu\((\d+)\)", gpu_name, native())


def _create_store(native: Callable[..., int], name: CValue, out: CPointer) -> int:
    """A ``device`` store, which sums on the devices, in place of one that uses NCCL."""
    if name.value == b"nccl":
        name = ctypes.c_char_p(b"device")
    return native(name, out)


def _return(pointer: CPointer, value: int) -> int:
    """Write a result of a function of the library, and return the status of success."""
    pointer._obj.value = value
    return 0


def _check_contexts(call: str, native: Callable[..., int], *args: CValue) -> int:
    if not _update.is_running:
        for handles in mixing.operands(call, args):
            _check_operands(handles, call, args)
    return native(*args)


def _check_operands(handles: Sequence[Handle], call: str, args: Arguments) -> None:
    """Raise MXNet's error if some operands are on the CPU, and others on GPUs."""
    if len(handles) < 2:
        return
    contexts = [mixing.context_of(handle) for handle in handles]
    is_cpu = [device_type == CPU for device_type, _ in contexts]
    if len(set(is_cpu)) == 1:
        return
    other = is_cpu.index(not is_cpu[0])
    if call == mixing.OPERATOR:
        name = mixing.name_of(args[0].value)
    else:
        name = mixing.name_in(call, args)
    first_context, other_context = _as_context(*contexts[0]), _as_context(*contexts[other])
    raise mx.MXNetError(  # MXNet's own message
        f"Operator {name} require all inputs live on the same context. But the first argument is on "
        f"{first_context} while the {other + 1}-th argument is on {other_context}"
    )


def _as_context(device_type: int, index: int) -> mx.Context:
    return mx.Context(mx.Context.devtype2str[device_type], index)


def _wrap_updater(native: Function, updater: Callable[..., None]) -> Function:
    """Let a key-value store update weights that are on the CPU with gradients of GPUs.

    With real GPUs the store moves the weights to the GPU of the first gradient.
    """

    def run(*args: object) -> None:
        _update.is_running = True
        try:
            updater(*args)
        finally:
            _update.is_running = False

    wrapped: Function = native(run)
    return wrapped
