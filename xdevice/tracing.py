"""For compilers that trace Python code: what they cannot trace is computed while they do, and is a constant then."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


def constant(fn: F) -> F:
    """Mark a function that a compiler calls once, while it traces: its arguments and its result are plain values.

    It must answer the same at every call, and change nothing that the traced code has looked at before.
    """
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]  # a function takes any attribute
    return fn
