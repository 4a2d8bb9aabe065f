"""Compiled functions under a scope that their framework does not see: in a coroutine, or of another framework.

Such a function keeps what it was traced with. A framework either lets every call follow the scope, or traces apart
while such a scope is open, so that a factory is asked again, and can refuse.
"""

from _thread import RLock  # threading.RLock, without its 1 ms
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from xdevice.framework.adapters import Backend, imported

numbers: dict[Backend, int] = {}
"""The frameworks that trace apart, each with the number of its traces while a scope is open that it does not see."""

_following: set[Backend] = set()
_hidden: dict[Backend, int] = {}  # how many open scopes the framework does not see
_lock = RLock()


def prepare(chosen: Backend, missing: Callable[[Backend], AbstractContextManager[Any] | None]) -> None:
    """Before a scope is entered; ``missing`` gives the scope that a framework does not see, to be entered natively."""
    chosen.open("compiling")  # a factory asks it, perhaps while a compiler traces, which would trace the import too
    if chosen not in _following and chosen.open("following").has("follow"):
        _following.add(chosen)
        chosen.following.follow(partial(missing, chosen))


def hide(chosen: Backend) -> list[Backend]:
    """The frameworks in use that trace apart from now on, since a scope is open that they do not see."""
    in_use = [each for each in imported() if each == chosen or "creation" in vars(each)]
    owners = [each for each in in_use if each.open("tracing").has("trace_apart")]
    _count(owners, 1)
    return owners


def reveal(owners: Iterable[Backend]) -> None:
    """The scope is closed that these do not see."""
    _count(owners, -1)


def _count(owners: Iterable[Backend], scopes: int) -> None:
    for owner in owners:
        with _lock:
            numbers.setdefault(owner, 1)
            _hidden[owner] = _hidden.get(owner, 0) + scopes
            owner.tracing.trace_apart(numbers[owner] if _hidden[owner] else 0)


def note_trace() -> None:
    """A factory follows no scope, or one that is seen: what is traced so is not for a scope that is hidden."""
    for owner, number in list(numbers.items()):
        if _hidden[owner] and owner.compiling.is_tracing():
            with _lock:
                numbers[owner] = number + 1
                owner.tracing.trace_apart(number + 1)
