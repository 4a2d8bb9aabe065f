"""Marking functions that `torch.compile` must not trace.

``torch.compile`` traces the Python code of the functions that it compiles,
xdevice's included. It cannot trace all of it: an import, for example, or a
search with regular expressions.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


def constant(fn: F) -> F:
    """Mark a function that is called while compiling, and whose result is compiled in.

    Its arguments and its result are plain values: a framework is passed by its
    name, and not as a `Backend`. It must return the same at every call, and
    change nothing that the compiled code has read before.
    """
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]  # a function takes any attribute
    return fn
