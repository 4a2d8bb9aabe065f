"""The page of versions, the ranges that are installed and the script that tries them agree."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "project" / "versions.md").read_text(encoding="utf-8")
TOX = (ROOT / "tox.ini").read_text(encoding="utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")

spec = importlib.util.spec_from_file_location("run_versions", ROOT / "tests" / "versions" / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


def rows():
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", run.PACKAGES)
def test_the_oldest_is_the_lowest_admitted(name):
    oldest = next(row[1] for row in rows() if row[0] == name)
    assert oldest == run.lowest(name)


@pytest.mark.parametrize("name", run.PACKAGES)
def test_the_oldest_has_a_tox_environment(name):
    family = re.search(r"^\[testenv:oldest-\{(.*)\}\]$", TOX, re.MULTILINE)[1]
    assert name in family.split(",")
    assert TOX.count(f"    {name}: FRAMEWORK = {name}\n") == 2


def test_the_newest_are_what_is_tested():
    pins = dict(line.split("==") for line in CONSTRAINTS.splitlines() if "==" in line)
    pins["mxnet"] = re.search(r"^    mxnet: mxnet==(.*)$", TOX, re.MULTILINE)[1]
    assert {row[0]: row[2] for row in rows()[2 : 2 + len(pins)]} == {n: pins[p] for n, p in run.PACKAGES.items()}


def test_the_alarm_covers_each_framework():
    weekly = (ROOT / ".github" / "workflows" / "versions.yml").read_text(encoding="utf-8")
    families = re.findall(r"framework: \[(.*)\]", weekly)
    assert [set(family.split(", ")) for family in families][:2] == [set(run.PACKAGES), set(run.PACKAGES) - {"mxnet"}]


def test_any_environment_may_be_weekly():
    headers = re.findall(r"^\[testenv:(.*)\]$", TOX, re.MULTILINE)
    # tox knows a factor that is in a header as a part of that name alone
    assert not [header for header in headers for word in ("weekly", "newest", "pre") if word in re.split(r"\W", header)]


def test_an_older_version_is_given_what_it_needs():
    assert run.wanted("paddle", "2.6.2") == ["paddlepaddle==2.6.2", "numpy<2", "setuptools<81"]
    assert run.wanted("paddle", "3.0.0") == ["paddlepaddle==3.0.0", "setuptools"]
    assert run.wanted("mxnet", "newest") == ["mxnet", "numpy<1.24"]


def test_a_report_tells_what_failed_and_why(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><skipped/></testcase>"
        "<testcase name='c'><failure message='E: no\n  such'/></testcase></testsuite></testsuites>"
    )
    assert run.read_report(report, 1.0) == run.Run(1, 1, {"c": "E: no such"}, 1.0)
    report.write_text(
        "<testsuite><testcase name='internal'><error message='internal error'>x\nE: y</error></testcase></testsuite>"
    )
    assert run.read_report(report, 1.0).summary == "E: y"
