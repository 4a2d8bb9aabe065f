"""CuPy's functions of the array API standard's extension ``linalg``, by array-api-compat."""

from collections.abc import Mapping
from typing import Any

import array_api_compat.cupy.linalg as xp
import cupy

from xdevice.backends.cupy.placed import placed


def namespace() -> Mapping[str, Any]:
    return placed(vars(xp))


def module() -> Any:
    return cupy.linalg
