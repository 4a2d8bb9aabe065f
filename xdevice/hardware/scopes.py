"""``scope(device)``: where new tensors go, within a block.

It is an entry on a stack in a ``ContextVar``, which xdevice's own factories follow. The framework's
native scope is entered as well, for its own factories. That is state of the *thread*, or under
some frameworks of the process: held across an ``await`` or a ``yield`` it would leak into the code
that runs meanwhile. So it depends on the code with the ``with`` statement:

- A function: both follow the scope. Scopes are left in the order that undoes the one of entering.
- A coroutine: xdevice's factories follow it, in this task and in those started inside it. An
  `ExitStack` enters a scope from a plain function of its own, so here it needs ``native=False``.
- A generator: as in a coroutine. While it is suspended its caller sees the scope; whoever closes
  it, in another task too, closes the scope for all. One that is resumed in another thread or task
  does not see its scope there.
"""

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from sys import _getframe  # no public function is as quick
from threading import get_ident
from types import FrameType
from typing import Any

from xdevice.device import Device
from xdevice.errors import ScopeError
from xdevice.framework.adapters import Backend
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import as_device, native_of
from xdevice.typing import DeviceLike

__all__ = ["scope"]

_IN_GENERATOR = CO_GENERATOR | CO_ASYNC_GENERATOR
_CAN_BE_SUSPENDED = CO_COROUTINE | _IN_GENERATOR


class scope:  # noqa: N801  (reads as a verb: `with scope(gpu()):`)
    """Create new tensors on the device within a ``with`` block.

    It belongs to this thread or task, and to tasks started inside it. xdevice's factories always
    follow it. The chosen framework's own factories follow it in ordinary code, but not where the
    ``with`` statement is in a coroutine or generator. While a generator that holds a scope is
    suspended, its caller sees the scope. Existing tensors are not moved. Scopes may be nested and
    reused.

    Parameters
    ----------
    device
        Where new tensors are made.
    native
        Whether to enter the framework's own scope as well. By default, the code with the ``with``
        statement decides. ``True`` is for a function of ``@contextmanager`` and for a fixture of
        pytest, generators that are suspended only while the block, or the test, runs.

    Raises
    ------
    DeviceSpellingError
        The string does not name a device.
    DeviceNotFoundError
        On entering: the chosen framework does not have the device.
    ScopeError
        On leaving: the scope was not entered in this thread or task, or an inner one is still open.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"), xdevice.scope("cpu"):
    ...     xdevice.device_of(xdevice.ones(3))
    Device('cpu:0')
    """

    __slots__ = ("device", "native")

    def __init__(self, device: DeviceLike, *, native: bool | None = None) -> None:
        self.device = device if type(device) is Device else as_device(device)
        self.native = native

    def __enter__(self) -> Device:
        enter(self, self.device, self.native)
        return self.device

    def __exit__(self, *error: Any) -> None:
        leave(self, error)


@dataclass(slots=True, eq=False)
class _OpenScope:
    """A scope that was entered and is not left yet."""

    manager: object
    device: Device
    backend: Backend
    native: AbstractContextManager[Any] | None  # the framework's own scope
    thread: int
    generator: int | None  # the frame with the `with` statement, by its id, if it is a generator's
    closed: bool = False  # set for a generator's: other threads and tasks may still see it


_open: ContextVar[tuple[_OpenScope, ...]] = ContextVar("xdevice.scope", default=())
"""The scopes that this thread or task has entered, the innermost last."""

_of_generators: list[_OpenScope] = []
"""The open scopes of all generators: a generator may be closed in another thread or task."""

# whether a scope was ever entered: compilers that trace functions cannot read a ContextVar
_in_use = False


def innermost() -> Device | None:
    """The device of the innermost scope; ``None`` outside of scopes."""
    open_scope = _innermost() if _in_use else None
    return None if open_scope is None else open_scope.device


def sees_scope(owner: Backend) -> bool:
    """Whether the framework's native scope is that of the innermost one, in this thread."""
    open_scope = _innermost()
    if open_scope is None or open_scope.native is None:
        return False
    return open_scope.backend == owner and open_scope.thread == get_ident()


def _innermost() -> _OpenScope | None:
    for open_scope in reversed(_open.get()):
        if not open_scope.closed:
            return open_scope
    return None


def enter(manager: object, device: Device, native: bool | None = None) -> None:
    """Open a scope for a context manager, which calls this function from its ``__enter__``."""
    global _in_use
    chosen = backend()
    native_of(chosen, device)  # raises an error if the framework does not have it
    _in_use = True
    frame = _getframe(2)  # that of the `with` statement: `__enter__` has called this function
    if native is None:
        native = not frame.f_code.co_flags & _CAN_BE_SUSPENDED
    native_scope: AbstractContextManager[Any] | None = None
    if native:
        # a new one: some frameworks cannot leave a scope that is entered twice
        native_scope = chosen.hardware.scope(device)
        native_scope.__enter__()
    generator = _generator(frame)
    open_scope = _OpenScope(manager, device, chosen, native_scope, get_ident(), generator)
    stack = _open.get()
    if stack:
        stack = tuple([each for each in stack if not each.closed])
    _open.set((*stack, open_scope))
    if generator is not None:
        _of_generators.append(open_scope)


def leave(manager: object, error: tuple[Any, ...]) -> None:
    """Close the last scope that this context manager has opened in this generator, thread or task."""
    generator = _generator(_getframe(2))
    open_scope = _last_of(manager, generator)
    stack = _open.get()
    if open_scope in stack:
        i = stack.index(open_scope)
        inner_scopes = stack[i + 1 :]  # those left out of order, or of generators
        if inner_scopes and open_scope.native is not None:
            _check_closed(inner_scopes, open_scope)
        _open.set(stack[:i] + inner_scopes)
    if generator is not None:
        open_scope.closed = True
        _of_generators.remove(open_scope)
    if open_scope.native is not None:
        open_scope.native.__exit__(*error)


def _last_of(manager: object, generator: int | None) -> _OpenScope:
    # a generator may be closed where its scope is on no stack
    scopes = _open.get() if generator is None else tuple(_of_generators)
    for open_scope in reversed(scopes):
        if open_scope.manager is manager and open_scope.generator == generator:
            return open_scope
    raise ScopeError(
        f"{manager!r} was not entered in this thread or task; leave it where it was entered"
    )


def _check_closed(inner_scopes: tuple[_OpenScope, ...], outer: _OpenScope) -> None:
    """Raise an error if one of them is open that is the framework's, too: those are a stack."""
    for inner in inner_scopes:
        if inner.native is not None and not inner.closed:
            raise ScopeError(
                f"the scope of {outer.device} has an inner one of {inner.device} that is "
                "still open; leave that first"
            )


def _generator(frame: FrameType) -> int | None:
    return id(frame) if frame.f_code.co_flags & _IN_GENERATOR else None
