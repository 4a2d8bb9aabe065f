"""The reaper of a process tree: it kills the tree if the launcher itself is killed.

It is a process in a session of its own. It reads from a pipe whose other end only the launcher holds, and which
therefore closes when the launcher ends, however it ends.
"""

from __future__ import annotations

import subprocess
import sys
import time

from xdevice.distributed.failures.timeouts import UNKILLABLE
from xdevice.launcher.process_tree import ProcessTree


class Reaper:
    """A ``with`` block during which a reaper waits for the end of this process."""

    def __init__(self, tree: ProcessTree) -> None:
        # with this process's own path: the present folder may hold a file by the name of a module that it needs
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main({tree.mark!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Reaper:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        self._process.communicate()


def main(mark: str) -> None:
    """Wait for the end of the process that has started this one, and kill the tree."""
    sys.stdin.buffer.read()
    tree, give_up, clear = ProcessTree(mark), time.monotonic() + UNKILLABLE, 0
    while clear < 2 and time.monotonic() < give_up:  # twice, for a process that is just being started
        clear = 0 if tree.kill() else clear + 1
        time.sleep(0.05)
