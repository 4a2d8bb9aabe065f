"""``paddle.jit.to_static``."""

import inspect
import warnings
from collections.abc import Callable
from functools import partial, wraps
from types import FunctionType, MethodType
from typing import Any, TypeAlias

import paddle

Function: TypeAlias = Callable[..., Any]


def compilers() -> tuple[str, ...]:
    """Tracing bytecode, which leaves out what it cannot compile; transforming source code."""
    return "sot", "ast"


def compiled(fn: Function, compiler: str) -> Function:
    if isinstance(fn, MethodType) and not isinstance(fn.__self__, paddle.nn.Layer):
        return partial(compiled(fn.__func__, compiler), fn.__self__)
    if _takes_any_number(fn):
        return _with_gathered(fn, compiler)
    traced: Function = paddle.jit.to_static(_without_self(fn), full_graph=compiler == "ast")

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            # The compiler asks for the place of a tensor that has none yet.
            warnings.filterwarnings("ignore", message=".*Variable do not have 'place'.*")
            return traced(*args, **kwargs)

    return call


def _with_gathered(fn: Function, compiler: str) -> Function:
    """The compiled function, whose arguments PaddlePaddle is given in two containers."""

    def with_containers(args: Any, kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    gathered = compiled(with_containers, compiler)

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return gathered(args, kwargs)

    return call


def _takes_any_number(fn: Function) -> bool:
    """Whether it is a function with a parameter ``*args``, for which PaddlePaddle takes none."""
    return isinstance(fn, FunctionType) and bool(fn.__code__.co_flags & inspect.CO_VARARGS)


def _without_self(fn: Function) -> Function:
    """The function, whose parameter ``self`` is shown to PaddlePaddle by another name.

    PaddlePaddle takes a function with such a parameter for a method of a layer, and does not count
    the parameter.
    """
    if not isinstance(fn, FunctionType) or fn.__code__.co_varnames[:1] != ("self",):
        return fn
    copy = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    signature = inspect.signature(fn)
    first, *others = signature.parameters.values()
    renamed = signature.replace(parameters=[first.replace(name="self_"), *others])
    copy.__signature__ = renamed  # type: ignore[attr-defined]  # inspect reads it
    return copy
