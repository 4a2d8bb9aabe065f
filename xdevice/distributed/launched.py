"""Membership of a job that ``xdevice launch`` has started: its launcher knows all processes."""

import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from xdevice.contract import Job
from xdevice.distributed.deadlines import DIAGNOSIS, LEAVING, REPORT
from xdevice.distributed.failures import (
    FailedWork,
    Work,
    as_text,
    error_in_message,
    error_of_rank,
)
from xdevice.distributed.membership import Membership
from xdevice.distributed.messages import LAST_COLLECTIVE, Channel, Fingerprint
from xdevice.errors import DistributedError


class LaunchedMembership(Membership):
    """The watchdog thread reads the control channel.

    By it the launcher reports failures, and asks where this process is.
    """

    def __init__(self, job: Job, timeout: float, agreed: dict[str, Any], path: str) -> None:
        super().__init__(job, timeout)
        self._failure_is_known = threading.Event()
        self._has_left = False  # by the last collective
        self._failed_work: FailedWork | None = None  # the work in which the engine has raised
        self._extended_work: Work | None = None  # the work that may take its extra time
        self._extensions = 0
        self._barrier = _connect(path)
        self._control = _connect(path)
        message = {"rank": job.rank, "pid": os.getpid(), "start": timeout, "agreed": agreed}
        for kind, channel in (("barrier", self._barrier), ("control", self._control)):
            channel.send(channel=kind, **message)
        answer = self._answer(self._barrier.receive())
        self.job = replace(job, name=answer["name"])
        # `select.select` fails above descriptor 1023.
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ)
        self._watchdog = threading.Thread(
            target=self._watch, name="xdevice.distributed.watchdog", daemon=True
        )
        self._watchdog.start()

    def enter(self, fingerprint: Fingerprint) -> None:
        self._raise_failure()
        self._barrier.send(**fingerprint.message())
        try:
            answer = self._barrier.receive()
        except BaseException as error:
            # After Ctrl-C the answer may still come. The next collective would
            # take it for its own.
            self._interrupt(error)
            raise
        self._has_left = self._answer(answer)["entered"] == LAST_COLLECTIVE

    def _answer(self, message: dict[str, Any] | None) -> dict[str, Any]:
        """The launcher's answer, if it is not the job's failure."""
        if message is None:
            self.fail(DistributedError("xdevice launch has ended"))
        elif "error" in message:
            self.fail(error_in_message(message))
        self._raise_failure()
        return message or {}

    def shut_down(self, stop: Callable[[], None]) -> None:
        self.enter(Fingerprint("shutdown()"))
        self.work("the end of the engine", stop)
        # No process expects another collective after this one.
        self.enter(Fingerprint(LAST_COLLECTIVE))

    def engine_error(self, error: Exception, name: str) -> DistributedError:
        """The error to raise in place of the engine's.

        It is another process's failure, if one is reported.
        """
        work = self._work
        is_timed_out = False
        if work is not None:
            is_timed_out = work.seconds > self.timeout
            # Before `_work` is cleared: the launcher may ask the watchdog at
            # any time.
            self._failed_work = FailedWork(work, as_text(error), is_timed_out)
        self._work = None
        if is_timed_out:  # the launcher may have asked just before the engine raised
            self._control.send(**self._whereabouts())
        if not self._failure_is_known.wait(LEAVING):
            if is_timed_out:  # another process is the reason, and the launcher finds out which
                self._control.send(stuck=True, **self._whereabouts())
                self._failure_is_known.wait(DIAGNOSIS)
            self.report_error(error)
        self.failure_was_raised = True
        failure = self.failure
        if failure is None or failure.rank == self.job.rank:
            return DistributedError(f"{name} failed on rank {self.job.rank}: {error}")
        return failure

    def fail(self, error: DistributedError) -> DistributedError:
        failure = super().fail(error)
        self._failure_is_known.set()
        return failure

    # Telling the other processes

    def report_error(self, error: BaseException) -> None:
        self._report(raised=as_text(error))

    def report_exit(self) -> None:
        self._report(left=True)

    def _report(self, **message: Any) -> None:
        if self.failure is None:
            self._control.send(**message)
            self._failure_is_known.wait(REPORT)

    # The end

    def close(self) -> None:
        self._barrier.close()
        with suppress(OSError):
            self._control.socket.shutdown(socket.SHUT_RDWR)  # which wakes the watchdog
        if threading.current_thread() is not self._watchdog:
            self._watchdog.join(5)
        self._control.close()

    def close_descriptors(self) -> None:
        self._barrier.close()
        self._control.close()

    # The watchdog thread

    def _watch(self) -> None:
        """Read the control channel until it closes, and watch the engine's time."""
        try:
            while self._receive(0.5):
                self._check_clock()
        except Exception as error:  # without this thread an engine could hang for ever
            self._control.send(raised=f"{error!r} in the thread that watches the job")
            message = f"rank {self.job.rank} can no longer watch the job: {error!r}"
            self.fail(error_of_rank(message, self.job.rank))
            self._leave_engine(LEAVING)
        finally:
            self._selector.close()

    def _receive(self, seconds: float, patience: float = LEAVING) -> bool:
        """Wait for messages and act on them; whether the channel is still open.

        After a failure the engine has ``patience`` seconds to return.
        """
        if not self._selector.select(seconds):
            return True
        messages = self._control.read()
        if messages is None:
            if not self._has_left:
                self.fail(DistributedError("xdevice launch has ended"))
                self._leave_engine(patience)
            return False
        for message in messages:
            if "where" in message:
                self._control.send(**self._whereabouts())
            elif "extended" in message:
                self._extended_work = self._work
                self._extensions += 1
            elif "error" in message:
                self.fail(error_in_message(message))
                self._leave_engine(patience)
        return True

    def _check_clock(self) -> None:
        """Watch the engine's time.

        After the timeout, the launcher is told that the engine still works,
        and this thread waits for its diagnosis. The process ends unless the
        launcher names a failed rank or extends the time.
        """
        work = self._work
        if work is None:
            return
        extra = work.extra if work is self._extended_work else 0.0
        if work.seconds < self.timeout + extra:
            return
        extensions = self._extensions

        def is_undecided() -> bool:
            return self._work is work and self._extensions == extensions

        self._control.send(stuck=True, **self._whereabouts())
        deadline = time.monotonic() + DIAGNOSIS
        while time.monotonic() < deadline and is_undecided():
            if not self._receive(0.2, patience=0):
                break
        if is_undecided():
            self._exit(self.fail(self._undiagnosed(work)))

    def _whereabouts(self) -> dict[str, Any]:
        """Where this process is, and its engine's time.

        The time is how long the engine has worked, and may still work.
        """
        failed = self._failed_work
        if failed is not None:
            answer: dict[str, Any] = {
                "where": f"inside {failed.work.name}",
                "engine_error": failed.error,
            }
            if failed.is_timed_out:
                answer["engine"] = [failed.work.seconds, 0.0]
            return answer
        work = self._work
        if work is None:
            return {"where": _current_line()}
        seconds_left = self.timeout + work.extra - work.seconds
        return {"where": f"inside {work.name}", "engine": [work.seconds, seconds_left]}


def _connect(path: str) -> Channel:
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
    except OSError as error:
        raise DistributedError(
            f"this process cannot connect to xdevice launch at {path!r}: {error.strerror}"
        ) from error
    return Channel(connection)


def _current_line() -> str:
    """The line of the user's own file that the main thread runs."""
    frames = sys._current_frames()  # the only access to another thread's frames
    frame = frames.get(threading.main_thread().ident or 0)
    while frame is not None:
        file = frame.f_code.co_filename
        is_installed = "site-packages" in file or os.sep + "lib" + os.sep in file
        if not is_installed and not str(frame.f_globals.get("__name__")).startswith("xdevice."):
            return f"at {file}:{frame.f_lineno}"
        frame = frame.f_back
    return "at work"
