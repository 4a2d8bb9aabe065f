"""PyTorch's functions under the array API standard's names, by array-api-compat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat.torch as xp
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def namespace() -> Mapping[str, Any]:
    return {**vars(xp), "take_along_axis": _take_along_axis}


def _take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    return torch.take_along_dim(x, indices.long(), axis)  # torch 2.13 takes no other integers


def module() -> ModuleType:
    return torch
