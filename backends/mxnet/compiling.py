"""``hybridize``."""

from collections.abc import Callable
from typing import Any, TypeAlias

from mxnet import gluon

from xdevice.errors import NotSupportedError

Function: TypeAlias = Callable[..., Any]


def compilers() -> tuple[str, ...]:
    return ("hybridize",)


def compiled(fn: Function, compiler: str) -> Function:
    if not isinstance(fn, gluon.HybridBlock):
        name = getattr(fn, "__name__", type(fn).__name__)
        raise NotSupportedError(
            f"mxnet compiles Gluon's HybridBlocks only, by hybridize(), and not {name}"
        )
    fn.hybridize()
    block: Function = fn
    return block
