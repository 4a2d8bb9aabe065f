"""CuPy's functions under the array API standard's names, by array-api-compat."""

from collections.abc import Mapping
from typing import Any

import array_api_compat.cupy as xp
import array_api_compat.cupy.fft as xp_fft
import array_api_compat.cupy.linalg as xp_linalg
import cupy

from xdevice.backends.cupy.placed import placed
from xdevice.contract import Extension

linalg = Extension(lambda: placed(vars(xp_linalg)), cupy.linalg)
fft = Extension(lambda: placed(vars(xp_fft)), cupy.fft)


def namespace() -> Mapping[str, Any]:
    return placed(vars(xp))


def module() -> Any:
    return cupy
