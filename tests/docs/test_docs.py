"""The pages of the documentation say what is so: their examples run."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

import xdevice
from xdevice.framework import choosing as registry

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.py)\n")  # a block that opens with its name is a file, not a session


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


@pytest.fixture
def numpy_chosen(monkeypatch):
    """NumPy, and whatever a page chooses forgotten after it."""
    monkeypatch.setattr(registry, "_process_choice", None)
    monkeypatch.setenv("XDEVICE_BACKEND", "numpy")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(">>> " in block for block in blocks(page))]
)
def test_the_examples_of_a_page_run_in_order(page, numpy_chosen):
    sessions = "\n".join(block for block in blocks(page) if not FILE.match(block))
    test = doctest.DocTestParser().get_doctest(sessions, {}, page, page, 0)
    assert test.examples
    report = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_is_run(page):
    assert all(FILE.match(block) or block.startswith(">>> ") for block in blocks(page))


def test_what_other_projects_tests_cannot_have_is_in_the_words_of_the_pages():
    listed = tomllib.loads(
        (DOCS.parent / "validation/foreign/cannot.toml").read_text(encoding="utf-8")
    )
    pages = ("use/virtual.md", "project/virtual.md")
    page = " ".join(" ".join((DOCS / name).read_text("utf-8") for name in pages).split())
    assert listed
    assert [words for words in listed if words not in page] == []


@pytest.mark.weekly
def test_the_pages_adapter_keeps_the_contract(tmp_path):
    for block in BLOCK.findall(page_text()):
        file = tmp_path / FILE.match(block)[1]
        file.parent.mkdir(exist_ok=True)
        file.write_text(block, encoding="utf-8")
    toml = re.search(
        r"^```toml\n(# pyproject.toml\n.*?)^```$", page_text(), re.MULTILINE | re.DOTALL
    )[1]
    entry = re.search(
        r"^\[project\.entry-points\.\"(.+)\"\]\n(\w+) = \"(\w+)\"$", toml, re.MULTILINE
    )
    info = tmp_path / "xdevice_array-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: xdevice-array\nVersion: 1\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "[{}]\n{} = {}\n".format(*entry.groups()), encoding="utf-8"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])

    def passed(*command):
        done = subprocess.run(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return int((re.findall(r"(\d+) passed", done.stdout) or ["0"])[0])

    suite = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    both = passed(*suite)
    (tmp_path / "xdevice_array" / "exchange.py").rename(tmp_path / "later.py")
    first = passed(*suite)
    assert both > first > 100
    (tmp_path / "later.py").rename(tmp_path / "xdevice_array" / "exchange.py")
    passed("try_it.py")


def page_text():
    page = (DOCS / "project" / "adapters.md").read_text(encoding="utf-8")
    return page.partition("\n## Writing maths")[0]


def test_every_error_is_in_the_table():
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (↳ )?`(\w+)` \| `(\w+)` \| .+ \|$", page, re.MULTILINE)
    listed = {name: builtin for _, name, builtin in rows}
    errors = {
        name: getattr(xdevice, name) for name in xdevice.__all__ if hasattr(xdevice.errors, name)
    }
    assert set(listed) == set(errors) - {"XDeviceError"}
    builtins = vars(__import__("builtins"))
    assert all(issubclass(errors[name], builtins[builtin]) for name, builtin in listed.items())
    above = xdevice.XDeviceError
    for arrow, name, _ in rows:
        if arrow:
            assert issubclass(errors[name], above)
        above = above if arrow else errors[name]


def test_options_are_on_the_page(capsys):
    from xdevice.tools.cli import COMMANDS, main

    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = re.split(r"^## xdevice (\w+)$", page, flags=re.MULTILINE)[1:]
    sections = dict(zip(commands[::2], commands[1::2], strict=True))
    assert set(sections) == set(COMMANDS)
    for name in COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
        said = capsys.readouterr().out
        rows = re.findall(r"^\|.*", sections[name], re.MULTILINE)
        tables = "\n".join(
            rows if name != "doctor" else re.findall(r"^\|.*", sections["info"], re.MULTILINE)
        )
        listed = set(re.findall(r"--[a-z][a-z-]*", tables))
        helped = set(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)", said, re.MULTILINE)) - {"--help"}
        assert listed == helped, name


def test_the_installation_page_has_each_extra_with_a_framework_and_the_oldest_python():
    page = (DOCS / "use" / "installation.md").read_text(encoding="utf-8")
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"cli"}
    lines = set(re.findall(r"`pip install '\.\[(\w+)\]'", page))
    assert lines == set(project["entry-points"]["xdevice.backends"])
    assert {extra for extra in extras - lines if f"`{extra}`" not in page} == set()
    assert f"Python {project['requires-python'].removeprefix('>=')} or later" in page
