"""The examples of the README run, and say what it says that they say; the Chinese one has the same examples."""

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


@pytest.mark.frameworks("torch", "numpy")
def test_two_gpus_on_a_laptop(backend):
    text, (example, _) = text_and_examples("README.md")
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


@pytest.mark.frameworks("torch", "numpy")
def test_the_ten_lines(backend):
    text, (_, example) = text_and_examples("README.md")
    done = said(backend, example)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{backend} [Device('cpu:0')] cpu:0"
    assert "numpy [Device('cpu:0')] cpu:0" in text


def test_the_chinese_readme_has_the_same_code():
    def code(name):
        text, examples = text_and_examples(name)
        said = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
        commands = re.search(r"```\n(python3\.11 .*?)```", text, re.DOTALL)[1]
        return [
            re.sub(r"^# .*\n|  #.*", "", part, flags=re.MULTILINE)
            for part in [*examples, said[0], commands]
        ]

    assert code("README.md") == code("README.zh.md")


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_each_readme_is_short_and_linked(name):
    text, _ = text_and_examples(name)
    assert len(text.splitlines()) < 140
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / target).exists(), target


@pytest.mark.frameworks("torch")
def test_the_report_of_transfers(backend):
    if backend != "torch":
        assert "--backend torch examples/transfers.py" in text_and_examples("README.md")[0]
        return
    block = re.compile(r"```console\n\$ xdevice (run --watch.*?)\n(.*?)```", re.DOTALL)
    found = [
        block.search(text_and_examples(name)[0]).groups() for name in ("README.md", "README.zh.md")
    ]
    assert found[0] == found[1]
    command, promised = found[0]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    ran = [sys.executable, "-m", "xdevice", *command.split()]
    done = subprocess.run(
        ran, env=clean, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=300
    )
    assert promised in done.stderr
