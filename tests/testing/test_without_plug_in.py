"""A run of pytest that asks for virtual GPUs where their plug-in cannot be had, since there is no compiler."""

import os
from pathlib import Path

import pytest

from xdevice.virtual import plugins

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]

PLUGGED = {
    "__init__.py": "import plugged\n",
    "hardware.py": """
gpus = 0
def kinds(): return ("cpu", "gpu")
def count(kind): return gpus if kind == "gpu" else 1
def native(device): return str(device)
def properties(device): return {"virtual": device.kind == "gpu"}
""",
    "virtual.py": """
from pathlib import Path
import xdevice_plugged.hardware as hardware
from xdevice.virtual import plugins
def recipe():
    return plugins.Recipe("answer", "virtual GPUs for plugged 1.5", Path(__file__).with_name("answer.cc"), "", "c++17")
def enable(request):
    plugins.library(recipe())
    hardware.gpus = request.number
""",
    "answer.cc": 'extern "C" int answer() { return 42; }\n',
}

CODE = """
import os, pytest

def test_it(device): pass
@pytest.mark.multi_device
def test_two(backend): pass
def test_children(): assert os.environ["XDEVICE_VIRTUAL_GPUS"] == "{}"
"""
ASKED = "--xdevice-virtual-gpus=2", "--xdevice-backend=plugged"


@pytest.fixture
def run(run, pytester):
    """With one more framework, `plugged`, whose virtual GPUs need a plug-in."""
    site = pytester.path / "site"
    with (site / "xdevice_pages-1.0.dist-info" / "entry_points.txt").open(
        "a", encoding="utf-8"
    ) as points:
        points.write("plugged = xdevice_plugged\n")
    (site / "plugged.py").write_text("", encoding="utf-8")
    (site / "xdevice_plugged").mkdir()
    for name, text in PLUGGED.items():
        (site / "xdevice_plugged" / name).write_text(text, encoding="utf-8")
    return run


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "none")
    monkeypatch.delenv(plugins.ENV, raising=False)


def test_what_needs_no_gpu_runs_and_the_rest_is_skipped_and_counted(run, no_compiler):
    result = run(CODE.format("0"), *ASKED)
    result.assert_outcomes(passed=2, skipped=1)
    why = "virtual GPUs for plugged 1.5 are compiled when they are first used, and CXX=none names no C++ compiler*"
    result.stdout.fnmatch_lines(
        [
            "xdevice: plugged; plugged is tested without virtual GPUs",
            f"SKIPPED * needs 2 GPUs, plugged sees none; {why}",
            f"xdevice: plugged was tested without virtual GPUs: {why}",
            f"xdevice: 1 test was skipped without a C++ compiler: {plugins.INSTALL}",
        ]
    )


@pytest.mark.weekly
def test_two_processes_say_so_once(run, no_compiler):
    result = run(CODE.format("0"), *ASKED, "-n2")
    result.assert_outcomes(passed=2, skipped=1)
    assert result.stdout.str().count("1 test was skipped without a C++ compiler") == 1


def test_they_fail_if_nothing_may_be_missing(run, no_compiler):
    run(CODE.format("0"), *ASKED, "--xdevice-require").assert_outcomes(passed=2, errors=1)


def test_another_framework_keeps_its_own(run, no_compiler):
    result = run(CODE.format("2"), "--xdevice-virtual-gpus=2", "--xdevice-backend=pages,plugged")
    result.assert_outcomes(passed=3 + 1 + 1 + 1, skipped=1)


def test_with_a_compiler_all_run(run, compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = run(CODE.format("2"), *ASKED)
    result.assert_outcomes(passed=3 + 1 + 1)
    assert "without" not in result.stdout.str()


SKIPS = """
import pytest
def test_it(): pytest.skip("needs a C++ compiler")
"""


@pytest.fixture
def with_our_conftest(run, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ["PYTHONPATH"]]))
    return lambda: run(SKIPS, "-p", "conftest")


def test_our_own_tests_may_skip_for_want_of_a_compiler(with_our_conftest, no_compiler):
    result = with_our_conftest()
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["xdevice: 1 test was skipped without a C++ compiler: *"])


def test_but_not_where_there_is_one(with_our_conftest, compiler):
    result = with_our_conftest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["there is a C++ compiler, and it was skipped: Skipped: needs a C++ compiler"]
    )
