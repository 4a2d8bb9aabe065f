"""A process's membership of its job: it enters collectives, and the engine's time is watched."""

import faulthandler
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar

from xdevice.contract import Job
from xdevice.distributed.deadlines import ANSWER
from xdevice.distributed.failures import Work, error_of_rank, exit_after_failed_rank
from xdevice.distributed.messages import Fingerprint
from xdevice.errors import DistributedError

T = TypeVar("T")


class Membership(ABC):
    """What a process has from joining the job to leaving it.

    The main thread enters collectives and works in the engine. Meanwhile a
    watchdog thread ends the process if the engine takes too long.
    """

    def __init__(self, job: Job, timeout: float) -> None:
        self.job = job
        self.timeout = timeout
        self.failure: DistributedError | None = None
        self.failure_was_raised = False
        self._work: Work | None = None  # what the engine does now
        self._extra = 0.0  # seconds that other processes may take longer for the last work

    @abstractmethod
    def enter(self, fingerprint: Fingerprint) -> None:
        """Return when every process has called this with the same fingerprint."""

    @abstractmethod
    def shut_down(self, stop: Callable[[], None]) -> None:
        """Stop the engine when every process has called this."""

    @abstractmethod
    def report_error(self, error: BaseException) -> None:
        """Tell the other processes that this one has failed."""

    @abstractmethod
    def report_exit(self) -> None:
        """Tell the other processes that this one ends without shutdown()."""

    @abstractmethod
    def close(self) -> None:
        """Leave: no other process expects this one."""

    @abstractmethod
    def close_descriptors(self) -> None:
        """In a forked child: close the parent's descriptors; send nothing."""

    @abstractmethod
    def engine_error(self, error: Exception, name: str) -> DistributedError:
        """The error to raise in place of the engine's."""

    def work(self, name: str, action: Callable[[], T], extra: float = 0.0) -> T:
        """Let the engine work.

        The watchdog acts after the timeout and the extra seconds.
        """
        self._raise_failure()
        self._work = Work(name, extra)
        self._extra = extra
        # The failure may have come just before, when the watchdog saw no work
        # to end.
        if self.failure is not None:
            self._end_work()
        try:
            result = action()
        except Exception as error:
            raise self.engine_error(error, name) from error
        except BaseException as error:
            self._interrupt(error)
            raise
        self._end_work()
        return result

    def _end_work(self) -> None:
        self._work = None
        self._raise_failure()

    def fail(self, error: DistributedError) -> DistributedError:
        """The failure of the job: this error, or an earlier one."""
        if self.failure is None:
            self.failure = error
        return self.failure

    def _raise_failure(self) -> None:
        if self.failure is not None:
            self.failure_was_raised = True
            raise self.failure

    def _interrupt(self, error: BaseException) -> None:
        """This process has left a collective early: the job cannot go on."""
        self._work = None
        self.report_error(error)
        rank = self.job.rank
        self.fail(error_of_rank(f"rank {rank} was interrupted in a collective", rank))

    def _undiagnosed(self, work: Work) -> DistributedError:
        """The error of a process whose engine works for too long, for an unknown reason."""
        message = f"rank {self.job.rank} was inside {work.name} for {work.seconds:.3g} s"
        reason = "another process has not come, or the network between them fails"
        return error_of_rank(f"{message}: {reason}", None, late=True)

    def _leave_engine(self, patience: float) -> None:
        """End the process if the engine works for ``patience`` more seconds."""
        work = self._work
        deadline = time.monotonic() + patience
        while work is not None and self._work is work:
            if time.monotonic() > deadline:
                self._exit(self.failure)
            time.sleep(0.05)

    def _exit(self, error: BaseException | None) -> NoReturn:
        """End the process, whose main thread is in an engine that hangs."""
        with suppress(RuntimeError):  # no more threads
            # In a thread of its own, because printing may never return: stderr
            # may be a full pipe, or locked by another thread.
            printing = threading.Thread(target=_print_error, args=(error,), daemon=True)
            printing.start()
            printing.join(ANSWER)
        exit_after_failed_rank(self.job.launcher)


def _print_error(error: BaseException | None) -> None:
    with suppress(Exception):
        print(f"xdevice: {error}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
    with suppress(Exception):
        sys.stdout.flush()
