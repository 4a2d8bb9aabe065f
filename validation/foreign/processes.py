"""pytest, in a process of its own, with virtual GPUs or without GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class Pytest:
    """How a row's tests are started."""

    def __init__(self, row: dict[str, Any], where: Path, scratch: Path, timeout: float) -> None:
        self.row, self.where, self.scratch, self.timeout = row, where, scratch, timeout

    def start(self, what: list[str], gpus: bool, log: Path) -> str:
        """Run the tests of these ids, or pytest with these options, until nothing has happened for too long.

        The plugin appends to ``log``. Returns how the process ended.
        """
        stand_in = [
            "-m",
            "xdevice",
            "emulate",
            "--gpus",
            str(self.row.get("gpus", 2)),
        ]
        pytest = [
            "-m",
            "pytest",
            "-p",
            "foreign_tests",
            "-p",
            "no:cacheprovider",
            "--rootdir=.",
            "-o",
            "addopts=",
        ]
        arguments = [
            "--continue-on-collection-errors",
            *self.row.get("arguments", []),
            *self.told(what),
        ]
        if gpus and "default_device" in self.row:
            pytest += ["--foreign-device", self.row["default_device"]]
        command = [sys.executable, *stand_in * gpus, *pytest, "--foreign-log", str(log), *arguments]
        return wait(command, self.environment(gpus), self.where, log, self.timeout)

    def told(self, what: list[str]) -> list[str]:
        """pytest's options and files; the ids are in a file, for there may be too many."""
        if what[0].startswith("-"):
            return [*what, *self.row["tests"]]
        only = self.scratch / "only"
        only.write_text("\n".join(what))
        return ["--foreign-only", str(only), *sorted({name.partition("::")[0] for name in what})]

    def environment(self, gpus: bool) -> dict[str, str]:
        """The row's variables, and the folders that they name made anew."""
        scratch = Path(tempfile.mkdtemp(dir=self.scratch))
        for folder in self.row.get("scratch", []):
            (scratch / folder).mkdir()
        row = {**self.row.get("environment", {})}
        if not gpus:
            row |= self.row.get("environment_of_the_cpu", {})
        env = {
            **os.environ,
            **{name: value.replace("SCRATCH", str(scratch)) for name, value in row.items()},
        }
        path = [str(HERE), *self.row.get("path", ["."]), *filter(None, [env.get("PYTHONPATH")])]
        # Among the commands are torchrun, and the project's own.
        commands = [str(Path(sys.executable).parent), env["PATH"]]
        return env | {"PYTHONPATH": os.pathsep.join(path), "PATH": os.pathsep.join(commands)}


def wait(command: list[str], env: dict[str, str], where: Path, log: Path, limit: float) -> str:
    """Run the command to its end, or until the log has not grown for so many seconds; returns how it ended."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            env=env,
            cwd=where,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        begin, size, since = log.stat().st_size, -1, time.monotonic()
        try:
            while process.poll() is None and time.monotonic() - since <= limit:
                time.sleep(0.5)
                if log.stat().st_size != size:
                    size, since = log.stat().st_size, time.monotonic()
                    show(log)
        finally:
            hung = process.poll() is None
            if hung:  # or this program is being stopped
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if log.stat().st_size == begin:
        print(text[-3000:], file=sys.stderr)
    if hung:
        return f"did not end within {limit:.0f} s"
    words = [line for line in text.splitlines() if line.strip()][-1:]
    return f"the process ended with {process.returncode}: {''.join(words)[:300]}"


def show(log: Path) -> None:
    """Progress, on one line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r{sum(1 for _ in log.open())} events", end="", file=sys.stderr)
