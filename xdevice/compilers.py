"""Marking functions that the compilers of frameworks must not trace.

``torch.compile`` and ``paddle.jit.to_static`` trace the Python code of the
functions that they compile, xdevice's included. They cannot trace all of it: an
import, for example, or a search with regular expressions.

The core names these compilers, and sets the attributes that they read, because
an adapter could be too late: a compiled function may be the first that uses
xdevice, and then the adapter is imported while the compiler traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = "___jit_transform_options___"


class _Options:
    """What ``paddle.jit.to_static`` asks of a function that it calls."""

    def __init__(self, *compilers: str) -> None:
        self.compilers = compilers  # those that call the function as it is

    def need_transform(self, mode: Any) -> bool:
        return mode.name not in self.compilers

    def need_capture_control_flow(self) -> bool:
        return False


def constant(fn: F) -> F:
    """Mark a function that is called while compiling, and whose result is compiled in.

    Its arguments and its result are plain values: a framework is passed by its
    name, and not as a `Backend`. It must return the same at every call, and
    change nothing that the compiled code has read before.
    """
    attributes = vars(fn)  # a function takes any attribute
    attributes["_dynamo_marked_constant"] = True
    attributes[_OPTIONS] = _Options("SOT", "AST")
    return fn


@constant
def leave_untransformed(obj: object) -> None:
    """Mark a function whose source code PaddlePaddle's compiler ``ast`` leaves as it is.

    The compiler transforms the source code of every function that is called, so
    that conditions may depend on tensors. It fails for much that is in
    functions of xdevice, which have no such conditions.
    """
    if type(obj) is type(constant):
        vars(obj).setdefault(_OPTIONS, _Options("AST"))
