"""PyTorch's functions under the array API standard's names, by array-api-compat."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import array_api_compat.torch as xp
import array_api_compat.torch.fft as xp_fft
import array_api_compat.torch.linalg as xp_linalg
import torch

from xdevice.backends.torch.creation import rounded
from xdevice.contract import Extension
from xdevice.kit.standard.sets import UniqueAll

linalg = Extension(lambda: vars(xp_linalg), torch.linalg)
fft = Extension(lambda: vars(xp_fft), torch.fft)


def namespace() -> Mapping[str, Any]:
    return vars(xp) | {
        "clip": _clip,
        "full_like": _full_like,
        "repeat": _repeat,
        "result_type": _result_type,
        "take": _take,
        "take_along_axis": _take_along_axis,
        "unique_all": _unique_all,
        "where": _where,
    }


def module() -> ModuleType:
    return torch


def _clip(x: torch.Tensor, /, min: Any = None, max: Any = None) -> torch.Tensor:
    return xp.clip(x, rounded(min, x.dtype), rounded(max, x.dtype))


def _full_like(x: torch.Tensor, /, fill_value: Any, *, dtype: Any = None) -> torch.Tensor:
    return torch.full_like(x, rounded(fill_value, dtype or x.dtype), dtype=dtype)


def _where(condition: torch.Tensor, x1: Any, x2: Any, /) -> torch.Tensor:
    if type(x1) is float and isinstance(x2, torch.Tensor):
        x1 = rounded(x1, x2.dtype)
    elif type(x2) is float and isinstance(x1, torch.Tensor):
        x2 = rounded(x2, x1.dtype)
    return xp.where(condition, x1, x2)


def _result_type(*arrays_and_dtypes: Any) -> torch.dtype:
    """The dtype; torch 2.13 refuses integers beyond 64 bits, though only their kind counts."""
    return xp.result_type(*(0 if type(x) is int else x for x in arrays_and_dtypes))


def _take(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int | None = None) -> Any:
    narrow = indices.dtype not in (torch.int32, torch.int64)  # torch 2.13 takes no others
    return xp.take(x, indices.long() if narrow else indices, axis=axis)


def _repeat(x: torch.Tensor, repeats: int | torch.Tensor, /, *, axis: int | None = None) -> Any:
    return xp.repeat(x, repeats.long() if isinstance(repeats, torch.Tensor) else repeats, axis=axis)


def _take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    return torch.take_along_dim(x, indices.long(), axis)  # torch 2.13 takes no other integers


def _unique_all(x: torch.Tensor, /) -> UniqueAll:
    # array-api-compat 1.16 has none, since torch.unique does not tell the first places
    # (pytorch/pytorch#36748)
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    places = torch.arange(x.numel(), device=x.device)
    first = places.new_full(values.shape, x.numel()).scatter_reduce(
        0, inverse.flatten(), places, "amin"
    )
    return UniqueAll(values, first, inverse, counts)
