"""NumPy's functions of the array API standard's extension ``linalg``, by array-api-compat."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import array_api_compat.numpy.linalg as xp
import numpy as np


def namespace() -> Mapping[str, Any]:
    return vars(xp)


def module() -> ModuleType:
    return np.linalg
