"""The examples of the README run, and say what it says that they say; the Chinese one has the same examples."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def said(in_a_fork):
    def run(backend, example):
        return in_a_fork(backend, f"import xdevice; xdevice.use({backend!r})\n{example}")

    return run


def blocks(name):
    """The README's examples, and what it says that two of them print."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return [re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "text")]


@pytest.mark.frameworks("torch", "numpy")
def test_the_ten_lines(backend, said):
    (example, _, _), _ = blocks("README.md")
    done = said(backend, example)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{backend} [Device('cpu:0')] cpu:0"
    assert "numpy [Device('cpu:0')] cpu:0" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.frameworks("torch", "numpy")
def test_two_gpus_on_a_laptop(backend, said):
    (_, example, _), (promised, _) = blocks("README.md")
    done = said(backend, example)
    if backend == "numpy":
        assert "NotSupportedError: numpy has no virtual GPUs" in done.stderr
        return
    *printed, _, error = promised.splitlines()
    assert done.stdout.splitlines() == printed
    raised = [line for line in done.stderr.splitlines() if line.startswith("xdevice.errors.")]
    if backend == "torch":
        assert raised == [error]
    else:  # each has its own name of the operation
        assert re.sub(r"Error: \S+", "", raised[0]) == re.sub(r"Error: \S+", "", error)


@pytest.mark.frameworks("torch")
def test_a_cuda_program_on_a_laptop(backend, tmp_path, plug_in):
    (_, _, example), (_, promised) = blocks("README.md")
    (tmp_path / "net.py").write_text(example, encoding="utf-8")
    if backend != "torch":
        assert "import torch" in example
        return
    command, note, *printed, traceback, error = promised.splitlines()
    ran = [sys.executable, "-m", *command.removeprefix("$ ").split()]
    done = subprocess.run(ran, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == printed
    assert done.stderr.splitlines()[:2] == [note, traceback.removesuffix(" ...")]
    assert done.stderr.splitlines()[-1] == error


def test_the_chinese_readme_has_the_same_code():
    def code(name):
        text = (ROOT / name).read_text(encoding="utf-8")
        parts = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        return [re.sub(r"  #.*", "", part) for part in parts]

    assert code("README.md") == code("README.zh.md")


@pytest.mark.parametrize("name", ["README.md", "README.zh.md", "CONTRIBUTING.md", "RELEASING.md"])
def test_each_page_of_the_root_is_short_and_linked(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / target).exists(), target
