"""The page about testing: its files run, and it lists what there is."""

import re
from pathlib import Path

import pytest

from xdevice.testing import Native, compiled, contract, marks, plugin, reference

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs"
KIT = (DOCS / "test" / "kit.md").read_text(encoding="utf-8")
_, _, SUITE = (
    (DOCS / "project" / "adapters.md")
    .read_text(encoding="utf-8")
    .partition("\n## An adapter's tests")
)
FILE = re.compile(r"^```(?:python|ini)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.weekly
def test_an_adapters_files_run_together(run, pytester):
    for name, text in FILE.findall(SUITE):
        pytester.path.joinpath(name).write_text(text, encoding="utf-8")
    result = run(
        "def test_it(backend): pass", "--xdevice-backend=pages", "--xdevice-virtual-gpus=2"
    )
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] > 300


def test_tables_list_options_fixtures_marks(run):
    options, marks, fixtures = (
        run("", ask).stdout.str() for ask in ("--help", "--markers", "--fixtures")
    )
    assert set(re.findall(r"--xdevice-[\w-]+", options)) == set(
        re.findall(r"^\| `(--xdevice-[\w-]+)", KIT, re.MULTILINE)
    )
    listed = re.findall(r"^\| `(\w+\(n=\d\))` \|", KIT, re.MULTILINE)
    assert listed
    assert all(f"@pytest.mark.{mark}: needs" in marks for mark in listed)
    for fixture in ("backend", "device", "two_gpus", "xdevice_backend", "xdevice_device"):
        assert re.search(rf"^{fixture} -- ", fixtures, re.MULTILINE)
        assert f"`{fixture}`" in KIT


def test_the_kits_page_begins_with_tests_that_pass(run, pytester):
    for name, text in FILE.findall(KIT):
        if name.endswith("rescale.py"):
            pytester.path.joinpath(name).write_text(text, encoding="utf-8")
    assert KIT.index("# test_rescale.py") < 100
    result = run("", "--xdevice-backend=numpy", "test_rescale.py")
    result.assert_outcomes(passed=2)


def test_the_kits_tables_list_fixtures_and_marks(run):
    fixtures = run("", "--fixtures").stdout.str()
    rows = re.findall(r"^\| (`.*?) \|", KIT, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    for module in ("fixtures", "reference", "transfers"):
        section = fixtures.partition(f"xdevice.testing.{module} ---")[2].partition("\n---")[0]
        names = re.findall(r"^(\w+) -- ", section, re.MULTILINE)
        assert names
        assert {name for name in names if not name.startswith("xdevice_")} <= listed
    for module in (plugin, marks, compiled, reference):
        assert set(module.MARKS) <= listed


def test_functions_and_parts_are_on_it():
    words = {name for name in vars(Native) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)\([^)`]*\)`[,| ]", SUITE[SUITE.index("| function |") :])) == words
    assert all(f"{part.__name__}`" in SUITE for part in contract.Suite.__bases__)


def test_tox_is_told_options_that_there_are():
    assert set(re.findall(r"--[a-z-]+", dict(FILE.findall(KIT))["tox.ini"])) == {
        "--xdevice-backend",
        "--xdevice-virtual-gpus",
        "--xdevice-require",
    }


def test_the_reasons_are_as_they_are_shown(run):
    result = run("def test_it(two_gpus): pass", "--xdevice-backend=pages")
    reasons = re.findall(r"^```text\n(needs .*)\n```$", KIT, re.MULTILINE)
    assert reasons
    result.stdout.fnmatch_lines_random(
        [f"SKIPPED *{reason.replace('torch', 'pages')}" for reason in reasons]
    )
