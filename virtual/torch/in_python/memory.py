"""The memory of virtual GPUs: host memory with another device label.

DLPack carries a tensor's address together with its device. A capsule whose device is edited comes
back as a tensor over the same memory on that device: DLPack's number 12, "extension device", is
torch's PrivateUse1. The capsule keeps its source alive, so memory is freed with the last of both.

The memory that each virtual GPU holds is counted by live storages. torch keeps the Python object of
a storage as long as the storage lives, so the callback of a weak reference runs when the memory is
freed, in any thread.
"""

import ctypes
import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, NoReturn
from weakref import finalize

import torch

from xdevice import units
from xdevice.virtual.torch import copies
from xdevice.virtual.torch.private_names import aten, core, kernels_of, overload_of, storage_of
from xdevice.virtual.torch.runtime import NAME, in_use, index_of

Tensor = torch.Tensor

_CPU, _EXTENSION = 1, 12  # DLPack's numbers for devices
_DEVICE_OFFSET = 8  # of the device in a DLPack capsule: behind the address

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_two_int32_at = (ctypes.c_int32 * 2).from_address

ON_CPU = core.DispatchKeySet(core.DispatchKey.CPU)
"""Dispatches operations on sizes and strides to the CPU's kernels, which do not read the memory."""

watching = False  # whether `copies.report_copies` is called before a copy


def to_virtual(host: Tensor, index: int) -> Tensor:
    """A tensor on a virtual GPU in the memory of a CPU tensor that nothing else uses."""
    if in_use().is_forked():
        raise RuntimeError(
            "Cannot use virtual GPUs in a forked process, as CUDA cannot be used there; "
            "use the 'spawn' start method, or give workers tensors on the CPU"
        )
    tensor = _relabelled(host, _EXTENSION, index)
    _count(tensor, index)
    return tensor


def to_host(tensor: Tensor) -> Tensor:
    """The virtual tensor's memory as a CPU tensor, without lazy conjugation and negation."""
    return _relabelled(tensor, _CPU, 0)


def _relabelled(tensor: Tensor, device_type: int, index: int) -> Tensor:
    capsule = core._to_dlpack(tensor)
    device = _two_int32_at(_capsule_pointer(capsule, b"dltensor") + _DEVICE_OFFSET)
    device[:] = [device_type, index]
    relabelled: Tensor = core._from_dlpack(capsule)
    return relabelled


def lazy_like(host: Tensor, tensor: Tensor) -> Tensor:
    """The host tensor with the lazy conjugation and negation of the virtual tensor."""
    if tensor.is_conj():
        host = host.conj()
    return host._neg_view() if tensor.is_neg() else host


def place(
    tensor: Tensor, storage: Any, offset: Any, size: Sequence[int], strides: Sequence[int]
) -> Tensor:
    overload = aten.set_.source_Storage_storage_offset
    changed: Tensor = overload.redispatch(ON_CPU, tensor, storage, offset, size, strides)
    return changed


def _empty(create: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def empty(
        *sizes: Any,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: Any = None,
        **options: Any,
    ) -> Tensor:
        if layout not in (None, torch.strided):
            raise NotImplementedError(
                f"{layout} tensors on virtual GPUs need a C++ compiler; "
                "make it on the CPU, or apt install g++"
            )
        if pin_memory:
            raise RuntimeError("Only dense CPU tensors can be pinned")
        index = index_of(device)
        try:
            dtype = dtype or torch.get_default_dtype()
            host = create(*sizes, dtype=dtype, device="cpu", **options)
        except RuntimeError as error:
            check_host(error, index)
            raise
        return to_virtual(host, index)

    return empty


def _resize(
    tensor: Tensor, size: Sequence[int], memory_format: torch.memory_format | None = None
) -> Tensor:
    """Resize and keep the order of values in memory; memory from DLPack is replaced to grow."""
    strides = torch.empty(
        size, device="meta", memory_format=memory_format or torch.contiguous_format
    ).stride()
    needed = (math.prod(size) + tensor.storage_offset()) * tensor.element_size()
    storage = storage_of(tensor)
    if math.prod(size) and needed > storage.nbytes():
        check_unshared(tensor)
        grown = torch.empty(needed, dtype=torch.uint8, device="cpu")
        grown[: storage.nbytes()] = whole(tensor)
        storage = storage_of(to_virtual(grown, tensor.device.index))
    return place(tensor, storage, tensor.storage_offset(), size, strides)


def whole(tensor: Tensor) -> Tensor:
    """A CPU tensor over all bytes of the virtual tensor's storage."""
    storage = storage_of(tensor)
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return to_host(place(view, storage, 0, (storage.nbytes(),), (1,)))


def check_unshared(tensor: Tensor) -> None:
    """Raise if other tensors share the memory to be replaced: they would keep the old memory."""
    storage = storage_of(tensor)
    # the tensor and the variable above refer to the storage
    if storage.nbytes() and core._storage_Use_Count(storage._cdata) > 2:
        raise RuntimeError(
            "memory of a virtual GPU that several tensors share cannot grow; "
            "resize before taking views of it"
        )


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    if watching:
        copies.report_copies("aten::copy_", [target, source], non_blocking)
    _readable(target).copy_(_readable(source))
    return target


def _to_copy(
    tensor: Tensor, *, pin_memory: Any = None, non_blocking: Any = False, **options: Any
) -> Tensor:
    """Like torch's, without pinned memory, which torch uses for non-blocking copies to the host."""
    return torch.empty_like(tensor, **options).copy_(tensor, non_blocking)


def _readable(tensor: Tensor) -> Tensor:
    if tensor.device.type != NAME:
        return tensor
    return lazy_like(to_host(tensor), tensor)


# Operations on sizes and strides. torch composes all other views from these.
_VIEWS = """
    as_strided view _reshape_alias unfold view_as_real view_as_complex is_set_to
    set_ set_.source_Tensor set_.source_Storage set_.source_Storage_storage_offset
"""


def kernels() -> dict[tuple[str, str], Callable[..., Any]]:
    by_name: dict[str, Callable[..., Any]] = {
        "empty.memory_format": _empty(torch.empty),
        "empty_strided": _empty(torch.empty_strided),
        # torch's zero tensors have no memory, and only torch's kernels can read them
        "_efficientzerotensor": _empty(torch.zeros),
        "resize_": _resize,
        "record_stream": lambda tensor, stream: None,
        "_copy_from": _copy,
        "_to_copy": _to_copy,
        **{name: partial(overload_of(name).redispatch, ON_CPU) for name in _VIEWS.split()},
    }
    by_key = {(name, "PrivateUse1"): kernel for name, kernel in by_name.items()}
    # `_copy` resolves conjugation and negation, which torch would resolve again
    for key in ("Conjugate", "Negative"):
        by_key["_copy_from", key] = torch.library.fallthrough_kernel
    return by_key


def register_for_python() -> None:
    """Register the plug-in's operations ``host`` and ``take``, which share a tensor's memory."""
    library = kernels_of("xdevice_virtual", "DEF")
    for schema, function in (
        ("host(Tensor x) -> Tensor", to_host),
        ("take(Tensor host, int index) -> Tensor", to_virtual),
    ):
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")


_allocated: dict[int, int] = defaultdict(int)  # bytes, by device
_peak: dict[int, int] = defaultdict(int)
_lock = Lock()

_freed: deque[tuple[int, int]] = deque()
"""The devices and sizes of freed storages.

They are queued, since memory may be freed at any moment, even while this thread holds the lock.
"""


def _count(tensor: Tensor, index: int) -> None:
    """Count the tensor's storage as allocated until it is freed."""
    in_use().use(True)
    storage = tensor.untyped_storage()
    nbytes = storage.nbytes()
    with _lock:
        _subtract_freed()
        if in_use().limited and _allocated[index] + nbytes > in_use().capacity:
            _out_of_memory(index, nbytes)
        finalize(storage, _freed.append, (index, nbytes)).atexit = False
        _allocated[index] += nbytes
        _peak[index] = max(_peak[index], _allocated[index])


def _out_of_memory(index: int, nbytes: int) -> NoReturn:
    capacity = in_use().capacity
    free = max(capacity - _allocated[index], 0)
    raise torch.OutOfMemoryError(
        f"{NAME} out of memory. Tried to allocate {units.size(nbytes)}. GPU {index} has a total "
        f"capacity of {units.size(capacity)} of which {units.size(free)} is free. It is virtual, "
        f"in the host's memory, and {units.size(_allocated[index])} are allocated by PyTorch"
    )


def check_host(error: RuntimeError, index: int) -> None:
    """Raise `torch.OutOfMemoryError` if the error says that the host has no memory left."""
    match = re.search(r"can't allocate memory: you tried to allocate (\d+)", str(error))
    if match:
        _out_of_memory(index, int(match[1]))


def _subtract_freed() -> None:
    while _freed:
        index, nbytes = _freed.popleft()
        _allocated[index] -= nbytes


def allocated(index: int) -> int:
    with _lock:
        _subtract_freed()
        return _allocated[index]


def peak(index: int) -> int:
    with _lock:
        return _peak[index]


def reset_peak(index: int) -> None:
    with _lock:
        _subtract_freed()
        _peak[index] = _allocated[index]


def forget() -> None:
    with _lock:
        _subtract_freed()
        _peak.clear()
        _peak.update(_allocated)
