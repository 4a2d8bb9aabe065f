"""The array API standard's functions, as array-api-strict has them: nothing is added."""

from collections.abc import Mapping
from types import ModuleType

import array_api_strict as xp

from xdevice.contract import Extension

# `xp.linalg` and `xp.fft` are missing while its flags disable them
linalg = Extension(lambda: vars(xp.linalg), xp.linalg)
fft = Extension(lambda: vars(xp.fft), xp.fft)


def namespace() -> Mapping[str, object]:
    return vars(xp)


def module() -> ModuleType:
    return xp
