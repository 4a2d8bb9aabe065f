"""The thread that watches over a process of a job: it hears of failures, and ends a process whose engine hangs."""

from __future__ import annotations

import faulthandler
import os
import selectors
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Protocol

from xdevice.distributed.failing import blamed, end_after_the_failed, failed, without_verdict
from xdevice.distributed.periods import ANSWER, LEAVING, VERDICT
from xdevice.errors import DistributedError

if TYPE_CHECKING:
    from xdevice.distributed.lines import Line
    from xdevice.distributed.seat import Seat


class Watched(Protocol):
    """What the watcher reads of a membership, which is above this file, and does to it."""

    seat: Seat
    timeout: float  # seconds that the engine may take
    failure: DistributedError | None
    inside: tuple[str, float] | None  # the engine's work that goes on, and since when
    last: str  # the last collective

    def fail(self, error: DistributedError) -> DistributedError: ...
    def rank_0_gone(self) -> DistributedError: ...


class Watcher(threading.Thread):
    """Listens at the alarm until it closes."""

    def __init__(self, membership: Watched, alarm: Line) -> None:
        super().__init__(name="xdevice.distributed.watcher", daemon=True)
        self._membership, self._alarm = membership, alarm
        self._selector = selectors.DefaultSelector()  # select.select ends at descriptor 1023
        self._selector.register(alarm, selectors.EVENT_READ)

    def run(self) -> None:
        try:
            while self._hear(0.5):
                self._watch_the_clock()
        except Exception as error:  # from now on a hanging engine would hang for ever
            rank = self._membership.seat.rank
            message = f"rank {rank} cannot watch the job any more: {error!r}"
            self._alarm.say(raised=f"{error!r} in the thread that watches the job")
            self._membership.fail(blamed(DistributedError, message, rank))
            self._leave_engine(LEAVING)
        finally:
            self._selector.close()

    def _hear(self, seconds: float, patience: float = LEAVING) -> bool:
        """Wait so long for news, and act on them; whether the line is still open.

        ``patience`` is how long the engine may take to return once the job has failed.
        """
        if not self._selector.select(seconds):
            return True
        messages = self._alarm.read()
        if messages is None:
            if self._membership.failure is None and self._membership.last != "shutdown":
                self._membership.fail(self._membership.rank_0_gone())
                self._leave_engine(patience)
            return False
        for news in messages:
            if "where" in news:
                self._alarm.say(where=self._place())
            elif "error" in news:
                self._membership.fail(failed(news))
                self._leave_engine(patience)
        return True

    def _watch_the_clock(self) -> None:
        """End the process if the engine has worked for too long; rank 0 may say before which rank is to blame."""
        membership = self._membership
        inside = membership.inside
        if inside is None or time.monotonic() - inside[1] < membership.timeout:
            return
        self._alarm.say(stuck=inside[0])
        deadline = time.monotonic() + VERDICT
        while time.monotonic() < deadline and membership.inside is inside:
            if not self._hear(0.2, patience=0):
                break
        if membership.inside is inside:
            self._end(membership.fail(without_verdict(membership.seat, inside[0], membership.timeout)))

    def _leave_engine(self, patience: float) -> None:
        """Give the engine so many seconds to return; then end the process."""
        membership = self._membership
        inside, deadline = membership.inside, time.monotonic() + patience
        while inside is not None and membership.inside is inside:
            if time.monotonic() > deadline:
                self._end(membership.failure)
            time.sleep(0.05)

    def _place(self) -> str:
        """Where the main thread is, in the user's own file if there is one."""
        if self._membership.inside is not None:
            return f"inside {self._membership.inside[0]}"
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # nothing else shows another thread's
        frame = frames.get(threading.main_thread().ident or 0)
        while frame is not None:
            file = frame.f_code.co_filename
            foreign = "site-packages" in file or os.sep + "lib" + os.sep in file
            if not foreign and not str(frame.f_globals.get("__name__")).startswith("xdevice."):
                return f"at {file}:{frame.f_lineno}"
            frame = frame.f_back
        return "at work"

    def _end(self, error: BaseException | None) -> NoReturn:
        """End the process: its main thread is in an engine that does not return."""
        with suppress(RuntimeError):  # no more threads
            # in a thread of its own: stderr may be a full pipe, or closed, or locked by a thread that waits for ever
            farewell = threading.Thread(target=_say_why, args=(error,), daemon=True)
            farewell.start()
            farewell.join(ANSWER)
        end_after_the_failed(self._membership.seat)


def _say_why(error: BaseException | None) -> None:
    with suppress(Exception):
        print(f"xdevice: {error}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
    with suppress(Exception):
        sys.stdout.flush()
