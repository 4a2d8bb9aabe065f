"""``paddle.jit.to_static``."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

import paddle

Function: TypeAlias = Callable[..., Any]


def compilers() -> tuple[str, ...]:
    """Tracing bytecode, which leaves out what it cannot compile; transforming source code."""
    return "sot", "ast"


def compiled(fn: Function, compiler: str) -> Function:
    def function(*args: Any, **kwargs: Any) -> Any:  # methods are compiled of its own layers only
        return fn(*args, **kwargs)

    traced: Function = paddle.jit.to_static(function, full_graph=compiler == "ast")

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            # The compiler asks for the place of a tensor that has none yet.
            warnings.filterwarnings("ignore", message=".*Variable do not have 'place'.*")
            return traced(*args, **kwargs)

    return call
