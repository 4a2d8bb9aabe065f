"""The page of versions, the ranges that are installed and the script that tries them agree."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")

spec = importlib.util.spec_from_file_location("run_versions", ROOT / "tests" / "versions" / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


def rows():
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", run.PACKAGES)
def test_the_oldest_version_of_the_page_is_the_lowest_that_is_admitted(name):
    oldest = next(row[1] for row in rows() if row[0] == name)
    assert oldest == run.lowest(name)


@pytest.mark.parametrize("name", run.PACKAGES)
def test_the_oldest_and_the_newest_have_environments_of_tox(name):
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    family = re.search(r"^\[testenv:\{oldest,newest\}-\{(.*)\}\]$", tox, re.MULTILINE)[1]
    assert name in family.split(",")
    assert f"{name}: FRAMEWORK = {name}" in tox


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
