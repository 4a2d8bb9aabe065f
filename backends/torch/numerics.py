"""Numbers that can be compared: no TF32, and oneDNN's order of additions left out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def comparable(x64: bool) -> Iterator[None]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    former = cudnn.allow_tf32, matmul.allow_tf32, torch.get_float32_matmul_precision()
    former_cudnn = cudnn.deterministic, cudnn.benchmark
    set_onednn: Callable[..., tuple[bool, ...]] = torch.backends.mkldnn.set_flags
    former_onednn, *_ = set_onednn(_enabled=False)
    cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")  # and with it `matmul.allow_tf32`
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = former_cudnn
        cudnn.allow_tf32, matmul.allow_tf32, precision = former
        torch.set_float32_matmul_precision(precision)
        set_onednn(_enabled=former_onednn)
