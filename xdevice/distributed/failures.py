"""The errors of failed processes."""

import os
import time
from dataclasses import dataclass, field
from typing import Any, NoReturn

from xdevice.distributed.deadlines import LEAVING, PEER_FAILED
from xdevice.distributed.launcher_variables import OUR_LAUNCHER
from xdevice.errors import DistributedError, DistributedTimeoutError

_LONGEST_ERROR = 2000  # characters of an error that the other processes are sent


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
    """The error that the launcher has sent."""
    return error_of_rank(message["error"], message["rank"], late=message["late"])


def as_text(error: BaseException) -> str:
    name, message = type(error).__name__, str(error)  # an interrupt has no message
    return f"{name}: {message}"[:_LONGEST_ERROR] if message else name


def exit_after_failed_rank(launcher: str) -> NoReturn:
    """End this process after the one that failed.

    Our launcher waits for the failed process by itself. Other launchers take
    the first process that ends for the one that failed, and end the others
    then.
    """
    if launcher != OUR_LAUNCHER:
        time.sleep(LEAVING)
    os._exit(PEER_FAILED)
