"""Splitting, packing and reducing PyTorch tensors."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch

from xdevice.backends.torch.exchange import described, is_array
from xdevice.backends.torch.hardware import gpus
from xdevice.backends.torch.placement import plain
from xdevice.errors import ArgumentTypeError, NotSupportedError

_UNSIGNED = tuple(
    getattr(torch, f"uint{bits}") for bits in (8, 16, 32, 64) if hasattr(torch, f"uint{bits}")
)
_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_USUAL = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
    torch.uint8,
    *_SIGNED,
}


def kind(tensor: torch.Tensor) -> str:
    tensor = plain(tensor)
    dtype = tensor.dtype
    if not is_array(tensor):
        raise ArgumentTypeError(f"a plain array is needed, and this is {described(tensor)}")
    if tensor.is_quantized:
        raise ArgumentTypeError(
            f"a plain array is needed, and this is of {dtype}; take its dequantize() first"
        )
    if dtype.is_floating_point or dtype.is_complex:
        return "f" if dtype.is_floating_point else "c"
    return (
        "b"
        if dtype is torch.bool
        else "u"
        if dtype in _UNSIGNED
        else "i"
        if dtype in _SIGNED
        else "O"
    )


def split(tensor: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
    tensor = plain(tensor)
    if not is_array(tensor):
        raise NotSupportedError(f"torch cannot split {described(tensor)}")
    return list(torch.split(tensor.detach(), list(sizes)))


def leaf(tensor: Any) -> Any:
    with torch.inference_mode(False):
        if not isinstance(tensor, torch.Tensor):
            return tensor  # a Keras variable knows whether it is trained
        own = tensor.clone() if tensor.is_inference() else tensor
        return own.detach().requires_grad_(own.is_floating_point() or own.is_complex())


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        flat = map(plain, tensors)  # the gradient of an embedding may be sparse
        return torch.cat(
            [(x if x.layout is torch.strided else x.to_dense()).reshape(-1) for x in flat]
        )


def is_packable(tensor: torch.Tensor, nbytes: int) -> bool:
    if type(tensor) is not torch.Tensor or not is_array(tensor) or tensor.requires_grad:
        return False
    is_usual = (
        tensor.dtype in _USUAL
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
    return is_usual and 0 < tensor.numel() * tensor.element_size() <= nbytes


def unpack(vector: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    parts = torch.split(vector, [plain(tensor).numel() for tensor in like])
    return [part.clone().view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def reduce(
    vectors: Sequence[torch.Tensor], op: str, weights: Sequence[float] | None
) -> torch.Tensor:
    if vectors[0].is_floating_point() and vectors[0].element_size() == 1:
        raise NotSupportedError(
            f"torch does not compute with {vectors[0].dtype}; convert it to float32 first"
        )
    found = vectors[0].clone() if weights is None else vectors[0] * weights[0]
    for i, vector in enumerate(vectors[1:], 1):
        if op == "sum":
            found.add_(vector) if weights is None else found.add_(vector, alpha=weights[i])
        else:
            found = torch.maximum(found, vector) if op == "max" else torch.minimum(found, vector)
    return found


def threads() -> Callable[[], AbstractContextManager[Any]] | None:
    """A context for other threads with this thread's autocast settings, which are per thread."""
    casts = [
        (kind, torch.get_autocast_dtype(kind))
        for kind in {"cpu", gpus()[0]}
        if torch.is_autocast_enabled(kind)
    ]
    cached = torch.is_autocast_cache_enabled()

    def entered() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for kind, dtype in casts:
            stack.enter_context(torch.autocast(kind, dtype, cache_enabled=cached))
        return stack

    return entered
