"""The process tree of a job: every process that the job's own processes have started.

A process belongs to it in three cases: its environment has the tree's mark,
which children inherit; it is in the session of such a process or of a leader;
it has been seen as a descendant of one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Container, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shutil import rmtree
from subprocess import Popen
from types import FrameType
from typing import IO, Any

import psutil

from xdevice.distributed.deadlines import UNKILLABLE

# The environment variable with the mark of a process tree, after those of the
# trees it is part of.
MARKS = "XDEVICE_JOB"

_STARTING = 0.5  # seconds in which the system loads a program, on a busy host


class ProcessTree:
    """The processes of one job, searched for at each question.

    ``mark`` is that of a tree that another process has made, by default a new
    one. ``outer_marks`` are those of the trees that this one is part of, by
    default those of this process.
    """

    def __init__(self, mark: str | None = None, outer_marks: str | None = None) -> None:
        self.mark = mark or os.urandom(16).hex()
        if outer_marks is None:
            outer_marks = os.environ.get(MARKS, "")
        self.marks = f"{outer_marks} {self.mark}".strip()
        # By process id: None while the leader runs, afterwards the others of
        # its session.
        self._leaders: dict[int, list[psutil.Process] | None] = {}
        self._descendants: dict[int, psutil.Process] = {}

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        out: int | IO[bytes],
        err: int | IO[bytes],
    ) -> Popen[bytes]:
        """Start a process of the tree, a session leader with nothing to read on its stdin."""
        process = Popen(
            command,
            env={**environment, MARKS: self.marks},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        self._leaders[process.pid] = None
        return process

    def leader_ended(self, pid: int) -> None:
        """Note that this leader has been waited for. Its session counts while a process is in it.

        Later the system may give the process id to a process of another user.
        """
        self._leaders[pid] = list(_processes_in_sessions({pid}).values())

    def find_descendants(self, pid: int) -> list[psutil.Process]:
        """The process and its descendants, which count as members from now on."""
        try:
            parent = psutil.Process(pid)
            processes = [parent, *parent.children(recursive=True)]
        except psutil.Error:  # it has ended
            return []
        for process in processes:
            self._descendants.setdefault(process.pid, process)
        return processes

    def members(self) -> list[psutil.Process]:
        """The processes of the tree that still run."""
        members = {
            process.pid: process
            for process in psutil.process_iter()
            if self.mark in _marks_of(process)
        }
        sessions = {_session_of(pid) for pid in members}
        for pid, session in self._leaders.items():
            if session is None or any(map(is_alive, session)):
                sessions.add(pid)
        members |= _processes_in_sessions(sessions - {None})
        return [
            process for process in {**self._descendants, **members}.values() if is_alive(process)
        ]

    def ask_to_stop(self) -> None:
        """Send SIGTERM to all, and SIGCONT, without which a stopped process does not receive it."""
        running = [pid for pid, session in self._leaders.items() if session is None]
        for pid in running:
            # A process with another session and environment is found only
            # while its parent lives.
            self.find_descendants(pid)
        members = self.members()
        _send(members, "SIGTERM")
        _send(members, "SIGCONT")

    def kill(self) -> bool:
        """Kill all processes of the tree; whether there were any."""
        members = self.members()
        _send(members, "SIGKILL" if os.name == "posix" else "SIGTERM")
        return bool(members)


def is_alive(process: psutil.Process) -> bool:
    """Whether the process still runs; one that has ended and not been waited for does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _send(processes: list[psutil.Process], name: str) -> None:
    number = getattr(signal, name, None)
    if number is None:  # the system does not have the signal
        return
    for process in processes:
        with suppress(psutil.Error):  # it has just ended
            process.send_signal(number)


def _marks_of(process: psutil.Process) -> str:
    try:
        environment = process.environ()
        # A process that is just starting has none, until the system has loaded its program.
        while not environment and time.time() - process.create_time() < _STARTING:
            time.sleep(0.01)
            environment = process.environ()
        return str(environment.get(MARKS, ""))
    except (psutil.Error, OSError):  # another user's, or just ended
        return ""


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (AttributeError, OSError):  # the system has no sessions, or the process has just ended
        return None


def _processes_in_sessions(leaders: Container[int | None]) -> dict[int, psutil.Process]:
    processes = {}
    for pid in psutil.pids():
        if _session_of(pid) in leaders:
            with suppress(psutil.Error):  # it has just ended
                processes[pid] = psutil.Process(pid)
    return processes


class Signals:
    """Records SIGINT, SIGTERM and SIGHUP instead of ending: no child is left running."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.times = 0
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # An ignored signal stays ignored, as under nohup.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._previous_handlers[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self.times += 1


@contextmanager
def reaped(tree: ProcessTree, folder: str = "") -> Generator[None, None, None]:
    """While the block runs, a reaper waits: it kills the tree if this process is killed.

    It also removes the folder, if one is given.

    The reaper is a process in a session of its own. It reads from a pipe whose
    other end only this process holds. The pipe closes when this process ends,
    also when it is killed.
    """
    # With this process's own path: the working directory may have a file named
    # as a module.
    code = (
        "import sys; sys.stdin.buffer.read(); "  # imports nothing while the job runs
        f"sys.path[:] = {sys.path!r}; from {__name__} import reap; reap({tree.mark!r}, {folder!r})"
    )
    with Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as reaper:
        try:
            yield
        finally:
            reaper.kill()


def reap(mark: str, folder: str) -> None:
    """Kill the tree of a process that has ended, and remove its folder."""
    rmtree(folder, ignore_errors=True)
    tree = ProcessTree(mark)
    deadline = time.monotonic() + UNKILLABLE
    rounds_without_members = 0
    # Two such rounds in a row, because a process may just be being started.
    while rounds_without_members < 2 and time.monotonic() < deadline:
        if tree.kill():
            rounds_without_members = 0
        else:
            rounds_without_members += 1
        time.sleep(0.05)
