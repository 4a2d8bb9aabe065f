"""The end of a process that is in a job.

The engine of a process that fails would wait for its peers at the process's end, and they for it. So the others are
told of the failure, and the process is ended where its frameworks take too long.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import io
import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from xdevice.distributed.failing import PEER_FAILED, end_after_the_failed
from xdevice.distributed.periods import LAST_RESORT
from xdevice.distributed.seat import seat
from xdevice.errors import DistributedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from xdevice.distributed.member import Membership

_membership: Membership | None = None  # while this process is in a group
_broken = False  # whether it has left one whose engine could not be stopped
_exit_status = 0  # what it is to end with, once an error has ended it
_in_child: Callable[[], None] | None = None  # what a forked child has to do
_hook: Any = None  # the excepthook that was there before


@contextmanager
def minded() -> Generator[None, None, None]:
    """While the processes meet: an error ends this one as it would after the meeting."""
    global _broken
    _install()
    try:
        yield
    except BaseException:
        _broken = True
        raise


def mind(membership: Membership, forget_in_child: Callable[[], None]) -> None:
    """From now on the others are told when this process ends; its forked children tell nothing."""
    global _membership, _broken, _in_child
    _membership, _broken, _in_child = membership, False, forget_in_child


def _install() -> None:
    global _hook
    if _hook is None:
        _hook, sys.excepthook = sys.excepthook, _on_exception
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    global _membership, _broken, _exit_status
    _membership, _broken, _exit_status = None, False, 0
    if _in_child is not None:
        _in_child()


def forget() -> None:
    """The process has left the group."""
    global _membership
    _membership = None


def break_off(error: BaseException) -> None:
    """Tell the others of an error with which the process leaves the group."""
    global _broken
    if _membership is not None:
        _broken = True
        _membership.raised(error)


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    global _exit_status
    try:
        _hook(kind, error, trace)
    finally:  # also where a hook of the user's fails
        break_off(error)
    if not _broken:
        return
    if isinstance(error, DistributedError) and error.rank not in (None, seat().rank):
        _exit_status = PEER_FAILED
    else:
        _exit_status = 130 if isinstance(error, KeyboardInterrupt) else 1
    if not (sys.flags.interactive or hasattr(sys, "ps1")):  # else the process goes on
        with suppress(RuntimeError):  # no more threads
            threading.Thread(target=_end_late, daemon=True).start()


def _end_late() -> None:
    """End the process though a thread of the user's, or a handler that runs before ours, does not let it end."""
    time.sleep(LAST_RESORT)
    _flush_open_files()
    os._exit(_exit_status)


def _at_exit() -> None:
    """Runs after handlers that were registered later, and before those of frameworks, which may wait for ever."""
    if _membership is not None and not _broken:
        _membership.left()
    elif not _broken:
        return
    with suppress(OSError, ValueError):  # too many open files, and stderr is closed
        faulthandler.dump_traceback_later(LAST_RESORT, exit=True, file=_null())
    if _exit_status:
        _flush_open_files()
        if _exit_status == PEER_FAILED:
            end_after_the_failed(seat())
        os._exit(_exit_status)


def _null() -> Any:
    """A file that takes what nobody needs, until the process has ended; stderr where no file can be opened."""
    try:
        return open(os.devnull, "w")
    except OSError:
        return sys.__stderr__


def _flush_open_files() -> None:
    """Write what is buffered for every open file, which ``os._exit`` would lose."""
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    # by type(): isinstance() would run the __class__ property of lazy objects
    files: list[Any] = [thing for thing in gc.get_objects() if issubclass(type(thing), io.IOBase)]
    for file in (*files, sys.stdout, sys.stderr):
        try:
            if not file.closed and file.writable():
                file.flush()
        except (OSError, ValueError):  # closed meanwhile, or a full disk
            continue
