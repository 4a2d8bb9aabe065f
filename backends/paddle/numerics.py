"""Numbers that can be compared: no TF32, and deterministic algorithms of cuDNN."""

from collections.abc import Iterator
from contextlib import contextmanager

import paddle

_CUDNN = "FLAGS_cudnn_deterministic"


@contextmanager
def comparable(x64: bool) -> Iterator[None]:
    core = paddle.base.core  # not public; PaddlePaddle has no other switch of TF32
    former = core.get_cublas_switch(), core.get_cudnn_switch()
    flags = {}
    if _CUDNN in core.globals():  # a build for the CPU has no such flag
        flags = paddle.get_flags(_CUDNN)
    core.set_cublas_switch(False)
    core.set_cudnn_switch(False)
    paddle.set_flags(dict.fromkeys(flags, True))
    try:
        yield
    finally:
        paddle.set_flags(flags)
        core.set_cudnn_switch(former[1])
        core.set_cublas_switch(former[0])
