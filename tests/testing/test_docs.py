"""The page about testing: its files run, and it lists what there is."""

import re
from pathlib import Path

from xdevice.testing import Native, compiled, contract, marks, plugin, reference

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "project" / "testing.md").read_text(encoding="utf-8")
KIT = (Path(__file__).parents[2] / "docs" / "testing_kit.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\S+)\.py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def test_its_files_run_together(run, pytester):
    pytester.makepyfile(**FILES)
    both = "--xdevice-backend=numpy,pages", "--xdevice-virtual-gpus=2"
    result = run("def test_it(backend): pass", *both)
    assert result.ret == 0
    counts = result.parseoutcomes()
    assert counts["passed"] > 300
    ids = run("", *both, "--collect-only", "-q", "test_scale.py").stdout.str()
    for each in (
        "becomes_one[numpy]",
        "becomes_one[pages]",
        "stays_on_its_device[pages-gpu:1]",
        "mixed[numpy]",
    ):
        assert each in ids


def test_tables_list_options_fixtures_marks(run):
    options, marks, fixtures = (
        run("", ask).stdout.str() for ask in ("--help", "--markers", "--fixtures")
    )
    assert set(re.findall(r"--xdevice-[\w-]+", options)) == set(
        re.findall(r"^\| `(--xdevice-[\w-]+)", PAGE + KIT, re.MULTILINE)
    )
    listed = re.findall(r"^\| `(\w+\(n=\d\))` \|", PAGE, re.MULTILINE)
    assert listed
    assert all(f"@pytest.mark.{mark}: needs" in marks for mark in listed)
    for fixture in ("backend", "device", "two_gpus", "xdevice_backend", "xdevice_device"):
        assert re.search(rf"^{fixture} -- ", fixtures, re.MULTILINE)
        assert f"`{fixture}`" in PAGE


def test_the_kits_page_begins_with_tests_that_pass(run, pytester):
    files = dict(re.findall(r"^```python\n# (\S+)\.py\n(.*?)^```$", KIT, re.MULTILINE | re.DOTALL))
    pytester.makepyfile(**files)
    assert KIT.index("# test_rescale.py") < 100
    result = run("", "--xdevice-backend=numpy", "test_rescale.py")
    result.assert_outcomes(passed=2)


def test_the_kits_tables_list_fixtures_and_marks(run):
    fixtures = run("", "--fixtures").stdout.str()
    rows = re.findall(r"^\| (`.*?) \|", KIT + PAGE, re.MULTILINE)
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
    assert set(re.findall(r"`(\w+)\([^)`]*\)`[,| ]", PAGE[PAGE.index("| function |") :])) == words
    assert all(f"{part.__name__}`" in PAGE for part in contract.Suite.__bases__)


def test_tox_is_told_options_that_there_are():
    toml = re.search(r"^```ini\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    assert set(re.findall(r"--[a-z-]+", toml)) == {
        "--xdevice-backend",
        "--xdevice-virtual-gpus",
        "--xdevice-require",
    }


def test_the_reasons_are_as_they_are_shown(run):
    result = run("def test_it(two_gpus): pass", "--xdevice-backend=pages")
    reasons = re.findall(r"^```text\n(needs .*)\n```$", PAGE, re.MULTILINE)
    assert reasons
    result.stdout.fnmatch_lines_random(
        [f"SKIPPED *{reason.replace('torch', 'pages')}" for reason in reasons]
    )
