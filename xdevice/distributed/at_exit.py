"""The at-exit guard of a process in a job.

At the end of a process that fails, its engine would wait for its peers, and they for it. So the guard tells the
others of the failure, and ends the process where its frameworks take too long.
"""

import atexit
import faulthandler
import gc
import io
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from xdevice.distributed.failures import LAST_RESORT, PEER_FAILED, exit_after_failed_rank
from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import NO_LAUNCHER, ProcessInfo
from xdevice.errors import DistributedError, DistributedTimeoutError

_membership: Membership | None = None  # while this process is in a group
_info = NO_LAUNCHER  # of the last group that it has joined
_broken = False  # whether it has left one whose engine could not be stopped
_exit_status = 0  # what it is to end with, once an error has ended it
_hook: Any = None  # the excepthook that was there before


@contextmanager
def joining(info: ProcessInfo) -> Generator[None, None, None]:
    """While the processes meet: an error ends this one as it would later."""
    global _broken, _info, _hook
    _info = info
    if _hook is None:
        _hook, sys.excepthook = sys.excepthook, _on_exception
        atexit.register(_at_exit)
    try:
        yield
    except BaseException:
        _broken = True
        raise


def guard(membership: Membership) -> None:
    """From now on the others are told when this process ends."""
    global _membership, _broken
    _membership, _broken = membership, False


def release() -> None:
    global _membership
    _membership = None


def reset_in_child() -> None:
    """In a forked child, which tells the others nothing."""
    global _membership, _broken, _exit_status
    _membership, _broken, _exit_status = None, False, 0


def abort(error: BaseException) -> None:
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
        abort(error)
    if not _broken:
        return
    _exit_status = 130 if isinstance(error, KeyboardInterrupt) else 1
    own = (_info.rank,) if isinstance(error, DistributedTimeoutError) else (_info.rank, None)
    if isinstance(error, DistributedError) and error.rank not in own:  # because of another rank, or of the network
        _exit_status = PEER_FAILED
    if not (sys.flags.interactive or hasattr(sys, "ps1")):  # else the process goes on
        with suppress(RuntimeError):  # no more threads
            threading.Thread(target=_end_late, daemon=True).start()


def _end_late() -> None:
    """End the process if a thread of the user's, or a handler that runs before ours, keeps it alive."""
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
            exit_after_failed_rank(_info)
        os._exit(_exit_status)


def _null() -> Any:
    """A file that discards what is written to it; stderr where no file can be opened."""
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
        with suppress(OSError, ValueError):  # closed meanwhile, or a full disk
            if not file.closed and file.writable():
                file.flush()
