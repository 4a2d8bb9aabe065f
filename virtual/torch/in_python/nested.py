"""Strided nested tensors of virtual GPUs: their sizes and strides stay on the host.

They cannot be refused: torch creates them itself, and autograd reads their sizes in a C++ function
that is noexcept, in which an exception of a kernel would abort the process.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

from xdevice.virtual.torch.in_python import memory
from xdevice.virtual.torch.private_names import core, overload_of

Tensor = torch.Tensor

KEY = "NestedTensorPrivateUse1"
_ON_HOST = core.DispatchKeySet(core.DispatchKey.NestedTensorCPU)
_SIZES = "_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets"
# Operations on sizes and strides, or for any device: torch's kernels accept virtual tensors.
_FOR_ANY_DEVICE = (
    *_SIZES,
    "values",
    "unbind.int",
    "_to_copy",
    "empty_like",
    "is_pinned",
    "_pin_memory",
)

_FROM_DENSE = "_nested_view_from_buffer", "_nested_from_padded"


@cache
def _for_any(name: str) -> Callable[..., Any]:
    """The kernel for nested tensors on the CPU, for ones on a virtual GPU."""
    return partial(overload_of(name).redispatch, _ON_HOST)


def to_host(nested: Tensor) -> Tensor:
    """The virtual tensor's memory as a nested CPU tensor."""
    return _over(memory.to_host(_for_any("values")(nested)), nested)


def to_virtual(nested: Tensor, index: int) -> Tensor:
    """A nested tensor on a virtual GPU in the memory of one on the CPU that nothing else uses."""
    return _over(memory.to_virtual(_for_any("values")(nested), index), nested)


def _over(numbers: Tensor, nested: Tensor) -> Tensor:
    """A nested tensor over these numbers, with the sizes and strides of another."""
    sizes = (_for_any(name)(nested) for name in _SIZES)
    view = overload_of("_nested_view_from_buffer")
    result: Tensor = view.redispatch(memory.ON_CPU, numbers, *sizes)
    return result


def kernels() -> dict[tuple[str, str], Callable[..., Any]]:
    from_dense = {
        (name, "PrivateUse1"): partial(overload_of(name).redispatch, memory.ON_CPU)
        for name in _FROM_DENSE
    }
    return from_dense | {(name, KEY): _for_any(name) for name in _FOR_ANY_DEVICE}
