"""How a process of a job fails because of another one: its error, and its end."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NoReturn

from xdevice.distributed.periods import LEAVING
from xdevice.distributed.seat import OURS
from xdevice.errors import DistributedError, DistributedTimeoutError

if TYPE_CHECKING:
    from xdevice.distributed.seat import Seat

PEER_FAILED = 75
"""The exit status of a process that ends because another one has failed."""


def blamed(cls: type[DistributedError], message: str, rank: int | None) -> DistributedError:
    """The error, with the rank that is to blame."""
    error = cls(message)
    error.rank = rank
    return error


def failed(news: dict[str, Any]) -> DistributedError:
    """The error that rank 0 reports."""
    cls = DistributedTimeoutError if news.get("late") else DistributedError
    return blamed(cls, str(news.get("error", "rank 0 has refused this process")), news.get("rank"))


def without_verdict(seat: Seat, what: str, timeout: float) -> DistributedError:
    """The error of a process whose time in the engine is over, where rank 0 does not say who is to blame."""
    message = f"rank {seat.rank} was inside {what} for {timeout:g} s"
    if seat.rank == 0:
        return blamed(DistributedTimeoutError, message, None)
    message += f", and rank 0 (at {seat.host}) does not answer: it is stopped, or its host is"
    return blamed(DistributedTimeoutError, message, 0)


def end_after_the_failed(seat: Seat) -> NoReturn:
    """End the process, but not first: other launchers take the first process that ends for the one that failed."""
    if seat.launcher != OURS:
        time.sleep(LEAVING)  # they end this process as soon as the failed one has ended
    os._exit(PEER_FAILED)
