"""The notebooks run in a real kernel, under four frameworks, and print what is kept in them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(scope="module", params=["torch", "jax", "tensorflow", "paddle"])
def done(request, tmp_path_factory):
    """The framework, and the folder in which its notebooks are, with the outputs of this run."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, NOTEBOOKS / "run.py", "--backend", request.param, "--to", folder]
    here = {
        "JUPYTER_RUNTIME_DIR": str(folder),
        "JUPYTER_CONFIG_DIR": str(folder),
        "JUPYTER_DATA_DIR": str(folder),
    }
    ran = subprocess.run(
        command,
        env={**os.environ, **here},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return request.param, folder


def cells(path):
    """The code of each cell whose outputs are the same in every run, with the outputs."""
    kept = json.loads(path.read_text(encoding="utf-8"))["cells"]
    tags = [cell["metadata"].get("tags", []) for cell in kept]
    code = [
        cell
        for cell, tag in zip(kept, tags, strict=True)
        if cell["cell_type"] == "code" and "varies" not in tag
    ]
    return [
        ("".join(cell["source"]), [text(output) for output in cell["outputs"]]) for cell in code
    ]


def text(output):
    """The output as text; cells are counted from the kernel's start, and a traceback has the number."""
    if output["output_type"] == "error":
        return re.sub(
            r"In\[\d+\]", "In[]", re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output["traceback"]))
        )
    return "".join(output["text"]) if output["output_type"] == "stream" else output["data"]


@pytest.mark.weekly
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_prints_what_is_kept(done, name):
    backend, folder = done
    same = json.dumps(cells(folder / name)).replace(f"under {backend}, ", "under torch, ")
    assert json.loads(same) == json.loads(json.dumps(cells(NOTEBOOKS / name)))


@pytest.mark.weekly
def test_an_error_shows_no_frame_of_xdevice(done):
    _, folder = done
    raised = [
        (output["ename"], text(output))
        for name in NAMES
        for cell in json.loads((folder / name).read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", [])
        if output["output_type"] == "error"
    ]
    ours = [trace for error, trace in raised if error != "AttributeError"]
    assert len(ours) >= 3
    for trace in ours:
        assert re.search(r"^-+> \d+ ", trace, re.MULTILINE), "the line of the cell is shown"
        assert "/xdevice/" not in trace
        assert "contextlib" not in trace
    assert any(trace.count("Cell In[]") == 2 for trace in ours), (
        "a function of the user's is a frame of its own"
    )


@pytest.mark.weekly
def test_a_cell_starts_a_job_and_a_command(done):
    _, folder = done
    printed = [output for _, outputs in cells(folder / "in_notebooks.ipynb") for output in outputs]
    assert "[0] rank 0 has 2.0\n[1] rank 1 has 2.0\n" in printed
    assert "True False False\n" in printed  # the results are there, and no control characters


@pytest.mark.parametrize("name", NAMES)
def test_kept_outputs_name_no_machine(name):
    text = (NOTEBOOKS / name).read_text(encoding="utf-8")
    kept = json.loads(text)
    assert kept["cells"][0]["cell_type"] == "markdown"
    assert "".join(kept["cells"][0]["source"]).startswith("# ")
    assert any(cell["outputs"] for cell in kept["cells"] if cell["cell_type"] == "code")
    assert all(cell["execution_count"] for cell in kept["cells"] if cell["cell_type"] == "code")
    assert "/tmp/" not in text
    assert "site-packages" not in text
    assert "ipykernel_" not in text


@pytest.mark.weekly
def test_an_error_shows_no_frame_of_a_framework(tmp_path, monkeypatch):
    for name in ("RUNTIME", "CONFIG", "DATA"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path))
    setup = "import xdevice\nxdevice.use('jax')\nxdevice.virtual_gpus(2)"
    mixing = "with xdevice.strict():\n    xdevice.ones(2, device='gpu:0') + xdevice.ones(2, device='gpu:1')"
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in (setup, mixing)]
    )
    nbclient.NotebookClient(made, allow_errors=True, timeout=300).execute()
    shown = text(made.cells[1].outputs[-1])
    assert shown.count("Cell In[]") == 1
    assert "xdevice.ones(2" in shown
    assert "/jax/" not in shown
    assert "MixedDeviceError: add was given tensors on gpu:0 and gpu:1" in shown
    assert "ValueError: Received incompatible devices" in shown, (
        "the framework's own words are kept"
    )
