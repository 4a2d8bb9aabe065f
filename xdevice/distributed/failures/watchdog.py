"""The watchdog thread of a process in a job: it receives failures, and ends a process whose engine hangs."""

from __future__ import annotations

import faulthandler
import os
import selectors
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Protocol

from xdevice.distributed.failures.errors import error_of_rank, exit_after_failed_rank, reported, undiagnosed
from xdevice.distributed.failures.timeouts import ANSWER, DIAGNOSIS, LEAVING
from xdevice.errors import DistributedError

if TYPE_CHECKING:
    from xdevice.distributed.channel import Channel
    from xdevice.distributed.process_info import ProcessInfo


class Watched(Protocol):
    """What the watchdog needs of a `Membership`, which imports this module."""

    info: ProcessInfo
    timeout: float  # seconds that the engine may take
    failure: DistributedError | None
    inside: tuple[str, float] | None  # the engine's present work, and when it began
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
                self._control.send(where=self._where())
            elif "error" in message:
                self._membership.fail(reported(message))
                self._leave_engine(patience)
        return True

    def _watch_the_clock(self) -> None:
        """End the process if the engine takes too long; rank 0 has time to say which rank has failed."""
        membership = self._membership
        inside = membership.inside
        if inside is None or time.monotonic() - inside[1] < membership.timeout:
            return
        self._control.send(stuck=inside[0])
        deadline = time.monotonic() + DIAGNOSIS
        while time.monotonic() < deadline and membership.inside is inside:
            if not self._receive(0.2, patience=0):
                break
        if membership.inside is inside:
            self._end(membership.fail(undiagnosed(membership.info, inside[0], membership.timeout)))

    def _leave_engine(self, patience: float) -> None:
        """End the process unless the engine returns within ``patience`` seconds."""
        membership = self._membership
        inside, deadline = membership.inside, time.monotonic() + patience
        while inside is not None and membership.inside is inside:
            if time.monotonic() > deadline:
                self._end(membership.failure)
            time.sleep(0.05)

    def _where(self) -> str:
        """Where the main thread is: in the engine, or a line of the user's own file."""
        if self._membership.inside is not None:
            return f"inside {self._membership.inside[0]}"
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # the only access to another thread's frames
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
