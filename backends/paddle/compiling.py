"""``paddle.jit.to_static``."""

import warnings
from collections.abc import Callable
from functools import partial, wraps
from types import MethodType
from typing import Any, TypeAlias

import paddle

Function: TypeAlias = Callable[..., Any]


def compilers() -> tuple[str, ...]:
    """Tracing bytecode, which leaves out what it cannot compile; transforming source code."""
    return "sot", "ast"


def compiled(fn: Function, compiler: str) -> Function:
    traced: Function
    if isinstance(fn, MethodType) and not isinstance(fn.__self__, paddle.nn.Layer):
        method = fn.__func__
        traced = partial(paddle.jit.to_static(method, full_graph=compiler == "ast"), fn.__self__)
    else:
        traced = paddle.jit.to_static(fn, full_graph=compiler == "ast")

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            # The compiler asks for the place of a tensor that has none yet.
            warnings.filterwarnings("ignore", message=".*Variable do not have 'place'.*")
            return traced(*args, **kwargs)

    return call
