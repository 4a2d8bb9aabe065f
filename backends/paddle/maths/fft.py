"""PaddlePaddle's Fourier transforms, for the array API standard's extension ``fft``."""

from collections.abc import Callable, Mapping
from typing import Any

import paddle

from xdevice.backends.paddle import maths
from xdevice.kit.standard.fft import fourier_transforms


def namespace() -> Mapping[str, Any]:
    """Every function of the extension, over the transforms below."""
    return fourier_transforms(maths.widened(_RAW), maths.namespace(), maths.dtypes)


def module() -> Any:
    return paddle.fft


_RAW: dict[str, Callable[..., Any]] = {name: getattr(paddle.fft, name) for name in ("fft", "ifft", "rfft", "irfft")}
