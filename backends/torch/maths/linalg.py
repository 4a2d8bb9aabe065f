"""PyTorch's functions of the array API standard's extension ``linalg``, by array-api-compat."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import array_api_compat.torch.linalg as xp
import torch


def namespace() -> Mapping[str, Any]:
    return vars(xp)


def module() -> ModuleType:
    return torch.linalg
