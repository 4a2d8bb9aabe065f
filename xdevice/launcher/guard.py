"""The guard of a launched job: it stops all that was started, should the launcher itself be killed.

A process of its own, in a session of its own. It reads from a pipe whose other end the launcher alone holds, and
which therefore ends with the launcher, however that dies. Whatever belongs to a job bears its mark in the
environment, and so does all that it starts, whichever session or parent it has moved to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING

import psutil

from xdevice.launcher.children import alive, of_sessions

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKS = "XDEVICE_JOB"
"""The environment variable with the marks of the job, and of the jobs that it is started by."""

_PATIENCE = 10.0  # seconds after which a process that cannot even be killed is left to the system


class Guard:
    """A job's mark, and the process that watches over whoever bears it."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.marks = f"{os.environ.get(MARKS, '')} {self.mark}".strip()
        # our own path: the present folder may hold a file by the name of a module that it needs
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main({self.mark!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End it, when nobody is left to watch over."""
        self._process.kill()
        self._process.communicate()


def members(mark: str, leaders: Iterable[int] = ()) -> list[psutil.Process]:
    """Who is alive and bears the mark, or is in a session with one who does or with one of these leaders."""
    found = {process.pid: process for process in psutil.process_iter() if mark in _marks(process)}
    sessions = set(leaders)
    for pid in found:
        try:
            sessions.add(os.getsid(pid))
        except OSError:  # it has just ended
            continue
    return [process for process in {**of_sessions(sessions), **found}.values() if alive(process)]


def _marks(process: psutil.Process) -> str:
    try:
        return str(process.environ().get(MARKS, ""))
    except (psutil.Error, OSError):  # another user's, or just ended
        return ""


def main(mark: str) -> None:
    """Wait for the launcher's end, and kill whoever is left."""
    sys.stdin.buffer.read()
    give_up, clear = time.monotonic() + _PATIENCE, 0
    while clear < 2 and time.monotonic() < give_up:  # twice, for somebody who is just being started
        found = members(mark)
        clear = 0 if found else clear + 1
        for process in found:
            try:
                process.kill()
            except psutil.Error:
                continue
        time.sleep(0.05)
