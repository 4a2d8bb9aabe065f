"""NumPy's functions under the array API standard's names, by array-api-compat."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeAlias

import array_api_compat.numpy as xp
import array_api_compat.numpy.fft as xp_fft
import array_api_compat.numpy.linalg as xp_linalg
import numpy as np
import numpy.typing as npt

from xdevice.contract import Extension

Array: TypeAlias = npt.NDArray[Any]

linalg = Extension(lambda: vars(xp_linalg), np.linalg)
fft = Extension(lambda: vars(xp_fft), np.fft)


def namespace() -> Mapping[str, object]:
    return vars(xp) | {"astype": _astype}


def _astype(x: Array, dtype: npt.DTypeLike, /, *, copy: bool = True) -> Array:
    # the method, since the function `numpy.astype` checks its arguments and takes twice as long
    return x.astype(dtype, copy=copy)


def module() -> ModuleType:
    return np
