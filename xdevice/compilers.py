"""Functions that a tracing compiler calls once, as constants."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


def constant(fn: F) -> F:
    """Mark a function that a compiler calls once, while tracing.

    Its arguments and its result are plain values. It must return the same at
    every call, and change nothing that the traced code has read before.
    """
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]  # a function takes any attribute
    return fn
