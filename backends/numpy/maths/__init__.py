"""NumPy's functions under the array API standard's names, by array-api-compat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat.numpy as xp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def namespace() -> Mapping[str, Any]:
    return vars(xp)


def module() -> ModuleType:
    return np
