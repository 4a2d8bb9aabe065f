"""The launcher: runs the processes of a job on this host, and reports at the end which one failed.

It imports no framework and starts no engine. It tells each process its rank by
environment variables, and the processes meet in `xdevice.distributed.init`.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from xdevice.distributed.deadlines import PEER_FAILED, SETTLING
from xdevice.errors import DistributedError
from xdevice.tools.launcher.output import Screen
from xdevice.tools.launcher.process_tree import ProcessTree, Signals
from xdevice.tools.launcher.texts import signal_name
from xdevice.tools.launcher.worker_group import Plan, WorkerGroup
from xdevice.units import duration

# Exit statuses of the launcher
TIMED_OUT = 124  # after the time limit, as that of ``timeout``
STOPPED = 128 + 19  # if the last processes are stopped, as if SIGSTOP had killed them

USAGE = 2  # the status of a script that does not understand its options, as argparse ends it

# Seconds before a restart: 1, 2, 4 and so on. What has failed may need time to recover.
LONGEST_PAUSE = 60.0

_TICK = 0.05
_SHOWN = 60  # lines of the failed rank's stderr that are repeated


class Outcome(NamedTuple):
    """The launcher's exit status, and the text that it prints last."""

    status: int
    text: str | bytes = ""


def launch(plan_of: Callable[[int], Plan], restarts: int = 0) -> int:
    """Run the job's processes of this host to their end, again if they fail.

    ``plan_of`` is given the number of the attempt, from 0. The time limit is
    for all attempts together. Returns the exit status of the last attempt. It
    is 0 if all processes end with 0. If a rank fails it is that rank's status,
    or 128 and the number of the signal that killed it. It is `TIMED_OUT` after
    the time limit, and 128 and its number after a signal to the launcher.
    """
    screen = Screen()
    began = time.monotonic()
    status = 0
    with Signals() as signals:
        for attempt in range(restarts + 1):
            group = WorkerGroup(plan_of(attempt), screen, ProcessTree(), signals, began=began)
            group.run()
            status, text = _outcome(group)
            _show(screen, text)
            if attempt == restarts or not _can_restart(group):
                break
            pause = min(LONGEST_PAUSE, 2.0**attempt)
            _show(screen, f"xdevice: restart {attempt + 1} of {restarts}, in {pause:g} s\n")
            interruption = _pause(group, pause)
            if interruption is not None:
                status, text = interruption
                _show(screen, text)
                break
        while screen.waiting and (screen.write(SETTLING) or signals.received is None):
            continue
    if screen.broken is None or signals.received:
        return status
    if isinstance(screen.broken, BrokenPipeError):
        raise screen.broken
    raise DistributedError(f"what the processes print cannot be written: {screen.broken.strerror}")


def _show(screen: Screen, text: str | bytes) -> None:
    if isinstance(text, str):
        text = text.encode()
    screen.show("err", text)


def _pause(group: WorkerGroup, seconds: float) -> Outcome | None:
    """Wait before a restart; the outcome if a signal or the time limit ends the wait."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if group.signals.received is not None:
            return _after_signal(group.signals.received)
        if group.out_of_time:
            return _after_time_limit(group, "waiting for a restart")
        group.screen.write()
        time.sleep(_TICK)
    return None


def _can_restart(group: WorkerGroup) -> bool:
    """Whether a process has failed, and not by a mistake in the command."""
    if group.stopped or group.out_of_time:
        return False
    failed = group.failed
    return bool(group.frozen) or (failed is not None and failed.exit_status != USAGE)


def _outcome(group: WorkerGroup) -> Outcome:
    if group.failed is not None:
        return _after_failure(group)
    if group.signals.received is not None:
        return _after_signal(group.signals.received)
    if group.frozen:
        ranks = ", ".join(map(str, group.frozen))
        verb = "is" if len(group.frozen) == 1 else "are"
        reason = f"rank {ranks} {verb} stopped, as by SIGSTOP, and the others have ended"
        return Outcome(STOPPED, f"xdevice: {reason}\n")
    if group.out_of_time and len(group.ended) < len(group.workers):
        running = [worker.rank for worker in group.workers if worker not in group.ended]
        return _after_time_limit(group, f"still at work: rank {', '.join(map(str, running))}")
    return Outcome(0)


def _after_failure(group: WorkerGroup) -> Outcome:
    worker = group.failed
    assert worker is not None
    status = worker.exit_status
    if status == PEER_FAILED:
        reason = "ended because the job failed"
    elif status > 0:
        reason = f"failed with exit status {status}"
    else:
        reason = f"was killed by {signal_name(status)}"
    last_lines = worker.streams["err"].last_lines(_SHOWN)
    stderr = b"it has printed nothing on stderr\n"
    if last_lines:
        stderr = b"the end of its stderr:\n" + last_lines
    text = f"xdevice: rank {worker.rank} {reason}; ".encode() + stderr
    if status < 0:  # a signal, for which shells add its number to 128
        status = 128 - status
    return Outcome(status, text)


def _after_signal(number: int) -> Outcome:
    return Outcome(128 + number, f"xdevice: stopped by {signal_name(-number)}\n")


def _after_time_limit(group: WorkerGroup, state: str) -> Outcome:
    limit = duration(group.plan.time_limit or 0.0)
    return Outcome(TIMED_OUT, f"xdevice: stopped after the time limit of {limit}; {state}\n")
