"""Splitting, packing and reducing PyTorch tensors."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

import torch

from xdevice.backends.torch.exchange import described, is_array
from xdevice.backends.torch.hardware import gpus
from xdevice.backends.torch.placement import plain
from xdevice.contract import Tensor
from xdevice.errors import ArgumentTypeError, NotSupportedError

_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_PACKABLE = {*_FLOATS, *_SIGNED, torch.bool, torch.uint8}
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_KINDS = {
    torch.bool: "b",
    **dict.fromkeys(_SIGNED, "i"),
    # older versions of torch have only some of these
    **{getattr(torch, name): "u" for name in _UNSIGNED if hasattr(torch, name)},
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
    if dtype.is_floating_point:
        return "f"
    if dtype.is_complex:
        return "c"
    return _KINDS.get(dtype, "O")


def split(tensor: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
    tensor = plain(tensor)
    if not is_array(tensor):
        raise NotSupportedError(f"torch cannot split {described(tensor)}")
    return list(torch.split(tensor.detach(), list(sizes)))


def leaf(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, torch.Tensor):
        return tensor  # a Keras variable knows whether it is trained
    with torch.inference_mode(False):
        # an inference tensor can have no gradient, and its clone can
        source = tensor.clone() if tensor.is_inference() else tensor
        takes_gradients = source.is_floating_point() or source.is_complex()
        return source.detach().requires_grad_(takes_gradients)


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([_dense(plain(tensor)).reshape(-1) for tensor in tensors])


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, converted if it is sparse, as the gradient of an embedding may be."""
    if tensor.layout is torch.strided:
        return tensor
    return tensor.to_dense()


def is_packable(tensor: torch.Tensor, nbytes: int) -> bool:
    if type(tensor) is not torch.Tensor or not is_array(tensor) or tensor.requires_grad:
        return False
    if tensor.dtype not in _PACKABLE or tensor.is_conj() or tensor.is_neg():
        return False
    size = tensor.numel() * tensor.element_size()
    return tensor.is_contiguous() and 0 < size <= nbytes


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
    if op != "sum":
        select = torch.maximum if op == "max" else torch.minimum
        return functools.reduce(select, vectors[1:], vectors[0].clone())
    if weights is None:
        total = vectors[0].clone()
        weights = [1] * len(vectors)
    else:
        total = vectors[0] * weights[0]
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        total.add_(vector, alpha=weight)
    return total


def threads() -> Callable[[], AbstractContextManager[object]] | None:
    """A context for other threads with this thread's autocast settings, which are per thread."""
    enabled_types = filter(torch.is_autocast_enabled, {"cpu", gpus()[0]})
    dtypes = {device_type: torch.get_autocast_dtype(device_type) for device_type in enabled_types}
    has_cache = torch.is_autocast_cache_enabled()

    def same_autocast() -> AbstractContextManager[object]:
        stack = ExitStack()
        for device_type, dtype in dtypes.items():
            stack.enter_context(torch.autocast(device_type, dtype, cache_enabled=has_cache))
        return stack

    return same_autocast
