"""The notebook, run in a kernel: ``python docs/notebooks/run.py`` keeps the outputs.

    python docs/notebooks/run.py --backend jax --to FOLDER    writes it to FOLDER

It needs nbclient and ipykernel. The outputs that are kept are PyTorch's, on the CPU and two virtual GPUs. A cell with
the tag ``varies`` prints times, or words of the framework: a test compares the outputs of all the others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def run(notebook: nbformat.NotebookNode, backend: str) -> None:
    """Give each cell its output. A cell that fails ends the run, unless it has the tag ``raises-exception``."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    one_machine = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    env |= {"XDEVICE_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", **one_machine}
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env={**env, "IPYTHONDIR": folder})


def tidied(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without what changes from run to run, or names this machine's Python."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the notebook and keep its outputs.")
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--to", type=Path, default=HERE, help="the folder for the result")
    options = parser.parse_args()
    for path in HERE.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        run(notebook, options.backend)
        nbformat.write(tidied(notebook), options.to / path.name)


if __name__ == "__main__":
    main()
