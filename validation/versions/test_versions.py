"""The page of versions, the ranges that are installed and the script that tries them agree."""

import importlib
import re
import sys
import zipfile
from pathlib import Path

import pytest
import tomllib
from packaging.markers import Marker

ROOT = Path(__file__).parents[2]
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
PAGE = (ROOT / "validation/versions/README.md").read_text(encoding="utf-8")
TOX = (ROOT / "tox-weekly.ini").read_text(encoding="utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")

sys.path.insert(0, str(ROOT / "validation" / "versions"))
checks, environments = map(importlib.import_module, ("checks", "environments"))
sys.path.pop(0)


def rows(text=PAGE):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


def pins(python):
    """The version of each framework that constraints.txt has for a Python, by its package."""
    found = {}
    for line in CONSTRAINTS.splitlines():
        pin, _, marker = line.partition("; ")
        if "==" in pin and (not marker or Marker(marker).evaluate({"python_version": python})):
            package, version = pin.split("==")
            assert package not in found, f"{package} is pinned twice for Python {python}"
            found[package] = version
    return found


@pytest.mark.parametrize("name", environments.PACKAGES)
def test_the_oldest_is_the_lowest_admitted(name):
    oldest = next(row[1] for row in rows() if row[0] == name)
    assert oldest == environments.lowest(name)


@pytest.mark.parametrize("name", environments.PACKAGES)
def test_the_oldest_has_a_tox_environment(name):
    family = re.search(r"^\[testenv:oldest-\{(.*)\}\]$", TOX, re.MULTILINE)[1]
    assert name in family.split(",")
    assert f"    {name}: FRAMEWORK = {name}\n" in TOX


def test_the_newest_are_what_is_tested():
    tested = pins("3.11")
    del tested["array-api-strict"]  # the page has a paragraph on it
    tested["mxnet"] = re.search(r"^    all,budget: .* mxnet==(.*)$", TOX, re.MULTILINE)[1]
    assert {row[0]: row[2] for row in rows()[2 : 2 + len(tested)]} == {
        name: tested[package] for name, package in environments.PACKAGES.items()
    }


def section(title):
    """The tables of a section of the page."""
    return rows(PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0])


def test_the_page_has_the_version_of_each_python():
    header, _, *table = section("Which Python")
    assert header == ["framework", *PYTHONS]
    said = {
        (row[0], python): version
        for row in table
        for python, version in zip(PYTHONS, row[1:], strict=True)
    }
    wheels = {
        key: version.removesuffix(" (not run)")
        for key, version in said.items()
        if version != "no wheels"
    }
    assert wheels == {key: pins(key[1])[environments.PACKAGES[key[0]]] for key in wheels}
    assert {name for name, _ in said} == set(environments.PACKAGES) - {"mxnet"}
    # Under 3.11 every change is run; what passed on another Python has a row.
    _, _, *passed = section("What passed")
    ran = {
        (row[0], python, version)
        for row in passed
        for python in row[2].split(", ")
        for version in versions_in(row)
    }
    claimed = {
        key: version for key, version in wheels.items() if version == said[key] and key[1] != "3.11"
    }
    assert [(*key, version) for key, version in claimed.items() if (*key, version) not in ran] == []


def versions_in(row):
    """The versions of a row, without that of Keras and without the build."""
    return [re.sub(r"\+.*", "", word) for word in row[1].split(", ") if word[0].isdigit()]


def test_each_row_says_on_which_commit_it_was_measured():
    header, _, *table = section("What passed")
    assert header[-1] == "commit"
    assert [row for row in table if not re.fullmatch(r"(before )?[0-9a-f]{7,}", row[-1])] == []


def test_the_alarm_covers_each_framework():
    weekly = (ROOT / ".github" / "workflows" / "versions.yml").read_text(encoding="utf-8")
    families = re.findall(r"framework: \[(.*)\]", weekly)
    assert [set(family.split(", ")) for family in families][:2] == [
        set(environments.PACKAGES),
        set(environments.PACKAGES) - {"mxnet"} | {"array_api_strict"},
    ]


def test_any_environment_may_be_weekly():
    headers = re.findall(r"^\[testenv:(.*)\]$", TOX, re.MULTILINE)
    # tox knows a factor that is in a header as a part of that name alone
    assert not [
        header
        for header in headers
        for word in ("weekly", "newest", "pre")
        if word in re.split(r"\W", header)
    ]


def test_the_examples_of_the_readme_run_under_the_newest():
    commands = re.findall(r"^    ([a-z,]*): pytest --weekly .*\{posargs:(.*)\}$", TOX, re.MULTILINE)
    (frameworks,) = [names for names, files in commands if checks.README in files.split()]
    assert {*frameworks.split(","), "numpy"} == {*environments.PACKAGES}
    assert (ROOT / checks.README).is_file()


def test_an_older_version_is_given_what_it_needs():
    wanted = environments.wanted
    assert wanted("paddle", "2.6.2") == ["paddlepaddle==2.6.2", "numpy<2", "setuptools<81"]
    assert wanted("paddle", "3.0.0") == ["paddlepaddle==3.0.0", "setuptools"]
    assert wanted("mxnet", "newest") == ["mxnet", "numpy<1.24"]
    assert wanted("tensorflow", "pre") == ["tensorflow-cpu", "setuptools"]


@pytest.mark.weekly
def test_the_wheel_that_is_tried_is_made(tmp_path):
    with zipfile.ZipFile(environments.make_wheel(tmp_path)) as wheel:
        assert {"xdevice/device.py", "xdevice/backends/numpy/hardware.py"} <= set(wheel.namelist())


def test_the_checks_have_the_command_line_and_no_framework():
    suite = {environments.bare(package) for package in environments.suite()}
    assert {"pytest", "rich", "array-api-compat", "array-api-strict"} <= suite
    assert suite.isdisjoint({*environments.PACKAGES.values(), "xdevice-tensors"})


def test_what_cannot_be_installed_is_said_in_a_line():
    pip = "ERROR: Could not find a version that satisfies the requirement jax==9 (from versions: 0.1)\nERROR: No match"
    assert environments.reason_in(pip) == "ERROR: No match"
    uv = "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no jax==9\n      we stop."
    said = "No solution found when resolving dependencies: Because there is no jax==9 we stop."
    assert environments.reason_in(uv) == said


@pytest.mark.parametrize("name", checks.PROGRAMS)
def test_each_program_is_a_row_of_that_framework(name):
    project, row = checks.PROGRAMS[name].split("/")
    table = tomllib.loads((ROOT / "validation/programs/programs.toml").read_text(encoding="utf-8"))[
        project
    ]
    assert {**table, **table[row]}["framework"] == name


def test_numpy_is_not_asked_for_virtual_gpus():
    assert checks.checks_for("numpy", ",".join(checks.CHECKS)) == ["contract", "readme"]
    assert checks.checks_for("jax", "readme,contract") == ["contract", "readme"]


def test_a_report_tells_what_failed_and_why(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><skipped/></testcase>"
        "<testcase name='c'><failure message='E: no\n  such'/></testcase></testsuite></testsuites>"
    )
    assert checks.read_report(report, 1.0) == checks.Run(1, 1, {"c": "E: no such"}, 1.0)
    report.write_text(
        "<testsuite><testcase name='internal'><error message='internal error'>x\nE: y</error></testcase></testsuite>"
    )
    assert checks.read_report(report, 1.0).summary == "E: y"
