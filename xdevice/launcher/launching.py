"""The launcher: runs the processes of a job on this host, and reports at the end which of them failed.

It imports no framework and starts no engine. It tells each process its rank by environment
variables, and the processes meet in `xdevice.distributed.init`.
"""

import time
from collections.abc import Callable

from xdevice.distributed.failures import PEER_FAILED, SETTLING
from xdevice.errors import DistributedError
from xdevice.kit.units import duration
from xdevice.launcher.output import Screen
from xdevice.launcher.process_tree import ProcessTree, Signals
from xdevice.launcher.terminal import signal_name
from xdevice.launcher.worker_group import Plan, WorkerGroup

TIMED_OUT = 124  # the exit status of a job that its time limit ends, as that of ``timeout``
STOPPED = 128 + 19  # that of a job whose last processes are stopped, as if SIGSTOP had killed them
USAGE = 2  # that of a script that does not understand its options, as argparse ends it
LONGEST_PAUSE = (
    60.0  # seconds before a restart: 1, 2, 4 and so on, as what has failed may need time to recover
)

_TICK = 0.05
_SHOWN = 60  # lines of the failing rank's stderr that are repeated


def launch(plan_of: Callable[[int], Plan], restarts: int = 0) -> int:
    """Run the job's processes of this host to their ends, again if they fail; the exit status of the last attempt.

    It is 0 if all of them end with 0, else that of the rank that failed (128 and the number of the
    signal that killed it), `TIMED_OUT` after the time limit, and 128 and its number after a signal
    to the launcher. The time limit is for all attempts together; ``plan_of`` is given the number of
    the attempt, from 0.
    """
    screen, began, status = Screen(), time.monotonic(), 0
    with Signals() as signals:
        for number in range(restarts + 1):
            try:
                plan = plan_of(number)
            except DistributedError as error:  # no ports are free
                if not number:
                    raise
                screen.show("err", f"xdevice: cannot start the job again: {error}\n".encode())
                break
            group = WorkerGroup(plan, screen, ProcessTree(), signals, began=began)
            group.run()
            status, text = _outcome(group)
            screen.show("err", text)
            if number == restarts or not _can_restart(group):
                break
            pause = min(LONGEST_PAUSE, 2.0**number)
            screen.show(
                "err", f"xdevice: restart {number + 1} of {restarts}, in {pause:g} s\n".encode()
            )
            status, text = _paused(group, pause) or (status, b"")
            if text:
                screen.show("err", text)
                break
        while screen.waiting and (screen.write(SETTLING) or signals.received is None):
            continue
    if screen.broken is None or signals.received:
        return status
    if isinstance(screen.broken, BrokenPipeError):
        raise screen.broken
    raise DistributedError(f"what the processes print cannot be written: {screen.broken.strerror}")


def _paused(group: WorkerGroup, seconds: float) -> tuple[int, bytes] | None:
    """Wait so long before a restart; the exit status and the last text if a signal or the time limit ends the wait."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if group.signals.received is not None:
            return _on_signal(group.signals.received)
        if group.out_of_time:
            return _on_time_limit(group, "waiting for a restart")
        group.screen.write()
        time.sleep(_TICK)
    return None


def _can_restart(group: WorkerGroup) -> bool:
    """Whether a process has failed, other than by a mistake in the command, which would fail again."""
    failing = group.failing
    failed = bool(group.frozen) or (failing is not None and failing.process.returncode != USAGE)
    return failed and not group.stopped and not group.out_of_time


def _outcome(group: WorkerGroup) -> tuple[int, bytes]:
    """The exit status of the whole, and the text that is printed last."""
    failing, received = group.failing, group.signals.received
    if failing is not None:
        status, tail = failing.process.returncode or 0, failing.streams["err"].last_lines(_SHOWN)
        how = (
            f"failed with exit status {status}"
            if status > 0
            else f"was killed by {signal_name(status)}"
        )
        if status == PEER_FAILED:
            how = "ended because the job failed"
        what = b"the end of its stderr:\n" + tail if tail else b"it has printed nothing on stderr\n"
        return (
            status if status >= 0 else 128 - status,
            f"xdevice: rank {failing.rank} {how}; ".encode() + what,
        )
    if received is not None:
        return _on_signal(received)
    if group.frozen:
        those, verb = ", ".join(map(str, group.frozen)), "is" if len(group.frozen) == 1 else "are"
        return (
            STOPPED,
            f"xdevice: rank {those} {verb} stopped, as by SIGSTOP, and the others have ended\n".encode(),
        )
    if group.out_of_time and len(group.ended) < len(group.ranks):
        running = ", ".join(str(rank.rank) for rank in group.ranks if rank not in group.ended)
        return _on_time_limit(group, f"still at work: rank {running}")
    return 0, b""


def _on_signal(received: int) -> tuple[int, bytes]:
    return 128 + received, f"xdevice: stopped by {signal_name(-received)}\n".encode()


def _on_time_limit(group: WorkerGroup, what: str) -> tuple[int, bytes]:
    limit = duration(group.plan.time_limit or 0.0)
    return TIMED_OUT, f"xdevice: stopped after the time limit of {limit}; {what}\n".encode()
