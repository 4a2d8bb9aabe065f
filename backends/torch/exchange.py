"""PyTorch tensors as NumPy arrays, and memory shared with other frameworks."""

import sys
from typing import Any, TypeAlias

import numpy.typing as npt
import torch
from torch.utils.dlpack import from_dlpack

from xdevice.backends.torch.placement import plain
from xdevice.contract import Tensor
from xdevice.errors import NotSupportedError, UnknownPlacementError, XDeviceError

Exporter: TypeAlias = Any  # an object with ``__dlpack__``


def is_array(tensor: torch.Tensor) -> bool:
    """Whether it is a plain array: not sparse, nested, or packed for a library's kernels."""
    return tensor.layout is torch.strided and not tensor.is_nested and not _is_masked(tensor)


def _is_masked(tensor: torch.Tensor) -> bool:
    # the module is imported if the program has such a tensor
    module = sys.modules.get("torch.masked.maskedtensor.core")
    return module is not None and isinstance(tensor, module.MaskedTensor)


def described(tensor: torch.Tensor) -> str:
    """What the tensor is if it is not a plain array, and what to type to make it one."""
    if tensor.is_nested:
        return "a nested tensor; take its to_padded_tensor(0.0) first"
    if _is_masked(tensor):
        return "a MaskedTensor; take its to_tensor(0.0) first"
    return f"a {str(tensor.layout).rpartition('.')[2]} tensor; take its to_dense() first"


def to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    if type(tensor) is torch.Tensor and tensor.is_cpu:
        host = tensor.detach()
        try:
            if type(host) is torch.Tensor:  # else a mode is active, and numpy() may return anything
                return host.numpy().copy("K")
        except (TypeError, RuntimeError):
            pass  # it is not a plain array
    tensor = plain(tensor)
    if not is_array(tensor):
        raise NotSupportedError(f"NumPy cannot hold {described(tensor)}")
    if tensor.is_quantized:
        raise NotSupportedError(
            f"NumPy cannot hold a {tensor.dtype} tensor; take its dequantize() or int_repr() first"
        )
    host = tensor.detach().resolve_conj().resolve_neg()
    if host.device.type == "meta":
        raise UnknownPlacementError(
            "a tensor on meta:0 has a shape and no values; make it on a real device"
        )
    try:
        return _copied_to_numpy(host)
    except XDeviceError:
        raise  # `transfer_guard` forbids the copy
    except (TypeError, NotImplementedError) as error:  # of a dtype that NumPy lacks
        hint = "convert it first, for example with .float()"
        raise NotSupportedError(
            f"NumPy cannot hold this {host.dtype} tensor ({error}); {hint}"
        ) from error
    except RuntimeError as error:  # of a subclass without memory
        hint = "give an ordinary tensor, which has values"
        raise NotSupportedError(
            f"NumPy cannot hold this {type(tensor).__name__} ({error}); {hint}"
        ) from error


def _copied_to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    if tensor.device.type == "cpu":
        array: npt.NDArray[Any] = tensor.clone().numpy()
    else:
        array = tensor.cpu().numpy()
    return array


def export(tensor: Tensor) -> tuple[Exporter, bool] | None:
    """Only plain tensors: a subclass may hold its values elsewhere."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not is_array(tensor):
        return None
    if not tensor.numel() or tensor.is_quantized or tensor.is_inference():
        return None
    if tensor.is_conj() or tensor.is_neg() or _is_expanded(tensor):
        return None
    if not _has_memory(tensor):
        return None
    return tensor.detach(), True


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor has an address.

    The zeros that forward-mode differentiation makes have none, and neither have
    the tensors that ``torch.func.vmap`` and ``grad`` pass.
    """
    try:
        return bool(tensor.data_ptr())
    except RuntimeError:
        return False


def _is_expanded(tensor: torch.Tensor) -> bool:
    """Whether several elements share memory, as after ``expand``."""
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return any(stride == 0 and size > 1 for size, stride in axes)


def adopt(exporter: Exporter, writable: bool) -> torch.Tensor | None:
    if not writable:
        return None  # PyTorch has no read-only tensors
    tensor: torch.Tensor = from_dlpack(exporter)
    return tensor
