"""``torch.compile``."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

import torch

Function: TypeAlias = Callable[..., Any]


def compilers() -> tuple[str, ...]:
    """PyTorch's own backends; the first two need no C++ compiler."""
    return "aot_eager", "eager", "inductor"


def compiled(fn: Function, compiler: str) -> Function:
    torch.compiler.reset()  # each function is compiled only a few times
    traced: Function = torch.compile(fn, backend=compiler)

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            # The compiler asks each tensor for its .grad.
            warnings.filterwarnings("ignore", message=r"The \.grad attribute of a Tensor")
            return traced(*args, **kwargs)

    return call
