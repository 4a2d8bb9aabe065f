"""PyTorch's functions of the array API standard's extension ``linalg``, by array-api-compat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat.torch.linalg as xp
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def namespace() -> Mapping[str, Any]:
    return vars(xp)


def module() -> ModuleType:
    return torch.linalg
