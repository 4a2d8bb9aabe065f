"""CuPy's functions under the array API standard's names, by array-api-compat."""

from collections.abc import Mapping
from typing import Any

import array_api_compat.cupy as xp
import cupy

from xdevice.backends.cupy.placed import placed
from xdevice.contract import Extension

linalg = Extension(lambda: placed(vars(xp.linalg)), cupy.linalg)
fft = Extension(lambda: placed(vars(xp.fft)), cupy.fft)


def namespace() -> Mapping[str, Any]:
    return placed(vars(xp))


def module() -> Any:
    return cupy
