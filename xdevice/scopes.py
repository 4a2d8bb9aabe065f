"""``scope(device)``: where new tensors go, within a block.

The scope itself is an entry on a stack in a ``ContextVar``, so it belongs to one thread or task and
xdevice's own factories can always follow it. Beside it stands the framework's native scope, so
that the framework's own factories follow too. A native scope is state of the *thread*: held across
an ``await`` it would leak into whatever runs meanwhile. So it is entered fresh each time, and left
alone where the ``with`` block stands in a coroutine or generator, which may be suspended inside it.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar

from xdevice.hardware import as_device, require
from xdevice.registry import backend, without_last

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import FrameType, TracebackType
    from typing import Any

    from xdevice.device import Device

_CO_SUSPENDABLE = 0x20 | 0x80 | 0x200  # inspect's CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR


class scope:  # noqa: N801  (reads as a verb: `with scope(gpu()):`)
    """Create new tensors on the device within a ``with`` block.

    xdevice's factories follow it everywhere. The chosen framework's own factories follow it in
    ordinary code, but not where the block stands in a coroutine or generator: their scope belongs
    to the thread and would leak into other tasks. Paddle's native scope is the whole process's.
    Nothing that exists already is moved. May be nested and entered again.

    >>> import xdevice
    >>> with xdevice.using("numpy"), xdevice.scope("cpu"):
    ...     xdevice.device_of(xdevice.ones(3))
    Device('cpu:0')

    Raises
    ------
    DeviceSpellingError
        No spelling of a device.
    DeviceNotFoundError
        On entering: the chosen framework does not have it.
    """

    __slots__ = ("device",)

    def __init__(self, device: Any) -> None:
        self.device = as_device(device)

    def __enter__(self) -> Device:
        enter(self, self.device)
        return self.device

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self, kind, error, trace)


class _Entry:
    __slots__ = ("device", "native", "owner")

    def __init__(self, owner: object, device: Device, native: AbstractContextManager[Any] | None) -> None:
        self.owner, self.device, self.native = owner, device, native


_stack: ContextVar[tuple[_Entry, ...]] = ContextVar("xdevice.scope", default=())


def innermost() -> Device | None:
    """The device of the innermost scope, if there is one."""
    entries = _stack.get()
    return entries[-1].device if entries else None


def enter(owner: object, device: Device) -> None:
    """Open a scope on behalf of a context manager, called from its ``__enter__``."""
    chosen = backend()
    require(chosen, device)
    native = None
    if not _may_be_suspended(sys._getframe(2)):  # pyright: ignore[reportPrivateUsage]  # inspect costs 6 ms
        native = chosen.hardware.scope(device)
        native.__enter__()
    _stack.set((*_stack.get(), _Entry(owner, device, native)))


def leave(
    owner: object,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Close the last scope that this context manager has opened here."""
    entries = _stack.get()
    for entry in reversed(entries):
        if entry.owner is owner:
            _stack.set(without_last(entries, entry))
            if entry.native is not None:
                entry.native.__exit__(kind, error, trace)
            return
    raise RuntimeError(f"{owner!r} was not entered in this thread or task, so it cannot be left here")


def _may_be_suspended(frame: FrameType | None) -> bool:
    """Whether the code around the ``with`` block can be suspended inside it.

    A ``@contextmanager`` is a generator too, but suspended only as long as the block that it serves:
    that block's own frame decides. The same goes for an ``ExitStack``.
    """
    while frame is not None:
        served = frame.f_back
        by_contextlib = served is not None and served.f_globals.get("__name__") == "contextlib"
        if frame.f_globals.get("__name__") == "contextlib" or by_contextlib:
            frame = served
            continue
        return bool(frame.f_code.co_flags & _CO_SUSPENDABLE)
    return False
