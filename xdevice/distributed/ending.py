"""The end of a process that is in a job.

An engine left behind by a process that fails would wait for its peers, and they for it. So the others are told,
and what hangs on the way out is cut short.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import io
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xdevice.distributed.member import PEER_FAILED, Membership, end_after_the_failed
from xdevice.distributed.seat import seat
from xdevice.errors import DistributedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

LAST_RESORT = 10.0
"""Seconds that frameworks may take to end in a process that has failed."""

_members: Membership | None = None  # while this process is in a group
_broken = False  # whether it has left one whose engine could not be stopped
_exit_status = 0  # what it is to end with, once an error has ended it
_in_child: Callable[[], None] | None = None  # what a forked child has to do
_hook: Any = None  # the excepthook that was there before


@contextmanager
def minded() -> Generator[None, None, None]:
    """While the processes meet: an error ends this one as it would later."""
    global _broken
    _install()
    try:
        yield
    except BaseException:
        _broken = True
        raise


def mind(members: Membership, forget_in_child: Callable[[], None]) -> None:
    """From now on the process does not end without telling the others; its forked children say nothing."""
    global _members, _broken, _in_child
    _members, _broken, _in_child = members, False, forget_in_child


def _install() -> None:
    global _hook
    if _hook is None:
        _hook, sys.excepthook = sys.excepthook, _on_exception
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    global _members, _broken, _exit_status
    _members, _broken, _exit_status = None, False, 0
    if _in_child is not None:
        _in_child()


def forget() -> None:
    """The process has left the group."""
    global _members
    _members = None


def break_off(error: BaseException) -> None:
    """Tell the others of an error with which the process leaves the group."""
    global _broken
    if _members is not None:
        _broken = True
        _members.raised(error)


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    global _exit_status
    _hook(kind, error, trace)
    break_off(error)
    if not _broken:
        return
    if isinstance(error, DistributedError) and error.rank not in (None, seat().rank):
        _exit_status = PEER_FAILED
    else:
        _exit_status = 130 if isinstance(error, KeyboardInterrupt) else 1


def _at_exit() -> None:
    """Runs after handlers that were registered later, and before those of frameworks, which may wait for ever."""
    if _members is not None and not _broken:
        _members.left()
    elif not _broken:
        return
    faulthandler.dump_traceback_later(LAST_RESORT, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115  (for ever)
    if _exit_status:
        _flush_all()
        if _exit_status == PEER_FAILED:
            end_after_the_failed(seat())
        os._exit(_exit_status)


def _flush_all() -> None:
    """Bring what the program has written to its files: nobody closes them now."""
    if "logging" in sys.modules:
        sys.modules["logging"].shutdown()
    # by its type: asking some things for their class wakes them
    files: list[Any] = [thing for thing in gc.get_objects() if issubclass(type(thing), io.IOBase)]
    for file in (*files, sys.stdout, sys.stderr):
        try:
            if not file.closed and file.writable():
                file.flush()
        except (OSError, ValueError):
            pass
