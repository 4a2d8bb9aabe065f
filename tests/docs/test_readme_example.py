"""The examples of each README run, and say what the README says that they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def said(backend, example):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    return subprocess.run(
        [sys.executable, "-c", f"import xdevice; xdevice.use({backend!r})\n{example}"],
        env=clean,
        capture_output=True,
        text=True,
        timeout=300,
    )


def text_and_examples(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return text, re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_two_gpus_on_a_laptop_say_what_is_promised(name, backend):
    text, (example, _) = text_and_examples(name)
    done = said(backend, example)
    if backend == "numpy":
        assert done.returncode == 1
        assert "NotSupportedError: numpy has no virtual GPUs" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    promised = re.search(r"```text\n(.*?)```", text, re.DOTALL)[1].splitlines()
    operation = re.compile(r"^\S+ was given")
    assert [operation.sub("", line) for line in done.stdout.splitlines()] == [
        operation.sub("", line) for line in promised
    ]


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_ten_lines_run_and_print_what_is_promised(name, backend):
    text, (_, example) = text_and_examples(name)
    done = said(backend, example)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{backend} [Device('cpu:0')] cpu:0"
    assert "numpy [Device('cpu:0')] cpu:0" in text
