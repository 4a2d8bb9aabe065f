"""PyTorch's functions under the array API standard's names, by array-api-compat."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeAlias

import array_api_compat.torch as xp
import array_api_compat.torch.fft as xp_fft
import array_api_compat.torch.linalg as xp_linalg
import torch

from xdevice.backends.kit.standard.dtypes import FloatInfo, IntInfo
from xdevice.backends.kit.standard.sets import UniqueAll
from xdevice.backends.torch.creation import rounded
from xdevice.contract import Extension, Tensor
from xdevice.errors import ArgumentError

Operand: TypeAlias = Any  # a tensor or a number
Number: TypeAlias = Any  # of Python or NumPy

linalg = Extension(lambda: vars(xp_linalg), torch.linalg)
fft = Extension(lambda: vars(xp_fft), torch.fft)


def namespace() -> Mapping[str, object]:
    return vars(xp) | {
        "broadcast_shapes": _broadcast_shapes,
        "clip": _clip,
        "finfo": _finfo,
        "full_like": _full_like,
        "iinfo": _iinfo,
        "repeat": _repeat,
        "result_type": _result_type,
        "take": _take,
        "take_along_axis": _take_along_axis,
        "unique_all": _unique_all,
        "where": _where,
    }


def module() -> ModuleType:
    return torch


def _broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        # torch has no annotations for it
        return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        shown = " and ".join(str(tuple(shape)) for shape in shapes)
        raise ArgumentError(
            f"the shapes {shown} do not broadcast; sizes along an axis must be equal, or 1"
        ) from error


def _finfo(type: Operand | torch.dtype, /) -> FloatInfo:
    info = torch.finfo(_dtype_of(type))
    dtype = getattr(torch, info.dtype)  # torch 2.13 has only its name
    return FloatInfo(info.bits, info.eps, info.max, info.min, info.smallest_normal, dtype)


def _iinfo(type: Operand | torch.dtype, /) -> IntInfo:
    info = torch.iinfo(_dtype_of(type))
    return IntInfo(info.bits, info.max, info.min, getattr(torch, info.dtype))


def _dtype_of(type: Operand | torch.dtype) -> torch.dtype:
    dtype: torch.dtype = getattr(type, "dtype", type)
    return dtype


def _clip(x: torch.Tensor, /, min: Operand = None, max: Operand = None) -> Tensor:
    return xp.clip(x, rounded(min, x.dtype), rounded(max, x.dtype))


def _full_like(
    x: torch.Tensor, /, fill_value: Number, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return torch.full_like(x, rounded(fill_value, dtype or x.dtype), dtype=dtype)


def _where(condition: torch.Tensor, x1: Operand, x2: Operand, /) -> Tensor:
    if type(x1) is float and isinstance(x2, torch.Tensor):
        x1 = rounded(x1, x2.dtype)
    elif type(x2) is float and isinstance(x1, torch.Tensor):
        x2 = rounded(x2, x1.dtype)
    return xp.where(condition, x1, x2)


def _result_type(*arrays_and_dtypes: Operand | torch.dtype) -> torch.dtype:
    """The dtype; only the kind of a number of Python counts.

    torch 2.13 raises for integers beyond 64 bits, so 0 takes the place of each.
    """
    dtype: torch.dtype = xp.result_type(*(0 if type(x) is int else x for x in arrays_and_dtypes))
    return dtype


def _take(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int | None = None) -> Tensor:
    if indices.dtype not in (torch.int32, torch.int64):  # torch 2.13 takes no others
        indices = indices.long()
    return xp.take(x, indices, axis=axis)


def _repeat(x: torch.Tensor, repeats: int | torch.Tensor, /, *, axis: int | None = None) -> Tensor:
    if isinstance(repeats, torch.Tensor):
        repeats = repeats.long()
    return xp.repeat(x, repeats, axis=axis)


def _take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    return torch.take_along_dim(x, indices.long(), axis)  # torch 2.13 takes no other integers


def _unique_all(x: torch.Tensor, /) -> UniqueAll:
    # array-api-compat 1.16 has no such function, since torch.unique does not return
    # the index of each value's first occurrence (pytorch/pytorch#36748)
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    all_indices = torch.arange(x.numel(), device=x.device)
    beyond_the_last = all_indices.new_full(values.shape, x.numel())
    indices = beyond_the_last.scatter_reduce(0, inverse.flatten(), all_indices, "amin")
    return UniqueAll(values, indices, inverse, counts)
