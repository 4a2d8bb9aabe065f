"""The errors and the exit of a process that fails because of another one."""

import os
import time
from typing import Any, NoReturn

from xdevice.distributed.failures.timeouts import LEAVING
from xdevice.distributed.process_info import OUR_LAUNCHER, ProcessInfo
from xdevice.errors import DistributedError, DistributedTimeoutError

PEER_FAILED = 75
"""The exit status of a process that ends because another one has failed."""


def error_of_rank(cls: type[DistributedError], message: str, rank: int | None) -> DistributedError:
    error = cls(message)
    error.rank = rank
    return error


def reported(message: dict[str, Any]) -> DistributedError:
    cls = DistributedTimeoutError if message.get("late") else DistributedError
    return error_of_rank(cls, str(message.get("error", "rank 0 has refused this process")), message.get("rank"))


def undiagnosed(info: ProcessInfo, what: str, seconds: float) -> DistributedError:
    """The error of a process that has been in the engine for too long, where rank 0 does not say why."""
    message = f"rank {info.rank} was inside {what} for {seconds:.3g} s"
    if info.rank == 0:
        return error_of_rank(DistributedTimeoutError, message, None)
    message += f", and rank 0 (at {info.host}) does not answer: it is stopped, or its host is"
    return error_of_rank(DistributedTimeoutError, message, 0)


def exit_after_failed_rank(info: ProcessInfo) -> NoReturn:
    """End the process, but not first: other launchers take the first process that ends for the one that failed."""
    if info.launcher != OUR_LAUNCHER:
        time.sleep(LEAVING)  # they end this process as soon as the failed one has ended
    os._exit(PEER_FAILED)
