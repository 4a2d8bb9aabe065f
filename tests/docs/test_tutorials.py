"""The home page and the tutorials, typed into an empty folder: files are written, commands run, outputs compared.

What is not done here is what a page has in a ``text`` block: making an environment and installing into it.
"""

import doctest
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("learn/student.md", "learn/author.md", "test/library.md", "test/copies.md")
BLOCK = re.compile(r"^( *)```(python|toml|ini|console)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# (\S+)\n")
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# tox itself runs, with the tox.ini of the page. It installs nothing: it finds what this environment has.
HERE = "-x testenv.deps= -x testenv.allowlist_externals=pytest -x testenv.set_env=PYTHONPATH=."
INSTALLED = {"tox run": f"python -m tox run --skip-pkg-install {HERE}"}


def typed(command, folder):
    """What the command prints on stdout, as in the reader's environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDEVICE", "TOX", "PYTEST"))
    }
    quiet = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "COLUMNS": "80",
        "PYTHONIOENCODING": "utf-8",
        "CUDA_VISIBLE_DEVICES": "",
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return subprocess.run(
        ["bash", "-c", INSTALLED.get(command, command)],
        cwd=folder,
        env={**kept, **quiet, "PATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


@pytest.mark.weekly
@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_does_what_it_says(page, tmp_path):
    assert follow((DOCS / page).read_text(encoding="utf-8"), tmp_path)


@pytest.mark.weekly
def test_the_home_page_does_what_it_says(tmp_path):
    page = (DOCS / "index.md").read_text(encoding="utf-8")
    assert follow(page, tmp_path) == 4
    first = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    assert len(first.splitlines()) <= 8


def follow(page, folder):
    """Do what the page says, compare what is printed, and return how many commands were run."""
    commands = 0
    for _, kind, indented in BLOCK.findall(page):
        block = textwrap.dedent(indented)
        if block.startswith(">>> "):
            continue  # a session, which test_docs.py runs
        if kind != "console":
            file = folder / NAMED.match(block)[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(block, encoding="utf-8")
            continue
        for command, promised in COMMAND.findall(block):
            commands += 1
            done = typed(command, folder)
            alike = doctest.OutputChecker().check_output(promised, done.stdout, ALIKE)
            assert alike, (
                f"{command}\n{promised}\nis promised, and not:\n{done.stdout}\n{done.stderr[-3000:]}"
            )
            failed = bool(re.search(r"^FAILED ", promised, re.MULTILINE))
            assert bool(done.returncode) == failed, (
                f"{command} ended with {done.returncode}\n{done.stderr[-3000:]}"
            )
    return commands


def test_the_chapters_tabs_run():
    page = (DOCS / "learn" / "author.md").read_text(encoding="utf-8")
    assert set(re.findall(r"# (tab_\w+\.py)", page)) == set(
        re.findall(r"^\$ .*(tab_\w+\.py)$", page, re.MULTILINE)
    )
