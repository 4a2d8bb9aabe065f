"""The result of a run: how each framework's process has ended, and where the outputs differ."""

from typing import Any

from xdevice.tools.cli.comparing import Differ, compare
from xdevice.tools.launcher.children import Child
from xdevice.tools.launcher.texts import printable, signal_name

COMPARED_LINES = 2000  # of each output; at worst, aligning two takes the square of this number


class Run:
    """A child process that has ended, and its output."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.printed = child.printed()
        stdout, stderr, self.cut = child.output()
        self.stdout = stdout.decode(errors="replace")
        self.stderr = stderr.decode(errors="replace")
        self.binary = _is_binary(stdout, self.cut)

    def as_json(self) -> dict[str, Any]:
        child = self.child
        return {
            "backend": child.name,
            "status": child.status,
            "exit_status": child.exit_status,
            "signal": signal_name(child.exit_status),
            "seconds": round(child.seconds, 3),
            "peak_memory": child.peak_memory,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "cut": self.cut,
            "binary": self.binary,
        }

    def compared(self) -> str:
        """The lines that are compared. If there are more, `cut` becomes true."""
        lines = printable(self.stdout).split("\n")
        self.cut = self.cut or len(lines) > COMPARED_LINES + 1
        return "\n".join(lines[:COMPARED_LINES])


def _is_binary(output: bytes, is_cut: bool) -> bool:
    """Whether the output is not UTF-8 text."""
    if b"\0" in output:
        return True
    try:
        output.decode()
    except UnicodeDecodeError as error:
        is_cut_character = is_cut and error.start > len(output) - 4
        return not is_cut_character
    return False


class Report:
    """All runs, and the unified view of the outputs of those that succeeded."""

    def __init__(
        self, script: str, args: list[str], runs: list[Run], tolerance: float, normalize: bool
    ) -> None:
        self.script = script
        self.args = args
        self.runs = runs
        self.tolerance = tolerance
        self.normalize = normalize
        outputs = {run.child.name: run.compared() for run in runs if run.child.status == "ok"}
        self.compared = list(outputs)
        self.view = compare(outputs, tolerance, normalize)
        self.agree = not any(isinstance(part, Differ) for part in self.view)

    @property
    def names(self) -> str:
        """The frameworks whose outputs are compared, as words: ``torch, jax and numpy``."""
        if len(self.compared) < 2:
            return "".join(self.compared)
        return f"{', '.join(self.compared[:-1])} and {self.compared[-1]}"


def as_json(report: Report, interrupted: bool) -> dict[str, Any]:
    """The report as JSON can hold it; the keys are stable."""
    return {
        "script": report.script,
        "args": report.args,
        "interrupted": interrupted,
        "tolerance": report.tolerance,
        "normalize": report.normalize,
        "runs": [run.as_json() for run in report.runs],
        "compared": report.compared,
        "agree": report.agree if report.compared else None,
        "output": [part.as_json() for part in report.view],
    }
