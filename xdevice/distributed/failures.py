"""The errors of failed processes."""

import os
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

from xdevice.distributed.process_info import OUR_LAUNCHER, ProcessInfo
from xdevice.errors import DistributedError, DistributedTimeoutError
from xdevice.distributed.deadlines import LEAVING, PEER_FAILED


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What an engine does, which is reported after the timeout.

    It may take ``extra`` seconds more.
    """

    name: str
    extra: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


@dataclass(frozen=True, slots=True)
class FailedWork:
    """Work in which the engine has raised, and its error as text.

    An engine that raises after the timeout has waited for other processes, or
    for the network. One that raises earlier has failed itself, or has noticed
    a process that has gone.
    """

    work: Work
    error: str
    is_timed_out: bool


def error_of_rank(message: str, rank: int | None, *, late: bool = False) -> DistributedError:
    """The error that this rank is responsible for; a timeout if it is late."""
    kind = DistributedTimeoutError if late else DistributedError
    error = kind(message)
    error.rank = rank
    return error


def error_in_message(message: dict[str, Any]) -> DistributedError:
    """The error that rank 0 has sent."""
    text = str(message.get("error", "rank 0 has refused this process"))
    return error_of_rank(text, message.get("rank"), late=bool(message.get("late")))


def undiagnosed(info: ProcessInfo, work: Work) -> DistributedError:
    """The error of a process whose engine works for too long.

    Rank 0 has not named the reason.
    """
    message = f"rank {info.rank} was inside {work.name} for {work.seconds:.3g} s"
    if info.rank == 0:
        return error_of_rank(message, None, late=True)
    reason = f"rank 0 (at {info.host}) does not answer: it is stopped, or its host is"
    return error_of_rank(f"{message}, and {reason}", 0, late=True)


def exit_after_failed_rank(info: ProcessInfo) -> NoReturn:
    """End this process after the one that failed.

    Other launchers take the first process that ends for the one that failed,
    and end the others then.
    """
    if info.launcher != OUR_LAUNCHER:
        time.sleep(LEAVING)
    os._exit(PEER_FAILED)
