"""The end of a process that is in a job.

An engine left behind by a process that fails would wait for its peers, and they for it. So the others are told,
and what hangs on the way out is cut short.
"""

from __future__ import annotations

import atexit
import faulthandler
import os
import sys
from typing import TYPE_CHECKING, Any

from xdevice.distributed.environment import seat
from xdevice.distributed.member import PEER_FAILED, Membership
from xdevice.errors import DistributedError

if TYPE_CHECKING:
    from types import TracebackType

LAST_RESORT = 10.0
"""Seconds that a process which has failed may take to end."""

_members: Membership | None = None  # while this process is in a group
_broken = False  # whether it has left one whose engine could not be stopped
_exit_status = 0  # what it is to end with, once an error has ended it
_hook: Any = None  # the excepthook that was there before


def mind(members: Membership) -> None:
    """From now on the process does not end without telling the others."""
    global _members, _broken, _hook
    _members, _broken = members, False
    if _hook is None:
        _hook, sys.excepthook = sys.excepthook, _on_exception
        atexit.register(_at_exit)


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


def end_with(error: BaseException) -> None:
    """Let the process end with the status that belongs to the error, and not take long."""
    global _exit_status
    if isinstance(error, SystemExit):
        _exit_status = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif isinstance(error, DistributedError) and error.rank not in (None, seat().rank):
        _exit_status = PEER_FAILED
    else:
        _exit_status = 130 if isinstance(error, KeyboardInterrupt) else 1
    _cut_short()


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _hook(kind, error, trace)
    break_off(error)
    if _broken:
        end_with(error)


def _at_exit() -> None:
    """Runs after handlers that were registered later, and before those of frameworks, which may wait for ever."""
    if _members is not None and not _broken:
        _members.left()
        _cut_short()
    if _exit_status:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass
        os._exit(_exit_status)


def _cut_short() -> None:
    faulthandler.dump_traceback_later(LAST_RESORT, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115  (for ever)
