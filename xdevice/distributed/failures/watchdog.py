"""The watchdog thread of a process in a job: it receives failures, and ends a process whose engine hangs."""

import faulthandler
import os
import selectors
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from xdevice.distributed.channel import Channel
from xdevice.distributed.failures.errors import error_of_rank, exit_after_failed_rank, reported, undiagnosed
from xdevice.distributed.failures.timeouts import ANSWER, DIAGNOSIS, LEAVING, Work
from xdevice.distributed.process_info import ProcessInfo
from xdevice.errors import DistributedError


class Watched(Protocol):
    """What the watchdog needs of a `Membership`, which imports this module."""

    info: ProcessInfo
    timeout: float  # seconds after which the engine's work is reported
    failure: DistributedError | None
    inside: Work | None  # the engine's present work
    gave_up: Work | None  # the work with which the engine has failed after the timeout
    last: str  # the last collective

    def fail(self, error: DistributedError) -> DistributedError: ...
    def rank_0_gone(self) -> DistributedError: ...


class Watchdog(threading.Thread):
    """Reads the control channel until it closes."""

    def __init__(self, membership: Watched, control: Channel) -> None:
        super().__init__(name="xdevice.distributed.watchdog", daemon=True)
        self._membership, self._control = membership, control
        self._selector = selectors.DefaultSelector()  # select.select ends at descriptor 1023
        self._selector.register(control, selectors.EVENT_READ)
        self._extended: Work | None = None  # the work that may take its extra time
        self._extensions = 0

    def run(self) -> None:
        try:
            while self._receive(0.5):
                self._watch_the_clock()
        except Exception as error:  # without this thread an engine could hang for ever
            rank = self._membership.info.rank
            message = f"rank {rank} can no longer watch the job: {error!r}"
            self._control.send(raised=f"{error!r} in the thread that watches the job")
            self._membership.fail(error_of_rank(DistributedError, message, rank))
            self._leave_engine(LEAVING)
        finally:
            self._selector.close()

    def _receive(self, seconds: float, patience: float = LEAVING) -> bool:
        """Wait so long for messages, and act on them; whether the channel is still open.

        ``patience`` is how long the engine may take to return once the job has failed.
        """
        if not self._selector.select(seconds):
            return True
        messages = self._control.read()
        if messages is None:
            if self._membership.failure is None and self._membership.last != "shutdown":
                self._membership.fail(self._membership.rank_0_gone())
                self._leave_engine(patience)
            return False
        for message in messages:
            if "where" in message:
                self._control.send(**self._report())
            elif "extended" in message:
                self._extended, self._extensions = self._membership.inside, self._extensions + 1
            elif "error" in message:
                self._membership.fail(reported(message))
                self._leave_engine(patience)
        return True

    def _watch_the_clock(self) -> None:
        """Report that the engine takes long; end the process unless rank 0 says why, or extends the time."""
        membership, before = self._membership, self._extensions
        work = membership.inside
        if work is None or work.seconds < membership.timeout + (work.extra if work is self._extended else 0.0):
            return
        self._control.send(stuck=True, **self._report())
        deadline = time.monotonic() + DIAGNOSIS
        while time.monotonic() < deadline and membership.inside is work and self._extensions == before:
            if not self._receive(0.2, patience=0):
                break
        if membership.inside is work and self._extensions == before:
            self._end(membership.fail(undiagnosed(membership.info, work.what, work.seconds)))

    def _leave_engine(self, patience: float) -> None:
        """End the process unless the engine returns within ``patience`` seconds."""
        membership = self._membership
        inside, deadline = membership.inside, time.monotonic() + patience
        while inside is not None and membership.inside is inside:
            if time.monotonic() > deadline:
                self._end(membership.failure)
            time.sleep(0.05)

    def _report(self) -> dict[str, Any]:
        """Where this process is; for how many seconds it has been in the engine, and how many more it may be."""
        work, gave_up = self._membership.inside, self._membership.gave_up
        if gave_up is not None:
            return {"where": f"inside {gave_up.what}", "engine": [gave_up.seconds, 0.0]}
        if work is None:
            return {"where": _line()}
        left = self._membership.timeout + work.extra - work.seconds
        return {"where": f"inside {work.what}", "engine": [work.seconds, left]}

    def _end(self, error: BaseException | None) -> NoReturn:
        """End the process: its main thread is in an engine that does not return."""
        with suppress(RuntimeError):  # no more threads
            # in a thread of its own: stderr may be a full pipe, or closed, or locked by a thread that never releases it
            printing = threading.Thread(target=_print_why, args=(error,), daemon=True)
            printing.start()
            printing.join(ANSWER)
        exit_after_failed_rank(self._membership.info)


def _print_why(error: BaseException | None) -> None:
    with suppress(Exception):
        print(f"xdevice: {error}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
    with suppress(Exception):
        sys.stdout.flush()


def _line() -> str:
    """The line of the user's own file at which the main thread is."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # the only access to another thread's frames
    frame = frames.get(threading.main_thread().ident or 0)
    while frame is not None:
        file = frame.f_code.co_filename
        foreign = "site-packages" in file or os.sep + "lib" + os.sep in file
        if not foreign and not str(frame.f_globals.get("__name__")).startswith("xdevice."):
            return f"at {file}:{frame.f_lineno}"
        frame = frame.f_back
    return "at work"
