"""A process's membership of its job: the barrier, and a watchdog for failures."""

import faulthandler
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from xdevice.distributed.barriers import Barrier
from xdevice.distributed.failures import (
    FailedWork,
    Work,
    error_in_message,
    error_of_rank,
    exit_after_failed_rank,
    undiagnosed,
)
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.joining import join
from xdevice.distributed.rendezvous.messages import LAST_COLLECTIVE, Fingerprint
from xdevice.errors import DistributedError
from xdevice.distributed.deadlines import ANSWER, DIAGNOSIS, LEAVING, REPORT

T = TypeVar("T")

_LONGEST_ERROR = 2000  # characters of an error that the other processes are sent


class Membership:
    """What a process has from joining the job to leaving it.

    The main thread enters collectives and works in the engine. Meanwhile the
    watchdog thread reads the control channel, by which rank 0 reports failures
    and asks where this process is.
    """

    def __init__(self, info: ProcessInfo, timeout: float, agreed: dict[str, Any]) -> None:
        self.info = info
        self.timeout = timeout  # of the rendezvous; `set_timeout` changes it
        self.failure: DistributedError | None = None
        self.failure_was_raised = False
        self.last = "nothing yet"  # the last collective that all processes entered
        self._failure_is_known = threading.Event()

        self._work: Work | None = None  # what the engine does now
        self._failed_work: FailedWork | None = None  # the work in which the engine has raised
        self._extra = 0.0  # seconds that other processes may take longer for the last work
        self._extended_work: Work | None = None  # the work that may take its extra time
        self._extensions = 0

        self._coordinator, channel, self._control, self.job = join(info, agreed, timeout)
        entered: Callable[[str], None] = _do_nothing
        if self._coordinator is not None:
            entered = self._coordinator.have_entered
        self._barrier = Barrier(channel, info, self.job, entered)
        try:
            # `select.select` fails above descriptor 1023.
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._control, selectors.EVENT_READ)
            self._watchdog = threading.Thread(
                target=self._watch, name="xdevice.distributed.watchdog", daemon=True
            )
            self._watchdog.start()
        except BaseException:  # too many open files or threads
            self._barrier.close()  # the others hear at once that this process has gone
            self._control.close()
            raise

    def set_timeout(self, seconds: float) -> None:
        self.timeout = seconds
        if self._coordinator is not None:
            self._coordinator.timeout = seconds

    # Collectives: first the barrier, then the engine's work

    def enter(self, fingerprint: Fingerprint) -> None:
        """Return when every process has called this with the same fingerprint."""
        self._raise_failure()
        try:
            answer = self._barrier.enter(fingerprint, self.timeout + self._extra)
        except TimeoutError:
            message = (
                f"rank 0 (at {self.info.host}) has not answered for {self.timeout:g} s, so rank "
                f"{self.info.rank} cannot enter {fingerprint.name}: it is stopped, or its host is"
            )
            self.fail(error_of_rank(message, 0, late=True))
        except BaseException as error:
            # After Ctrl-C the answer may still come. The next collective would
            # take it for its own.
            self._interrupt(error)
            raise
        else:
            if answer and "entered" in answer:
                self.last = fingerprint.name
                return
            self.fail(error_in_message(answer) if answer else self._rank_0_has_gone())
        self._raise_failure()

    def work(self, name: str, action: Callable[[], T], extra: float = 0.0) -> T:
        """Let the engine work.

        Other threads watch the other processes and the clock meanwhile.

        ``extra`` is that of `Work`.
        """
        self.begin_work(name, extra)
        try:
            result = action()
        except Exception as error:
            raise self.engine_error(error, name) from error
        except BaseException as error:
            self._interrupt(error)
            raise
        self.end_work()
        return result

    def begin_work(self, name: str, extra: float = 0.0) -> None:
        """Start the clock.

        The watchdog acts after the timeout and the extra seconds.
        """
        self._work = Work(name, extra)
        self._extra = extra
        # The failure may have come after the barrier, when the watchdog saw no
        # work to end.
        if self.failure is not None:
            self.end_work()

    def end_work(self) -> None:
        self._work = None
        self._raise_failure()

    def engine_error(self, error: Exception, name: str) -> DistributedError:
        """The error to raise in place of the engine's.

        It is another process's failure, if one is reported.
        """
        work = self._work
        is_timed_out = False
        if work is not None:
            is_timed_out = work.seconds > self.timeout
            # Before `_work` is cleared: rank 0 may ask the watchdog at any
            # time.
            self._failed_work = FailedWork(work, _as_text(error), is_timed_out)
        self._work = None
        if is_timed_out:  # rank 0 may have asked just before the engine raised
            self._control.send(**self._whereabouts())
        if not self._failure_is_known.wait(LEAVING):
            if work is not None and is_timed_out:
                # Another process is the reason, and rank 0 finds out which; or
                # it is rank 0 itself.
                self._control.send(stuck=True, **self._whereabouts())
                if not self._failure_is_known.wait(DIAGNOSIS) and self.info.rank:
                    self.fail(undiagnosed(self.info, work))
            self.report_error(error)
        self.failure_was_raised = True
        failure = self.failure
        if failure is None or failure.rank == self.info.rank:
            return DistributedError(f"{name} failed on rank {self.info.rank}: {error}")
        return failure

    def fail(self, error: DistributedError) -> DistributedError:
        """The failure of the job: this error, or an earlier one."""
        if self.failure is None:
            self.failure = error
        self._failure_is_known.set()
        return self.failure

    def _raise_failure(self) -> None:
        if self.failure is not None:
            self.failure_was_raised = True
            raise self.failure

    def _interrupt(self, error: BaseException) -> None:
        """This process has left a collective early: the job cannot go on."""
        self._work = None
        self.report_error(error)
        rank = self.info.rank
        self.fail(error_of_rank(f"rank {rank} was interrupted in a collective", rank))

    def _rank_0_has_gone(self) -> DistributedError:
        return error_of_rank(
            f"rank 0 (at {self.info.host}) has gone: it was killed, or ended without shutdown()", 0
        )

    # Telling the other processes

    def report_error(self, error: BaseException) -> None:
        self._report(raised=_as_text(error))

    def report_exit(self) -> None:
        self._report(left=True)

    def _report(self, **message: Any) -> None:
        if self.failure is None:
            self._control.send(**message)
            self._failure_is_known.wait(REPORT)

    # The end

    def close(self) -> None:
        """Close the channels.

        After the last collective no other process expects this one.
        """
        self._barrier.close()
        with suppress(OSError):
            self._control.socket.shutdown(socket.SHUT_RDWR)  # which wakes the watchdog
        if threading.current_thread() is not self._watchdog:
            self._watchdog.join(5)
        self._control.close()
        if self._coordinator is not None:
            self._coordinator.join(1)  # the other processes may take longer, or never close theirs

    def close_descriptors(self) -> None:
        """In a forked child: close the parent's descriptors; send nothing."""
        self._barrier.close()
        self._control.close()
        if self._coordinator is not None:
            self._coordinator.close()

    # The watchdog thread

    def _watch(self) -> None:
        """Read the control channel until it closes, and watch the engine's time."""
        try:
            while self._receive(0.5):
                self._check_clock()
        except Exception as error:  # without this thread an engine could hang for ever
            self._control.send(raised=f"{error!r} in the thread that watches the job")
            message = f"rank {self.info.rank} can no longer watch the job: {error!r}"
            self.fail(error_of_rank(message, self.info.rank))
            self._leave_engine(LEAVING)
        finally:
            self._selector.close()

    def _receive(self, seconds: float, patience: float = LEAVING) -> bool:
        """Wait for messages and act on them.

        Returns whether the channel is still open.

        After a failure the engine has ``patience`` seconds to return.
        """
        if not self._selector.select(seconds):
            return True
        messages = self._control.read()
        if messages is None:
            if self.failure is None and self.last != LAST_COLLECTIVE:
                self.fail(self._rank_0_has_gone())
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

        After the timeout, rank 0 is told that the engine still works, and
        this thread waits for its diagnosis.

        The process ends unless rank 0 names a failed rank or extends the time.
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
            self._exit(self.fail(undiagnosed(self.info, work)))

    def _leave_engine(self, patience: float) -> None:
        """End the process if the engine works for ``patience`` more seconds."""
        work = self._work
        deadline = time.monotonic() + patience
        while work is not None and self._work is work:
            if time.monotonic() > deadline:
                self._exit(self.failure)
            time.sleep(0.05)

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

    def _exit(self, error: BaseException | None) -> NoReturn:
        """End the process, whose main thread is in an engine that hangs."""
        with suppress(RuntimeError):  # no more threads
            # In a thread of its own, because printing may never return: stderr
            # may be a full pipe, or locked by another thread.
            printing = threading.Thread(target=_print_error, args=(error,), daemon=True)
            printing.start()
            printing.join(ANSWER)
        exit_after_failed_rank(self.info)


def _as_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]


def _do_nothing(_: str) -> None:
    pass


def _print_error(error: BaseException | None) -> None:
    with suppress(Exception):
        print(f"xdevice: {error}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
    with suppress(Exception):
        sys.stdout.flush()


def _current_line() -> str:
    """The line of the user's own file that the main thread runs."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # the only access to another thread's frames
    frame = frames.get(threading.main_thread().ident or 0)
    while frame is not None:
        file = frame.f_code.co_filename
        is_installed = "site-packages" in file or os.sep + "lib" + os.sep in file
        if not is_installed and not str(frame.f_globals.get("__name__")).startswith("xdevice."):
            return f"at {file}:{frame.f_lineno}"
        frame = frame.f_back
    return "at work"
