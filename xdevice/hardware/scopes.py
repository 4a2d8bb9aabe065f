"""``scope(device)``: where new tensors go, within a block.

It is an entry on a stack in a ``ContextVar``, which xdevice's own factories follow. The framework's
native scope is entered as well, for its own factories. That is state of the *thread*: held across
an ``await`` it would leak into other tasks. So a new one is entered each time, and none where the
``with`` block is in a coroutine or generator.
"""

from _thread import RLock, get_ident  # threading.RLock, without its 1 ms
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from sys import _getframe  # pyright: ignore[reportPrivateUsage]  # inspect costs 6 ms
from types import FrameType, TracebackType
from typing import Any, TypeAlias

from xdevice.device import Device
from xdevice.errors import ScopeError
from xdevice.framework.adapters import Backend, imported
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import as_device, require
from xdevice.hooks import hooks
from xdevice.typing import DeviceLike

__all__ = ["scope"]

# inspect's CO_GENERATOR and CO_ASYNC_GENERATOR: another thread or task may close it
_CO_MIGRATING = 0x20 | 0x200
_CO_SUSPENDABLE = 0x80 | _CO_MIGRATING  # and CO_COROUTINE
# functions of other context managers that may enter a scope for the block that they serve
_ENTERS_FOR_OTHERS = frozenset({"__enter__", "enter_context"})
# modules whose generators are suspended only as long as the block, or the test, that they serve
_SERVING_MODULES = frozenset({"contextlib", "_pytest.fixtures"})


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

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave(self, error_type, error, traceback)


NativeScope: TypeAlias = AbstractContextManager[Any]
"""A framework's own scope."""


class _Hidden:
    """What else there is to know of a scope that its framework does not see."""

    closed = False

    def __init__(self, owners: Sequence[Backend], migrates: bool) -> None:
        self.owners = owners  # frameworks that compile functions for it apart
        self.migrates = migrates  # another thread or task may leave it


class _OpenScope:
    """A scope that was entered and is not left yet."""

    __slots__ = ("backend", "device", "hidden", "manager", "native", "outer", "thread")

    def __init__(
        self,
        outer: "_OpenScope | None",
        manager: object,
        device: Device,
        owner: Backend,
        native: NativeScope | None,
    ) -> None:
        self.outer = outer  # the scope around it
        self.manager = manager
        self.device = device
        self.backend = owner
        self.native = native
        self.thread = get_ident()
        self.hidden: _Hidden | None = None

    def within(self, outer: "_OpenScope | None") -> "_OpenScope":
        """The same scope within another one."""
        copy = _OpenScope(outer, self.manager, self.device, self.backend, self.native)
        copy.thread = self.thread
        copy.hidden = self.hidden
        return copy

    def is_seen_by(self, owner: Backend) -> bool:
        """Whether the framework's native scope is open, too, in this thread."""
        return self.native is not None and self.backend == owner and self.thread == get_ident()


_top: ContextVar[_OpenScope | None] = ContextVar("xdevice.scope", default=None)
"""The scope that was entered last, in this thread or task."""

# whether a scope was ever entered: compilers that trace functions cannot read a ContextVar
_in_use = False


def innermost() -> Device | None:
    """The device of the innermost scope; ``None`` outside of scopes."""
    if not _in_use:
        return None
    open_scope = _innermost()
    if _traces and (
        open_scope is None or open_scope.hidden is None or not open_scope.hidden.owners
    ):
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
        native = self._owner.hardware.scope(self._device)
        native.__enter__()
        _top.set(_OpenScope(_top.get(), self, self._device, self._owner, native))

    def __exit__(self, *error: Any) -> None:
        leave(self, *error)


def _native_scope_for(owner: Backend) -> AbstractContextManager[None] | None:
    """The framework's innermost scope as a native one; ``None`` if the framework sees it already."""
    open_scope = _innermost()
    if open_scope is None or open_scope.backend != owner or open_scope.is_seen_by(owner):
        return None
    return _NativeScope(owner, open_scope.device)


def _innermost() -> _OpenScope | None:
    open_scope = _top.get()
    while open_scope is not None and open_scope.hidden is not None and open_scope.hidden.closed:
        open_scope = open_scope.outer
    return open_scope


def enter(manager: object, device: Device) -> None:
    """Open a scope for a context manager, which calls this function from its ``__enter__``."""
    chosen = backend()
    if device not in chosen.scope_devices:
        _prepare(chosen, device)
    frame = _getframe(2)
    code = frame.f_code
    if code.co_flags & _CO_SUSPENDABLE or code.co_name in _ENTERS_FOR_OTHERS:
        flags = _suspendable(frame)
        if flags:
            _enter_hidden(manager, device, chosen, flags)
            return
    # a new one: some frameworks cannot leave a scope that is entered twice
    native = chosen.hardware.scope(device)
    native.__enter__()
    _top.set(_OpenScope(_top.get(), manager, device, chosen, native))


def _enter_hidden(manager: object, device: Device, chosen: Backend, flags: int) -> None:
    """Open a scope that the framework does not see: the ``with`` block can be suspended."""
    hidden = _Hidden(_compiling_apart(chosen), bool(flags & _CO_MIGRATING))
    open_scope = _OpenScope(_top.get(), manager, device, chosen, None)
    open_scope.hidden = hidden
    _top.set(open_scope)
    _count_hidden(hidden.owners, 1)


def _prepare(chosen: Backend, device: Device) -> None:
    """Look for the device, and load what compiled functions need, before a compiler could trace it."""
    global _in_use
    require(chosen, device)
    _in_use = True
    if chosen not in _prepared and chosen.load("compiling").has("follow"):
        chosen.compiling.follow(partial(_native_scope_for, chosen))
    _prepared.add(chosen)
    chosen.scope_devices.add(device)


def leave(
    manager: object,
    error_type: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    """Close the last scope that this context manager has opened in this thread or task."""
    open_scope = _top.get()
    if open_scope is None or open_scope.manager is not manager or open_scope.native is None:
        _leave_any(manager, error_type, error, traceback)
        return
    _top.set(open_scope.outer)
    open_scope.native.__exit__(error_type, error, traceback)


def _leave_any(manager: object, *error: Any) -> None:
    """Close a scope that may be hidden, and need not be the innermost one."""
    above: list[_OpenScope] = []  # inner ones first
    open_scope = _top.get()
    while open_scope is not None and open_scope.manager is not manager:
        above.append(open_scope)
        open_scope = open_scope.outer
    if open_scope is None:
        raise ScopeError(
            f"{manager!r} was not entered in this thread or task; leave it where it was entered"
        )
    top = open_scope.outer
    again = []  # those above, without the closed one; outer ones first
    for scope_above in reversed(above):
        top = scope_above.within(top)
        again.append(top)
    _top.set(top)
    hidden = open_scope.hidden
    if hidden is not None:
        hidden.closed = hidden.migrates  # it may still be open in another thread or task
        _count_hidden(hidden.owners, -1)
    if open_scope.native is None:
        return
    # Native scopes are left in the order of a stack: those above are left, and entered again.
    for scope_above in above:
        if scope_above.native is not None:
            scope_above.native.__exit__(None, None, None)
    open_scope.native.__exit__(*error)
    for scope_above in again:
        if scope_above.native is not None:
            scope_above.native = scope_above.backend.hardware.scope(scope_above.device)
            scope_above.native.__enter__()


def _suspendable(frame: FrameType | None) -> int:
    """The flags of the code that contains the ``with`` block, if the code can be suspended within it; else 0.

    A ``@contextmanager`` is a generator too, but suspended only as long as the block that it
    serves: that block's own frame decides. The same goes for an ``ExitStack``, for other classes'
    ``__enter__``, and for a fixture of pytest, which serves a test.
    """
    while frame is not None:
        code = frame.f_code
        flags = code.co_flags & _CO_SUSPENDABLE
        caller = frame.f_back
        serves_another_block = (
            code.co_name == "__enter__"
            or _serves_a_block(frame)
            or (flags and caller is not None and _serves_a_block(caller))
        )
        if not serves_another_block:
            return flags
        frame = caller
    return 0


def _serves_a_block(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in _SERVING_MODULES


# Compiled functions and hidden scopes.
#
# A scope is hidden from a framework that does not see it: in a coroutine, or a scope of another
# framework. A compiled function keeps the devices with which it was traced, so a trace that was made
# without a hidden scope must not be used under one. A framework has one of two ways. Either every
# call of a compiled function follows the scope (`follow`). Or it has several caches of traces,
# which are told apart by a number (`trace_apart`): 0 while no scope is hidden, and another number while
# one is. Then factories run again, and can refuse.

_prepared: set[Backend] = set()  # those that were chosen when a scope was entered
_traces: dict[Backend, int] = {}  # the number of the cache in use while a scope is hidden
_hidden: dict[Backend, int] = {}  # how many scopes are hidden from the framework now
_lock = RLock()


def _compiling_apart(chosen: Backend) -> list[Backend]:
    """The frameworks in use that have several caches of traces, the chosen one among them."""
    in_use = [owner for owner in imported() if owner == chosen or "creation" in vars(owner)]
    return [owner for owner in in_use if owner.load("compiling").has("trace_apart")]


def _count_hidden(owners: Iterable[Backend], scopes: int) -> None:
    """Count one hidden scope more, or less, for these frameworks, and let them take the cache that fits."""
    for owner in owners:
        with _lock:
            _traces.setdefault(owner, 1)
            _hidden[owner] = _hidden.get(owner, 0) + scopes
            owner.compiling.trace_apart(_traces[owner] if _hidden[owner] else 0)


def _note_trace() -> None:
    """Let traces begin a new cache: the one that is being made is without a hidden scope, and not for use under one.

    A factory calls it while it follows no scope, or one that its framework sees.
    """
    for owner, number in list(_traces.items()):
        if _hidden[owner] and owner.compiling.is_tracing():
            with _lock:
                _traces[owner] = number + 1
                owner.compiling.trace_apart(number + 1)


hooks.enter_scope = enter
hooks.leave_scope = leave
