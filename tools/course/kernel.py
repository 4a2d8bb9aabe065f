"""The cells of one tab, run in a kernel of their own: ``python -m xdevice.tools.course.kernel FOLDER``.

FOLDER has the job, ``job.json``. Each cell's outputs become a line of
``outcomes.jsonl`` as soon as the cell has ended, so that nothing is lost if the
process is stopped. `prepare` runs in the kernel, as a cell that the chapter
does not have.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO, TypeAlias

from xdevice.tools.launcher.texts import exit_text

# The kernel itself imports this module for `prepare`, so that nbclient, which the process outside
# of it needs, is imported in functions.

CURVES = "application/vnd.xdevice.curves+json"
"""The MIME type of the numbers that a figure of matplotlib shows."""

IMAGES = ("image/svg+xml", "image/png", "image/jpeg", "image/gif")
TEXTS = ("text/plain", "text/markdown", "text/latex", "text/html")
PREPARED = -1
"""The number, among the outcomes, of what happens before the first cell."""

CELL_FAILED = 3
"""The exit status of the process if a cell has failed."""

_JOB = "job.json"
_OUTCOMES = "outcomes.jsonl"
_POINTS = 200  # of a curve that are shown; of a longer one, every second or third, and so on
_KERNEL = "xdevice"
_SOCKET_PATH = 90  # characters that the path of a socket can have, less those of its number
_CUT = 2**20  # characters of an output that are kept
_END = "\n… (cut)"
_FORMS = (*TEXTS, *IMAGES, CURVES)  # of a value, that are used

Figure: TypeAlias = Any
NotebookNode: TypeAlias = Any
Shell: TypeAlias = Any


class Job(NamedTuple):
    """The cells of one tab, and how to run them."""

    cells: list[tuple[str, list[str]]]  # the code and the tags of each
    folder: str  # the working directory
    framework: str
    seed: int
    keep_going: bool  # after a cell that fails

    def write(self, folder: Path) -> None:
        (folder / _JOB).write_text(json.dumps(self._asdict()), encoding="utf-8")
        (folder / _OUTCOMES).touch()


def entries(folder: Path, files: Path) -> list[dict[str, Any]]:
    """What the process has written of each cell that has ended.

    ``files`` is the tab's own copy of the folder above the chapter's, and is
    called ``..`` in the texts.
    """
    copy = json.dumps(str(files))[1:-1]
    lines = (folder / _OUTCOMES).read_text(encoding="utf-8").splitlines()
    # a line without an end was not finished, as the process was killed
    return [json.loads(line.replace(copy, "..")) for line in lines if line.endswith("}")]


# ----------------------------------------------------------------- the process


def main() -> None:
    from nbclient import NotebookClient
    from nbformat import v4

    notebooks: Any = v4  # it has no types for its functions
    folder = Path(sys.argv[1])
    job = Job(**json.loads((folder / _JOB).read_text(encoding="utf-8")))
    _use_this_python(folder)
    call = f"prepare({job.framework!r}, {job.seed})"
    first = f"from xdevice.tools.course.kernel import prepare\n{call}\ndel prepare"
    cells = [notebooks.new_code_cell(code, metadata={"tags": tags}) for code, tags in job.cells]
    notebook = notebooks.new_notebook(cells=[notebooks.new_code_cell(first), *cells])
    client = NotebookClient(
        notebook,
        timeout=None,
        kernel_name=_KERNEL,
        record_timing=False,
        skip_cells_with_tag="skip-execution",
        resources={"metadata": {"path": job.folder}},
    )
    _keep_the_beginning_of_streams(client)
    manager = client.create_kernel_manager()
    sockets = folder / "kernel"
    if len(str(sockets)) < _SOCKET_PATH:
        # Other users of the machine could read along over TCP.
        manager.transport = "ipc"
        manager.ip = str(sockets)
    states: set[str] = set()
    with (folder / _OUTCOMES).open("a", encoding="utf-8") as outcomes, client.setup_kernel():
        for number, cell in enumerate(notebook.cells, PREPARED):
            if number >= 0:
                print(f"cell {number + 1} of {len(cells)}", flush=True)
            states.add(_run(client, cell, number - PREPARED, outcomes))
            if "dead" in states or ("failed" in states and not job.keep_going):
                break
    if states != {"ok"}:
        sys.exit(CELL_FAILED)


def _keep_the_beginning_of_streams(client: Any) -> None:
    """Let the client keep the beginning of what a cell prints, and not all of it in memory."""
    add = client.output

    def output(
        outs: list[NotebookNode], msg: Any, display_id: str | None, cell_index: int
    ) -> NotebookNode | None:
        out: NotebookNode | None = add(outs, msg, display_id, cell_index)
        if outs and outs[-1].output_type == "stream":
            # a plug-in of virtual GPUs
            if outs[-1].text.startswith(("compiling ", "still compiling ")):
                words = outs[-1].text.partition("\n")[0]
                print(f"cell {cell_index} of {len(client.nb.cells) - 1}: {words}", flush=True)
            _merge_stream(outs)
        return out

    client.output = output


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


def _run(client: Any, cell: NotebookNode, index: int, outcomes: TextIO) -> str:
    """Run a cell, write its outcome, and return how it ended: ok, failed or dead."""
    from nbclient.exceptions import CellExecutionError, DeadKernelError

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


def _how_it_ended(client: Any) -> str:
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


# ------------------------------------------------------------------ the kernel


class Tab:
    """The name ``tab`` in the cells of d2l-en: ``if tab.selected("pytorch"):``."""

    def __init__(self, framework: str) -> None:
        self._framework = framework

    def selected(self, *names: str | list[str]) -> bool:
        from xdevice.framework.installing import framework_named

        words: list[str] = []
        for name in names:
            words += [name] if isinstance(name, str) else name
        return self._framework in map(framework_named, words)

    def interact_select(self, *names: str | list[str]) -> None:
        """Choose the tabs, in a notebook that people use: nothing to do here."""


def prepare(framework: str, seed: int) -> None:
    """Set the seeds, let figures be shown as their numbers, too, and print the version.

    The framework is not imported: the chapter may set variables before that.
    """
    from IPython.core.getipython import get_ipython

    shell: Shell = get_ipython()
    shell.user_ns["tab"] = Tab(framework)
    bundles = shell.display_formatter.mimebundle_formatter
    bundles.for_type_by_name("matplotlib.figure", "Figure", _curves_of)
    _draw_inline(shell)
    _set_seeds(seed)
    if framework:
        print(_installed_version(framework))


def _installed_version(framework: str) -> str:
    """The framework's version, without its import: the chapter may set variables before that."""
    from importlib import metadata

    try:
        return metadata.version(framework)
    except metadata.PackageNotFoundError:  # the distribution has another name
        distributions = metadata.packages_distributions().get(framework, [])
        return metadata.version(distributions[0]) if distributions else ""


def _draw_inline(shell: Shell) -> None:
    """Let ``%matplotlib notebook``, ``widget`` or ``qt`` draw as ``inline``: nobody can click."""
    enable = shell.enable_matplotlib
    shell.enable_matplotlib = lambda gui=None: enable("inline")


def _set_seeds(seed: int) -> None:
    """Set the seeds of Python and NumPy now, and of each framework before its first draw.

    The chapter may import a framework, or use it through xdevice alone.
    """
    from xdevice.framework import at_import
    from xdevice.framework.adapters import Backend, before_loading
    from xdevice.framework.choosing import using
    from xdevice.tensors.creation import seed as seed_framework

    draws = _Draws(seed)
    seeded: set[Backend] = set()

    def seed_once(owner: Backend) -> None:
        if owner in seeded:
            return
        seeded.add(owner)
        with using(owner):
            seed_framework(seed)
        draws.restore(str(owner))

    before_loading.append(seed_once)
    at_import.watch(seed_once)
    sys.meta_path.insert(0, draws)


class _Draws(MetaPathFinder):
    """The random numbers of Python and NumPy: the same in every tab, whatever imports draw."""

    def __init__(self, seed: int) -> None:
        self._states: dict[str, tuple[Any, ...]] = {}
        self._generators = 0
        self._numpy: Any = None
        random.seed(seed)
        if find_spec("numpy"):
            import numpy as np

            self._numpy = np.random
            np.random.seed(seed)
            np.random.default_rng = self._seeded(np.random.default_rng, seed)

    def _seeded(self, default_rng: Any, seed: int) -> Any:
        """NumPy's function, which seeds the generators that are given no seed."""

        @wraps(default_rng)
        def seeded(given: Any = None) -> Any:
            if given is None:
                given = [seed, self._generators]
                self._generators += 1
            return default_rng(given)

        return seeded

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Keep the state before the import of a framework."""
        from xdevice.framework.registry import ORDER

        if fullname in ORDER and fullname != "numpy":
            numpy = self._numpy and self._numpy.get_state()
            self._states[fullname] = (random.getstate(), numpy, self._generators)

    def restore(self, framework: str) -> None:
        """Go back to the state before the import, if there was one."""
        if framework in self._states:
            python, numpy, self._generators = self._states.pop(framework)
            random.setstate(python)
            if self._numpy:
                self._numpy.set_state(numpy)


def _curves_of(figure: Figure, **_: object) -> dict[str, Any]:
    return {CURVES: curves_of(figure)}


def curves_of(figure: Figure) -> list[dict[str, Any]]:
    """The lines and bars of a figure, as numbers."""
    curves: list[dict[str, Any]] = []
    for number, axes in enumerate(figure.axes):
        for line in axes.get_lines():
            points = line.get_xydata().tolist()
            label = str(line.get_label())
            curves.append(_curve(number, label, points))
        for container in axes.containers:
            heights = [float(height) for height in getattr(container, "datavalues", ())]
            if heights:
                curves.append(_curve(number, "bars", [[i, y] for i, y in enumerate(heights)]))
    return curves


def _curve(axes: int, label: str, points: list[list[float]]) -> dict[str, Any]:
    step = -(-len(points) // _POINTS) or 1
    shown_points = points[::step]
    if label.startswith("_"):  # matplotlib's own names, for lines without a label
        label = ""
    return {
        "axes": axes,
        "label": label,
        "x": [float(f"{x:.6g}") for x, _ in shown_points],
        "y": [float(f"{y:.6g}") for _, y in shown_points],
    }


if __name__ == "__main__":
    main()
