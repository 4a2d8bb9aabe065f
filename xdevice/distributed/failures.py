"""How long the processes of a job wait for each other, and the errors of a process that fails because of another one.

Times are in seconds; each is derived from those it must exceed. The timeouts that a user chooses are added to these.
"""

import os
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

from xdevice.distributed.process_info import OUR_LAUNCHER, ProcessInfo
from xdevice.errors import DistributedError, DistributedTimeoutError

PEER_FAILED = 75
"""The exit status of a process that ends because another one has failed."""

WORST_BANDWIDTH = (
    10e6  # bytes per second; a transfer at this rate has not failed, however long it takes
)

ANSWER = 1.5  # for a process to say where it is; the only number that is chosen: a busy host takes a second at most
REPORT = (
    ANSWER + 0.5
)  # for rank 0 to tell the others that a process has raised; rank 0 may be waiting for answers
DIAGNOSIS = (
    2 * ANSWER
)  # for rank 0 to name the failed rank after a timeout: it asks every process and waits
BARRIER_MARGIN = (
    DIAGNOSIS + 2 * ANSWER
)  # beyond the timeout in a barrier: rank 0 starts its clock later if it is busy
LEAVING = DIAGNOSIS  # for an engine to return by itself once a process has failed; the diagnosis comes first
SETTLING = (
    LEAVING + 1
)  # for the launcher to wait for the failed process, after others have ended because of it
TERMINATION = (
    LEAVING  # between SIGTERM and SIGKILL: a process in an engine leaves it before it is killed
)
LAST_RESORT = (
    2 * SETTLING + 2
)  # for frameworks to end in a failed process; by then a launcher has asked it to stop
UNKILLABLE = LAST_RESORT  # to end by SIGKILL; after that, one that hangs in a system call is left to the system
HANDSHAKE = (
    2 * ANSWER
)  # for a connection to authenticate itself, and as long again to send its join message


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Something that the engine does: it is reported after the timeout, and may take ``extra`` seconds beyond it."""

    what: str
    extra: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def error_of_rank(message: str, rank: int | None, *, late: bool = False) -> DistributedError:
    error = (DistributedTimeoutError if late else DistributedError)(message)
    error.rank = rank
    return error


def reported(message: dict[str, Any]) -> DistributedError:
    text = str(message.get("error", "rank 0 has refused this process"))
    return error_of_rank(text, message.get("rank"), late=bool(message.get("late")))


def undiagnosed(info: ProcessInfo, work: Work) -> DistributedError:
    """The error of a process that has been in the engine for too long, where rank 0 does not say why."""
    message = f"rank {info.rank} was inside {work.what} for {work.seconds:.3g} s"
    if info.rank == 0:
        return error_of_rank(message, None, late=True)
    why = f"rank 0 (at {info.host}) does not answer: it is stopped, or its host is"
    return error_of_rank(f"{message}, and {why}", 0, late=True)


def exit_after_failed_rank(info: ProcessInfo) -> NoReturn:
    """End the process, but not first: other launchers take the first process that ends for the one that failed."""
    if info.launcher != OUR_LAUNCHER:
        time.sleep(LEAVING)  # they end this process as soon as the failed one has ended
    os._exit(PEER_FAILED)
