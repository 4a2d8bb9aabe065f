"""Marks by which a framework's compiler knows what it may do with a function that it meets while it traces."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

_CALL_IT = "_dynamo_marked_constant"  # what torch.compiler.assume_constant_result sets, without importing torch


def answered_while_traced(fn: F) -> F:
    """Let compilers call the function while they trace, and keep its answer.

    For questions whose answer can only change with what a compiler guards: a tensor's device, its type, a string.
    """
    setattr(fn, _CALL_IT, True)
    return fn
