"""The cells of one tab, run in a kernel of their own: ``python -m xdevice.tools.course.runner FOLDER``.

FOLDER has the job, ``job.json``. Each cell's outputs become a line of
``outcomes.jsonl`` as soon as the cell has ended, so that nothing is lost if the
process is stopped.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeAlias

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import v4

from xdevice.tools.course.displays import IMAGES, PLOTLY, TEXTS
from xdevice.tools.course.jobs import JOB, OUTCOMES, PREPARED, Job
from xdevice.tools.course.kernel import CURVES, cell_that_prepares
from xdevice.tools.launcher.texts import exit_text

_KERNEL = "xdevice"
_SOCKET_PATH = 90  # characters that the path of a socket can have, less those of its number
_CUT = 2**20  # characters of an output that are kept
_END = "\n… (cut)"
_FORMS = (*TEXTS, *IMAGES, CURVES, PLOTLY)  # of a value, that are used

NotebookNode: TypeAlias = Any

_v4: Any = v4  # nbformat has no types for its functions


def main() -> None:
    folder = Path(sys.argv[1])
    job = Job(**json.loads((folder / JOB).read_text(encoding="utf-8")))
    _use_this_python(folder)
    cells = [_v4.new_code_cell(code, metadata={"tags": tags}) for code, tags in job.cells]
    prepare = _v4.new_code_cell(cell_that_prepares(job.seed))
    notebook = _v4.new_notebook(cells=[prepare, *cells])
    client = _Client(
        notebook,
        timeout=None,
        kernel_name=_KERNEL,
        record_timing=False,
        skip_cells_with_tag="skip-execution",
        resources={"metadata": {"path": job.folder}},
    )
    manager = client.create_kernel_manager()
    sockets = folder / "kernel"
    if len(str(sockets)) < _SOCKET_PATH:
        # Other users of the machine could read along over TCP.
        manager.transport = "ipc"
        manager.ip = str(sockets)
    with (folder / OUTCOMES).open("a", encoding="utf-8") as outcomes, client.setup_kernel():
        for number, cell in enumerate(notebook.cells, PREPARED):
            if number >= 0:
                print(f"cell {number + 1} of {len(cells)}", flush=True)
            state = _run(client, cell, number - PREPARED, outcomes)
            if state == "dead" or (state == "failed" and not job.keep_going):
                break


class _Client(NotebookClient):
    """A client that keeps the beginning of what a cell prints, and not all of it in memory."""

    def output(
        self, outs: list[NotebookNode], msg: Any, display_id: str | None, cell_index: int
    ) -> NotebookNode | None:
        out = super().output(outs, msg, display_id, cell_index)
        if outs and outs[-1].output_type == "stream":
            _merge_stream(outs)
        return out


def _merge_stream(outs: list[NotebookNode]) -> None:
    """Add what a cell has printed last to what it has printed before on the same stream."""
    newest = outs.pop()
    stream = next((out for out in outs if out.get("name") == newest.name), None)
    if stream is None:
        stream = newest
        outs.append(stream)
    elif not stream.text.endswith(_END):  # else it has been cut
        stream.text = _without_overwritten(stream.text) + newest.text
    stream.text = _cut(stream.text)


def _without_overwritten(text: str) -> str:
    """The text with the last state of its last line, such as a progress bar's."""
    lines, newline, last = text.rpartition("\n")
    return lines + newline + last[last.rstrip("\r").rfind("\r") + 1 :]


def _cut(text: str) -> str:
    if len(text) > _CUT:
        return text[:_CUT] + _END
    return text


def _shortened(output: NotebookNode) -> NotebookNode:
    """The output with the beginning of long texts, and empty values of forms that are not used."""
    if "data" in output:
        output.data = {form: value if form in _FORMS else "" for form, value in output.data.items()}
        for form in TEXTS:
            if form in output.data:
                output.data[form] = _cut(output.data[form])
    return output


def _run(client: NotebookClient, cell: NotebookNode, index: int, outcomes: TextIO) -> str:
    """Run a cell, write its outcome, and return how it ended: ok, failed or dead."""
    began = time.monotonic()
    state = "ok"
    error = ""

    def write() -> None:
        outcome = {
            "cell": index + PREPARED,
            "state": state,
            "error": error,
            "seconds": round(time.monotonic() - began, 2),
            "outputs": [_shortened(output) for output in cell.outputs],
        }
        print(json.dumps(outcome), file=outcomes, flush=True)

    def stop(*_: object) -> NoReturn:
        """Write what the cell has printed so far."""
        nonlocal state
        state = "stopped"
        write()
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    try:
        # The cell that prepares does not count, so that the first cell is In[1].
        client.execute_cell(cell, index, store_history=index + PREPARED >= 0)
    except CellExecutionError as reason:  # mostly, it is among the outputs, too
        state = "failed"
        error = f"{reason.ename}: {reason.evalue}".rstrip(": ")
    except DeadKernelError:
        state = "dead"
        error = f"the process ended: {_how_it_ended(client)}"
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    write()
    return state


def _how_it_ended(client: NotebookClient) -> str:
    """How the kernel's process ended: ``exit 1``, or the signal that killed it."""
    provisioner = getattr(client.km, "provisioner", None)
    process = getattr(provisioner, "process", None)  # None if it has been reaped
    if process is None:
        return "its exit status is not known"
    words = exit_text(process.poll())
    if words == "killed by SIGKILL":
        words += ", probably because the machine ran out of memory"
    return words


def _use_this_python(folder: Path) -> None:
    """Describe a kernel of this Python, whatever kernels the user has, without the user's settings."""
    description = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python",
        "language": "python",
    }
    place = folder / "jupyter" / "kernels" / _KERNEL
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps(description), encoding="utf-8")
    os.environ["JUPYTER_PATH"] = str(folder / "jupyter")
    os.environ["JUPYTER_RUNTIME_DIR"] = str(folder / "runtime")
    os.environ["IPYTHONDIR"] = str(folder / "ipython")


if __name__ == "__main__":
    main()
