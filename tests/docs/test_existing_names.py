"""Every file, module, function and command that the documentation names exists."""

import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from xdevice.tools.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

SUFFIX = r"\.(?:py|toml|md|cc|h|yml|txt|ini|sh|ipynb|js)"
FILE = re.compile(rf"(?<![\w/.~$-])((?:[\w.-]+/)+[\w.-]*|[\w-]+{SUFFIX})(?![\w/])")
SPAN = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)

EXAMPLE_FILES = {
    *("../xdevice", "./train.sh", "train.sh", "train.py", "script.py", "try_it.py", "section.py"),
    *("../data", "../img", "chapter.outputs.json", "lesson.md", "config.ini", "notebook.ipynb"),
    *("tests/native/NAME.py", "ADDRESS/blob/vX.Y.Z/", "ADDRESS/raw/vX.Y.Z/"),
}
FILES_OF_OTHERS = {"torch/csrc/stable", "device_ext.h", "distributed_test.py"}
FILES_OF_OTHERS |= {"tests/gpu", "varifold/_device.py"}
NOT_FILES = {"16GB/s", "25GB/s", "N/A", "-I/usr/include/c"}
NOT_MODULES = {"xdevice.plugins", "xdevice.transfers"}  # a group of entry points, a logger


@pytest.fixture(scope="module")
def existing():
    """The files and folders of the repository, each by every ending of its path."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [Path(line) for line in listed.stdout.splitlines()]
    paths = {*files, *(folder for file in files for folder in file.parents)}
    return {"/".join(path.parts[start:]) for path in paths for start in range(len(path.parts))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_files_exist(page, existing):
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    named = {path for span in SPAN.findall(prose) for path in FILE.findall(span)}
    expected = named - EXAMPLE_FILES - FILES_OF_OTHERS - NOT_FILES
    assert sorted(path for path in expected if path.rstrip("/") not in existing) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_modules_and_functions_exist(page):
    spans = SPAN.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
    named = {name for span in spans for name in re.findall(r"^xdevice(?:\.\w+)+", span)}
    assert sorted(name for name in named - NOT_MODULES if not resolves(name)) == []


def resolves(name):
    """Whether a dotted name is a module, or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        return bool(module) and resolves(module) and hasattr(value_of(module), attribute)
    return True


def value_of(name):
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(value_of(module), attribute)


def test_named_commands_exist(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    commands = set(re.findall(r"[a-z]+", capsys.readouterr().out))
    named = {
        (command, page.name)
        for page in PAGES
        for command in re.findall(r"^(?:\$ |`)xdevice ([a-z]+)\b", lines_of_code(page), re.M)
    }
    assert len(named) > 20
    assert {
        (command, page) for command, page in named if command not in {*commands, "rnu"}
    } == set()


def lines_of_code(page):
    """The code spans and the lines of code blocks, each on a line of its own."""
    text = page.read_text(encoding="utf-8")
    return "\n".join([*BLOCK.findall(text), *(f"`{span}`" for span in SPAN.findall(text))])
