"""A process's membership of its job: its barrier, and the watchdog thread that learns of failures from the others."""

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

from xdevice.distributed import failures
from xdevice.distributed.barriers import Barrier
from xdevice.distributed.failures import (
    Work,
    error_of_rank,
    exit_after_failed_rank,
    reported,
    undiagnosed,
)
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.joining import join
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.errors import DistributedError

T = TypeVar("T")


class Membership:
    def __init__(self, info: ProcessInfo, timeout: float, agreed: dict[str, Any]) -> None:
        self.info, self.timeout = info, timeout  # of the rendezvous; `wait_at_most` changes it
        self.failure: DistributedError | None = None
        self.told = False  # whether the failure has been raised
        self.inside: Work | None = None  # the engine's present work
        self.gave_up: Work | None = (
            None  # the work with which the engine has failed after the timeout
        )
        self._extra = 0.0  # seconds that other processes may take longer for the last work
        self._extended: Work | None = None  # the work that may take its extra time
        self._extensions = 0
        self.last = "nothing yet"
        self._reported = threading.Event()  # the failure of the job
        self._coordinator, channel, self._control, self.job = join(info, agreed, timeout)
        entered = self._coordinator.have_entered if self._coordinator else None
        self._barrier = Barrier(channel, info, self.job, entered or (lambda name: None))
        try:
            self._selector = selectors.DefaultSelector()  # select.select ends at descriptor 1023
            self._selector.register(self._control, selectors.EVENT_READ)
            self._watchdog = threading.Thread(
                target=self._watch, name="xdevice.distributed.watchdog", daemon=True
            )
            self._watchdog.start()
        except (
            BaseException
        ):  # too many open files or threads: the others hear at once that this process has gone
            self._barrier.close()
            self._control.close()
            raise

    def enter(self, fingerprint: Fingerprint) -> None:
        """Return when every process of the job is here, with the same fingerprint."""
        self._check()
        try:
            answer = self._barrier.enter(fingerprint, self.timeout + self._extra)
        except TimeoutError:
            why = f"has not answered for {self.timeout:g} s, so rank {self.info.rank} cannot enter {fingerprint.name}"
            message = f"rank 0 (at {self.info.host}) {why}: it is stopped, or its host is"
            self.fail(error_of_rank(message, 0, late=True))
        except (
            BaseException
        ) as error:  # Ctrl-C: an answer may still come, and would be taken for the next one's
            self.interrupted(error)
            raise
        else:
            if answer and "entered" in answer:
                self.last = fingerprint.name
                return
            self.fail(reported(answer) if answer else self.rank_0_gone())
        self._check()

    def wait_at_most(self, seconds: float) -> None:
        self.timeout = seconds
        if self._coordinator is not None:
            self._coordinator.timeout = seconds

    def work(self, what: str, engine: Callable[[], T], extra: float = 0.0) -> T:
        """Let the engine work, while other threads watch the other processes and the clock; ``extra`` as in `Work`."""
        self.engine_begins(what, extra)
        try:
            result = engine()
        except Exception as error:
            raise self.explained(error, what) from error
        except BaseException as error:
            self.interrupted(error)
            raise
        self.engine_returned()
        return result

    def engine_begins(self, what: str, extra: float = 0.0) -> None:
        """From now on the engine works; the watchdog ends the process if it takes ``extra`` beyond the timeout."""
        self.inside, self._extra = Work(what, extra), extra
        if (
            self.failure is not None
        ):  # reported since the barrier, when the watchdog saw no work to end
            self.engine_returned()

    def engine_returned(self) -> None:
        self.inside = None
        self._check()

    def _check(self) -> None:
        if self.failure is not None:
            self.told = True
            raise self.failure

    def raised(self, error: BaseException) -> None:
        self._tell(raised=f"{type(error).__name__}: {error}"[:2000])

    def left(self) -> None:
        self._tell(left=True)

    def _tell(self, **message: Any) -> None:
        if self.failure is None:
            self._control.send(**message)
            self._reported.wait(failures.REPORT)

    def interrupted(self, error: BaseException) -> None:
        """This process has left a collective in the middle: the job cannot go on."""
        self.inside = None
        self.raised(error)
        self.fail(
            error_of_rank(f"rank {self.info.rank} was interrupted in a collective", self.info.rank)
        )

    def explained(self, error: Exception, what: str) -> DistributedError:
        """Why the engine's work has failed: because of another process, if one is reported."""
        inside, self.inside = self.inside, None
        if not self._reported.wait(failures.LEAVING):
            if (
                inside is not None and inside.seconds > self.timeout
            ):  # because of a process that rank 0 finds, or of it
                self.gave_up = inside
                self._control.send(stuck=True, **self._report())
                if not self._reported.wait(failures.DIAGNOSIS) and self.info.rank:
                    self.fail(undiagnosed(self.info, inside))
            self.raised(error)
        failure, self.told = self.failure, True
        if failure is None or getattr(failure, "rank", None) == self.info.rank:
            return DistributedError(f"{what} failed on rank {self.info.rank}: {error}")
        return failure

    def fail(self, error: DistributedError) -> DistributedError:
        """The job has failed with this error; with an earlier one, if there is one."""
        if self.failure is None:
            self.failure = error
        self._reported.set()
        return self.failure

    def rank_0_gone(self) -> DistributedError:
        return error_of_rank(
            f"rank 0 (at {self.info.host}) has gone: it was killed, or ended without shutdown()", 0
        )

    def close(self) -> None:
        """Close the channels; after the collective "shutdown" no other process expects this one."""
        self._barrier.close()
        with suppress(OSError):
            self._control.socket.shutdown(socket.SHUT_RDWR)  # which wakes the watchdog
        if threading.current_thread() is not self._watchdog:
            self._watchdog.join(5)
        self._control.close()
        if self._coordinator is not None:
            self._coordinator.join(1)  # the other processes may take longer, or never close theirs

    def close_descriptors(self) -> None:
        """In a forked child: close what is the parent's, and send nothing."""
        self._barrier.close()
        self._control.close()
        if self._coordinator is not None:
            self._coordinator.close()

    def _watch(self) -> None:
        """The watchdog: it reads the control channel until that closes."""
        try:
            while self._receive(0.5):
                self._watch_the_clock()
        except Exception as error:  # without this thread an engine could hang for ever
            self._control.send(raised=f"{error!r} in the thread that watches the job")
            why = f"rank {self.info.rank} can no longer watch the job: {error!r}"
            self.fail(error_of_rank(why, self.info.rank))
            self._leave_engine(failures.LEAVING)
        finally:
            self._selector.close()

    def _receive(self, seconds: float, patience: float = failures.LEAVING) -> bool:
        """Wait so long for messages and act on them, with that patience for the engine; whether the channel is open."""
        if not self._selector.select(seconds):
            return True
        messages = self._control.read()
        if messages is None:
            if self.failure is None and self.last != "shutdown":
                self.fail(self.rank_0_gone())
                self._leave_engine(patience)
            return False
        for message in messages:
            if "where" in message:
                self._control.send(**self._report())
            elif "extended" in message:
                self._extended, self._extensions = self.inside, self._extensions + 1
            elif "error" in message:
                self.fail(reported(message))
                self._leave_engine(patience)
        return True

    def _watch_the_clock(self) -> None:
        """Report that the engine takes long; end the process unless rank 0 says why, or extends the time."""
        work, before = self.inside, self._extensions
        if work is None or work.seconds < self.timeout + (
            work.extra if work is self._extended else 0.0
        ):
            return
        self._control.send(stuck=True, **self._report())
        deadline = time.monotonic() + failures.DIAGNOSIS
        while time.monotonic() < deadline and self.inside is work and self._extensions == before:
            if not self._receive(0.2, patience=0):
                break
        if self.inside is work and self._extensions == before:
            self._end(self.fail(undiagnosed(self.info, work)))

    def _leave_engine(self, patience: float) -> None:
        """End the process unless the engine returns within ``patience`` seconds."""
        inside, deadline = self.inside, time.monotonic() + patience
        while inside is not None and self.inside is inside:
            if time.monotonic() > deadline:
                self._end(self.failure)
            time.sleep(0.05)

    def _report(self) -> dict[str, Any]:
        """Where this process is; for how many seconds it has been in the engine, and how many more it may be."""
        gave_up = self.gave_up
        work = gave_up or self.inside
        if work is None:
            return {"where": _line()}
        left = 0.0 if gave_up else self.timeout + work.extra - work.seconds
        return {"where": f"inside {work.what}", "engine": [work.seconds, left]}

    def _end(self, error: BaseException | None) -> NoReturn:
        """End the process: its main thread is in an engine that does not return."""
        with suppress(RuntimeError):  # no more threads
            # in a thread of its own: stderr may be a full pipe, or closed, or locked by a thread that never releases it
            printing = threading.Thread(target=_print_why, args=(error,), daemon=True)
            printing.start()
            printing.join(failures.ANSWER)
        exit_after_failed_rank(self.info)


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
