"""The process tree of a job: every process that the job's own processes have started.

A process belongs to it if its environment has the tree's mark, which children inherit, if it is in
the session of such a process or of a leader, or if it has been seen as a descendant of one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from subprocess import Popen
from types import FrameType
from typing import Any

import psutil

from xdevice.distributed.failures import UNKILLABLE

MARKS = "XDEVICE_JOB"  # the environment variable with the mark of a process tree, after those of the trees around it


class ProcessTree:
    """The processes of one job, found anew each time that they are asked for.

    ``mark`` is that of a tree that another process has made, by default a new one; ``around`` has
    the marks of the trees around this one, by default those of this process.
    """

    def __init__(self, mark: str | None = None, around: str | None = None) -> None:
        self.mark = mark or uuid.uuid4().hex
        outer = os.environ.get(MARKS, "") if around is None else around
        self.marks = f"{outer} {self.mark}".strip()
        self._leaders: dict[
            int, list[psutil.Process] | None
        ] = {}  # `None` while it runs, then who was left
        self._seen: dict[int, psutil.Process] = {}

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], out: Any, err: Any
    ) -> Popen[bytes]:
        """Start a process of the tree, the leader of a session of its own, with nothing to read on its stdin."""
        marked = {**environment, MARKS: self.marks}
        process = Popen(
            command,
            env=marked,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        self._leaders[process.pid] = None
        return process

    def ended(self, pid: int) -> None:
        """That leader has just been waited for; its session counts for as long as a process in it lives."""
        # after that, the system may give the process id to a process of another user
        self._leaders[pid] = list(_in_sessions({pid}).values())

    def see(self, pid: int) -> list[psutil.Process]:
        """The process and its descendants, which are remembered from now on."""
        try:
            parent = psutil.Process(pid)
            found = [parent, *parent.children(recursive=True)]
        except psutil.Error:  # it has ended
            return []
        for process in found:
            self._seen.setdefault(process.pid, process)
        return found

    def members(self) -> list[psutil.Process]:
        found = {
            process.pid: process
            for process in psutil.process_iter()
            if self.mark in _marks(process)
        }
        leaders = {
            pid for pid, left in self._leaders.items() if left is None or any(map(alive, left))
        }
        found |= _in_sessions((leaders | set(map(_session, found))) - {None})
        return [process for process in {**self._seen, **found}.values() if alive(process)]

    def ask_to_stop(self) -> None:
        """Send SIGTERM to all, and SIGCONT, without which a stopped process does not receive it."""
        for pid in [pid for pid, left in self._leaders.items() if left is None]:
            self.see(
                pid
            )  # a process with another session and environment is found only while its parent lives
        asked = self.members()
        _send(asked, "SIGTERM")
        _send(asked, "SIGCONT")

    def kill(self) -> bool:
        found = self.members()
        _send(found, "SIGKILL" if os.name == "posix" else "SIGTERM")
        return bool(found)


def alive(process: psutil.Process) -> bool:
    """Whether the process still runs; one that has ended and not been waited for does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _send(processes: list[psutil.Process], name: str) -> None:
    for process in processes if hasattr(signal, name) else ():
        with suppress(psutil.Error):  # it has just ended
            process.send_signal(getattr(signal, name))


def _marks(process: psutil.Process) -> str:
    try:
        return str(process.environ().get(MARKS, ""))
    except (psutil.Error, OSError):  # another user's, or just ended
        return ""


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (AttributeError, OSError):  # on a system without sessions, or where it has just ended
        return None


def _in_sessions(leaders: Container[int | None]) -> dict[int, psutil.Process]:
    found = {}
    for pid in psutil.pids():
        if _session(pid) in leaders:
            with suppress(psutil.Error):  # it has just ended
                found[pid] = psutil.Process(pid)
    return found


class Signals:
    """Records SIGINT, SIGTERM and SIGHUP instead of ending by them, so that no child is left running."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.times = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if (
                number is not None and signal.getsignal(number) is not signal.SIG_IGN
            ):  # as under nohup
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self.times += 1


@contextmanager
def reaped(tree: ProcessTree) -> Generator[None, None, None]:
    """While the block runs, a reaper waits: it kills the tree if this process is killed.

    It is a process in a session of its own. It reads from a pipe whose other end only this process
    holds, and which therefore closes when this process ends, however it ends.
    """
    # with this process's own path: the present folder may hold a file by the name of a module that it needs
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import reap; reap({tree.mark!r})"
    )
    null = subprocess.DEVNULL
    command = [sys.executable, "-c", code]
    with Popen(
        command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True
    ) as reaper:
        try:
            yield
        finally:
            reaper.kill()


def reap(mark: str) -> None:
    """Wait for the end of the process that has started this one, and kill the tree."""
    sys.stdin.buffer.read()
    tree, give_up, clear = ProcessTree(mark), time.monotonic() + UNKILLABLE, 0
    while (
        clear < 2 and time.monotonic() < give_up
    ):  # twice, for a process that is just being started
        clear = 0 if tree.kill() else clear + 1
        time.sleep(0.05)
