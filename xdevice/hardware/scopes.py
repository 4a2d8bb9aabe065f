"""``scope(device)``: where new tensors go, within a block.

It is an entry on a stack in a ``ContextVar``, which xdevice's own factories follow. The framework's
native scope is entered as well, for its own factories. That is state of the *thread*: held across
an ``await`` it would leak into other tasks. So a new one is entered each time, and none where the
``with`` block is in a coroutine or generator.
"""

import sys
from _thread import RLock, get_ident  # threading.RLock, without its 1 ms
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

from xdevice.device import Device
from xdevice.errors import ScopeError
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import as_device, native_of
from xdevice.hooks import hooks
from xdevice.typing import DeviceLike

__all__ = ["scope"]

# inspect's CO_GENERATOR and CO_ASYNC_GENERATOR: another thread or task may close it
_CO_MIGRATING = 0x20 | 0x200
_CO_SUSPENDABLE = 0x80 | _CO_MIGRATING  # and CO_COROUTINE


class scope:  # noqa: N801  (reads as a verb: `with scope(gpu()):`)
    """Create new tensors on the device within a ``with`` block.

    It belongs to this thread or task, and to tasks started inside it. xdevice's factories always
    follow it. The chosen framework's own factories follow it in ordinary code, but not where the
    block is in a coroutine or generator: their scope belongs to the thread, or under some
    frameworks to the process, and would leak into other tasks. While a generator that holds a scope
    is suspended, its caller sees the scope. Existing tensors are not moved. Scopes may be nested
    and reused.

    Raises
    ------
    DeviceSpellingError
        The string does not name a device.
    DeviceNotFoundError
        On entering: the chosen framework does not have the device.
    ScopeError
        On leaving: the scope was not entered in this thread or task.

    Examples
    --------
    >>> import xdevice
    >>> with xdevice.using("numpy"), xdevice.scope("cpu"):
    ...     xdevice.device_of(xdevice.ones(3))
    Device('cpu:0')
    """

    __slots__ = ("device",)

    def __init__(self, device: DeviceLike) -> None:
        self.device = device if type(device) is Device else as_device(device)

    def __enter__(self) -> Device:
        enter(self, self.device)
        return self.device

    def __exit__(self, *error: Any) -> None:
        leave(self, *error)


NativeScope: TypeAlias = AbstractContextManager[Any]
"""A framework's own scope."""


class _OpenScope:
    """A scope that was entered and is not left yet."""

    native: NativeScope | None = None  # the framework's own scope
    hidden_from: Sequence[Backend] = ()  # frameworks that compile functions for it apart
    migrates = False  # another thread or task may leave it
    closed = False

    def __init__(self, manager: object, device: Device, owner: Backend) -> None:
        self.manager = manager
        self.device = device
        self.backend = owner
        self.thread = get_ident()

    def enter_native(self) -> None:
        """Enter a new native scope: some frameworks cannot leave one that is entered twice."""
        self.native = self.backend.hardware.scope(self.device)
        self.native.__enter__()

    def is_seen_by(self, owner: Backend) -> bool:
        """Whether the framework's native scope is open, too, in this thread."""
        return self.native is not None and self.backend == owner and self.thread == get_ident()


_stack: ContextVar[tuple[_OpenScope, ...]] = ContextVar("xdevice.scope", default=())
# whether a scope was ever entered: compilers that trace functions cannot read a ContextVar
_in_use = False


def innermost() -> Device | None:
    """The device of the innermost scope; ``None`` outside of scopes."""
    if not _in_use:
        return None
    open_scope = _innermost()
    if _traces and (open_scope is None or not open_scope.hidden_from):
        _note_trace()
    return None if open_scope is None else open_scope.device


def sees_scope(owner: Backend) -> bool:
    """Whether the framework's native scope is that of the innermost one.

    It is not in coroutines and generators.
    """
    open_scope = _innermost()
    return open_scope is not None and open_scope.is_seen_by(owner)


class _NativeScope:
    """A native scope during one call of a compiled function, for a scope that is not native."""

    def __init__(self, owner: Backend, device: Device) -> None:
        self._owner = owner
        self._device = device

    def __enter__(self) -> None:
        open_scope = _OpenScope(self, self._device, self._owner)
        open_scope.enter_native()
        _stack.set((*_stack.get(), open_scope))

    def __exit__(self, *error: Any) -> None:
        leave(self, *error)


def _native_scope_for(owner: Backend) -> AbstractContextManager[None] | None:
    """The framework's innermost scope as a native one; ``None`` if the framework sees it already."""
    open_scope = _innermost()
    if open_scope is None or open_scope.backend != owner or open_scope.is_seen_by(owner):
        return None
    return _NativeScope(owner, open_scope.device)


def _innermost() -> _OpenScope | None:
    for open_scope in reversed(_stack.get()):
        if not open_scope.closed:
            return open_scope
    return None


def enter(manager: object, device: Device) -> None:
    """Open a scope for a context manager, which calls this function from its ``__enter__``."""
    global _in_use
    chosen = backend()
    native_of(chosen, device)  # raises an error if the device does not exist
    if chosen not in _prepared or "compiling" not in vars(chosen):
        _prepare(chosen)
    _in_use = True
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # inspect costs 6 ms
    open_scope = _OpenScope(manager, device, chosen)
    flags = _suspendable(frame)
    if not flags:
        open_scope.enter_native()
    _stack.set((*_stack.get(), open_scope))
    if flags:
        open_scope.migrates = bool(flags & _CO_MIGRATING)
        open_scope.hidden_from = _hide(chosen)


def _prepare(chosen: Backend) -> None:
    """Load what compiled functions need, before a compiler could trace the import."""
    chosen.load("compiling")
    if chosen not in _prepared and chosen.load("following").has("follow"):
        chosen.following.follow(partial(_native_scope_for, chosen))
    _prepared.add(chosen)


def leave(manager: object, *error: Any) -> None:
    """Close the last scope that this context manager has opened in this thread or task."""
    stack = _stack.get()
    above: tuple[_OpenScope, ...] = ()
    if stack and stack[-1].manager is manager:  # nearly always
        open_scope = stack[-1]
        _stack.set(stack[:-1])
    else:
        index = _index_of(manager, stack)
        open_scope = stack[index]
        above = stack[index + 1 :]
        _stack.set(stack[:index] + above)
    if open_scope.migrates:
        open_scope.closed = True  # it may still be on the stack of another thread or task
    if open_scope.hidden_from:
        _count_hidden(open_scope.hidden_from, -1)
    if open_scope.native is None:
        return
    # Native scopes are left in the order of a stack: those above are left, and entered again.
    for scope_above in reversed(above):
        if scope_above.native is not None:
            scope_above.native.__exit__(None, None, None)
    open_scope.native.__exit__(*error)
    for scope_above in above:
        if scope_above.native is not None:
            scope_above.enter_native()


def _index_of(manager: object, stack: Sequence[_OpenScope]) -> int:
    """The position of the manager's last scope in the stack."""
    for index in reversed(range(len(stack))):
        if stack[index].manager is manager:
            return index
    raise ScopeError(
        f"{manager!r} was not entered in this thread or task; leave it where it was entered"
    )


def _suspendable(frame: FrameType | None) -> int:
    """The flags of the code that contains the ``with`` block, if the code can be suspended within it; else 0.

    A ``@contextmanager`` is a generator too, but suspended only as long as the block that it
    serves: that block's own frame decides. The same goes for an ``ExitStack`` and for other
    classes' ``__enter__``.
    """
    while frame is not None:
        code = frame.f_code
        flags = code.co_flags & _CO_SUSPENDABLE
        caller = frame.f_back
        serves_another_block = (
            code.co_name == "__enter__"
            or _is_contextlib(frame)
            or (flags and caller is not None and _is_contextlib(caller))
        )
        if not serves_another_block:
            return flags
        frame = caller
    return 0


def _is_contextlib(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "contextlib"


# Compiled functions and hidden scopes.
#
# A scope is hidden from a framework that does not see it: in a coroutine, or a scope of another
# framework. A compiled function keeps the devices with which it was traced, so a trace that was made
# without a hidden scope must not be used under one. A framework has one of two ways. Either every
# call of a compiled function follows the scope (`following`). Or it has several caches of traces,
# which are told apart by a number (`tracing`): 0 while no scope is hidden, and another number while
# one is. Then factories run again, and can refuse.

_prepared: set[Backend] = set()  # those that were chosen when a scope was entered
_traces: dict[Backend, int] = {}  # the number of the cache in use while a scope is hidden
_hidden: dict[Backend, int] = {}  # how many scopes are hidden from the framework now
_lock = RLock()


def _hide(chosen: Backend) -> list[Backend]:
    """Let the frameworks in use take another cache of traces, since a scope is hidden from them; they are returned."""
    in_use = [owner for owner in imported() if owner == chosen or "creation" in vars(owner)]
    owners = [owner for owner in in_use if owner.load("tracing").has("trace_apart")]
    _count_hidden(owners, 1)
    return owners


def _count_hidden(owners: Iterable[Backend], scopes: int) -> None:
    """Count one hidden scope more, or less, for these frameworks, and let them take the cache that fits."""
    for owner in owners:
        with _lock:
            _traces.setdefault(owner, 1)
            _hidden[owner] = _hidden.get(owner, 0) + scopes
            owner.tracing.trace_apart(_traces[owner] if _hidden[owner] else 0)


def _note_trace() -> None:
    """Let traces begin a new cache: the one that is being made is without a hidden scope, and not for use under one.

    A factory calls it while it follows no scope, or one that its framework sees.
    """
    for owner, number in list(_traces.items()):
        if _hidden[owner] and owner.compiling.is_tracing():
            with _lock:
                _traces[owner] = number + 1
                owner.tracing.trace_apart(number + 1)


hooks.enter_scope = enter
hooks.leave_scope = leave
