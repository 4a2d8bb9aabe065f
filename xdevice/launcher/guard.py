"""The guard of a family of processes: it kills them all, should the process that looks after them be killed.

It is a process in a session of its own. It reads from a pipe whose other end only the process that has started it
holds, and which therefore ends with that process, however it ends.
"""

from __future__ import annotations

import subprocess
import sys
import time

from xdevice.distributed.periods import UNKILLABLE
from xdevice.launcher.family import Family


class Guard:
    """A ``with`` block over which the family is guarded."""

    def __init__(self, family: Family) -> None:
        # with this process's own path: the present folder may hold a file by the name of a module that it needs
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main({family.mark!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._process.communicate()


def main(mark: str) -> None:
    """Wait for the end of the process that has started this one, and kill its family."""
    sys.stdin.buffer.read()
    family, give_up, clear = Family(mark), time.monotonic() + UNKILLABLE, 0
    while clear < 2 and time.monotonic() < give_up:  # twice, for a process that is just being started
        clear = 0 if family.kill() else clear + 1
        time.sleep(0.05)
