"""The tool that replaces other projects' device code, on a small project of our own; its page."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "validation/adoption/README.md"
KIT = '''"""Helpers."""

import os

DEVICES = os.environ["MADE_DEVICES"].split(",")


def devices():
    return DEVICES


class Kit:
    @property
    def first(self):
        return devices()[0]

    def last(self):
        return devices()[-1]
'''


def in_tool(code):
    """What the code prints, run beside the tool's own modules."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path):
    (tmp_path / "kit.py").write_text(KIT, encoding="utf-8")
    return tmp_path


def edit(project, statements):
    lines = "\n".join(
        [
            "from pathlib import Path",
            "from tree import Tree",
            f"tree = Tree(Path({str(project)!r}))",
            "kit = tree.file('kit.py')",
            statements,
            "print(tree.lines())",
        ]
    )
    return in_tool(lines)


def test_a_definition_is_replaced_by_its_name_with_its_decorators(project):
    edit(project, "kit.replace_definition('Kit.first', 'first = 1')")
    text = (project / "kit.py").read_text(encoding="utf-8")
    assert "    first = 1\n\n    def last(self):" in text
    assert "@property" not in text


def test_removed_and_added_lines_are_counted(project):
    said = edit(
        project, "kit.remove('DEVICES')\nkit.replace('return DEVICES', 'return []\\n    # none')"
    )
    assert said == "{'removed': 4, 'added': 2, 'files': 1}\n"


def test_a_test_gets_a_fixture_before_the_arguments_that_it_has(project):
    (project / "kit.py").write_text(
        "def test_a():\n    run()\n\n\nclass T:\n    def test_b(self, x):\n        run()\n"
    )
    edit(project, "kit.add_fixture('device', 'run')")
    text = (project / "kit.py").read_text(encoding="utf-8")
    assert "def test_a(device):" in text
    assert "def test_b(self, device, x):" in text


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("kit.replace('gone', '')", "kit.py: 'gone' is there 0 times, expected 1"),
        ("kit.replace('devices', '')", "kit.py: 'devices' is there 3 times, expected 1"),
        ("kit.remove('gone')", "kit.py: gone is defined 0 times, expected once"),
        ("kit.replace_lines('gone', 'x')", "kit.py: 'gone' is in 0 lines, expected one"),
        ("kit.add_fixture('device', 'gone')", "kit.py: no test contains 'gone'"),
        ("tree.files('*.txt')", "*.txt: no file of the project matches"),
    ],
)
def test_an_edit_whose_anchor_has_gone_says_so(project, statement, says):
    assert edit(project, statement) == f"{says}\n"


def test_the_original_of_a_hard_link_stays(project):
    copy = project / "copy"
    copy.mkdir()
    (copy / "kit.py").hardlink_to(project / "kit.py")
    edit(copy, "kit.remove('devices')")
    assert (project / "kit.py").read_text(encoding="utf-8") == KIT


def test_each_project_has_a_change_figures_and_a_weekly_run():
    projects = tomllib.loads((HERE / "projects.toml").read_text(encoding="utf-8"))
    changes = {file.stem.replace("_", "-") for file in (HERE / "changes").glob("*.py")}
    figures = {file.stem for file in (HERE / "figures").glob("*.json")}
    workflow = (HERE.parents[1] / ".github/workflows/versions.yml").read_text(encoding="utf-8")
    assert set(projects) == changes == figures
    assert f"project: [{', '.join(projects)}]" in workflow


def test_the_page_agrees_with_the_figures():
    table = in_tool("import page, projects; print(page.table(projects.HERE / 'figures'), end='')")
    assert "| --- |" in table
    assert table in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "file", sorted((HERE / "figures").glob("*.json")), ids=lambda file: file.stem
)
def test_no_test_of_a_project_fails_because_of_the_change(file):
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert figures["after"]["failed"] <= figures["before"]["failed"]
    assert figures["after"]["passed"] > 0


@pytest.mark.parametrize(
    "file", sorted((HERE / "figures").glob("*.json")), ids=lambda file: file.stem
)
def test_the_tests_of_a_project_run_on_virtual_gpus_too(file):
    figures = json.loads(file.read_text(encoding="utf-8"))
    on_gpus = figures["virtual"]
    assert on_gpus["passed"] > 0
    assert on_gpus["passed"] + on_gpus["failed"] >= figures["after"]["passed"]


def test_each_reported_fault_has_figures():
    for issues in (HERE / "issues").glob("*_issues.py"):
        name = issues.stem.removesuffix("_issues").replace("_", "-")
        figures = json.loads((HERE / f"figures/{name}.json").read_text(encoding="utf-8"))["issues"]
        number_of_runs = figures["passed"] + figures["failed"]
        assert number_of_runs >= issues.read_text(encoding="utf-8").count("\ndef test_")


def test_the_page_names_each_reported_fault():
    page = PAGE.read_text(encoding="utf-8")
    for issues in (HERE / "issues").glob("*_issues.py"):
        tests = issues.read_text(encoding="utf-8")
        missing = {fault for fault in re.findall(r"test_issue_(\d+)", tests) if fault not in page}
        assert not missing, issues.name
