"""The pytest plugin: its options, fixtures and marks, in runs of their own."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

import xdevice
from xdevice.framework.adapters import find
from xdevice.framework.choosing import has_device
from xdevice.framework.registry import ORDER

pytest_plugins = ["pytester"]

ONE = "def test_it(backend): pass"
EACH = "def test_it(device): pass"


def ids(result):
    """The ids in brackets of the tests that were collected."""
    return re.findall(r"^test_it\.py::\S*\[(.+)\]$", result.stdout.str(), re.MULTILINE)


def collected(run, code, *options):
    return ids(run(code, "--collect-only", "-q", *options))


# ---------------------------------------------------------------- costs nothing


NOTHING = """
    import sys
    def test_it():
        assert not {"numpy", "optree", "torch", "tensorflow", "paddle", "mxnet", "jax", "pages"} & set(sys.modules)
        assert not [m for m in sys.modules if m.startswith(("xdevice.backends.", "xdevice.testing.contract"))
                    and not m.startswith("xdevice.backends.kit")]
"""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), marks=pytest.mark.weekly),
        ("--xdevice-backend=pages,numpy", "--xdevice-virtual-gpus=2"),
    ],
)
def test_no_framework_is_loaded_unasked(run, options, compiler):  # without one, they are asked
    run(NOTHING, *options, fork=False).assert_outcomes(passed=1)


def test_without_the_plugin_it_is_ordinary(run):
    run("def test_it(): pass", "-p", "no:xdevice").assert_outcomes(passed=1)


# ---------------------------------------------------------------- frameworks


def test_all_that_are_installed_by_default(run):
    there = [name for name in xdevice.available() if has_device(find(name))]
    others = [name for name in there if name not in ORDER]
    everything = [*there[: len(there) - len(others)], *sorted([*others, "broken", "pages"])]
    assert collected(run, ONE) == collected(run, ONE, "--xdevice-backend=installed") == everything


def test_frameworks_are_asked_for_by_name(run):
    assert collected(run, ONE, "--xdevice-backend= pages , numpy,pages,") == ["pages", "numpy"]


def refused(pytester, option, said):
    """Runs pytest with each of these values, in one process: each is a usage error, with these words in a line."""
    pytester.makepyfile(test_it=ONE)
    code = f"import pytest, sys\nprint([int(pytest.main([f'{option}={{value}}'])) for value in {list(said)}])"
    result = pytester.run(sys.executable, "-c", code, timeout=120)
    assert result.outlines[-1] == str([pytest.ExitCode.USAGE_ERROR.value] * len(said))
    result.stderr.fnmatch_lines([f"*{option}*{words}*" for words in said.values()])


@pytest.mark.usefixtures("run")
def test_a_missing_framework_is_a_usage_error(pytester):
    refused(pytester, "--xdevice-backend", {
        "all": "=all: *ghost is not installed*; installed are *broken, *gpus_alone, pages",
        "pages,ghost": "=pages,ghost: ghost is not installed; installed are ",
        "nothing": "=nothing: 'nothing' is not a backend; installed are ",
        "pagess": "=pagess: 'pagess' is not a backend (did you mean 'pages'); installed are ",
        ",": "=,: no framework is named; installed are ",
    })  # fmt: skip


def test_it_is_chosen_while_the_test_runs(run):
    code = """
        import xdevice
        def test_it(backend):
            assert xdevice.backend() is backend
            assert backend.framework.__name__ == backend == "pages"
    """
    run(code, "--xdevice-backend=pages").assert_outcomes(passed=1)


def test_the_header_says_what_was_asked_for(run):
    asked = run(ONE, "--xdevice-backend=pages", "--xdevice-virtual-gpus=2")
    asked.stdout.fnmatch_lines(["xdevice: pages; 2 virtual GPUs"])
    run("def test_it(): pass").stdout.no_fnmatch_line("xdevice: *")


def test_a_broken_import_fails_its_test_only(run):
    result = run(
        "import xdevice\ndef test_it(device): xdevice.devices()", "--xdevice-backend=pages,broken"
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*broken is installed but fails to import (OSError: libbroken.so is missing)*"]
    )


UNUSABLE = (
    "gpus_alone 1.5: installed, not usable here: gpus_alone has no CPU, and this machine has no GPU"
)


def test_no_device_is_left_out_and_told(run):
    result = run(ONE, "--xdevice-backend=installed")
    result.stdout.fnmatch_lines([f"xdevice: *numpy, *broken, pages; *{UNUSABLE}"])
    result.stdout.no_fnmatch_line("*[[]gpus_alone[]]*")
    assert set(result.parseoutcomes()) == {"passed"}


def test_no_device_by_name_is_an_error(run):
    result = run(ONE, "--xdevice-backend=pages,gpus_alone")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["*ERROR collecting test_it.py*", f"{UNUSABLE}; xdevice doctor says more"]
    )


def test_a_class_without_a_device(run):
    code = """
        class TestIt:
            backend = "gpus_alone"
            def test_it(self, backend): raise AssertionError("the test must not run")
    """
    result = run(code, "--xdevice-backend=installed")
    result.assert_outcomes(deselected=1)
    result = run(code)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED * test_it.py:3: {UNUSABLE}; xdevice doctor says more"])
    run(code, "--xdevice-require").assert_outcomes(errors=1)


def test_a_class_may_be_for_one_framework(run):
    code = """
        class TestIt:
            backend = "pages"
            def test_it(self, backend, device): assert backend == "pages"
    """
    assert collected(run, code) == ["pages-cpu:0"]
    run(code, "--xdevice-backend=numpy").assert_outcomes(deselected=1)
    run(code, "--xdevice-backend=numpy,pages").assert_outcomes(passed=1)


SEES_TWO = """
    import os, subprocess, sys, xdevice
    def test_it(backend):
        assert xdevice.count("gpu") == 2
        code = "import xdevice; xdevice.use('pages'); print(xdevice.count('gpu'))"
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "2"
"""


def test_a_classs_framework_is_chosen(run):
    code = """
        import pytest, xdevice
        xdevice.use("numpy")
        class TestPages:
            backend = "pages"
            def test_it(self): assert xdevice.backend() == "pages"
            @pytest.mark.multi_device
            def test_of_two(self): assert xdevice.count("gpu") == 2
        class TestOther:
            backend = "agg"  # not a framework: somebody's own
            def test_it(self): assert xdevice.backend() == "numpy"
    """
    run(code, "--xdevice-virtual-gpus=2", "--xdevice-require").assert_outcomes(passed=3)
    run(code, "--xdevice-backend=numpy", "-k", "Pages").assert_outcomes(deselected=3)


UNITTEST = """
    import unittest, pytest, xdevice
    @pytest.mark.usefixtures("backend")
    class TestIt(unittest.TestCase):{own}
        def test_it(self): assert xdevice.backend() == "pages"
        def test_made(self): assert type(xdevice.ones(2)).__module__ == "pages"
"""


def test_a_unittest_class_may_use_the_fixture(run):
    run(UNITTEST.format(own=""), "--xdevice-backend=pages").assert_outcomes(passed=2)
    run(
        UNITTEST.format(own=" backend = 'pages'").replace("TestCase):", "TestCase):\n       ")
    ).assert_outcomes(passed=2)
    several = run(UNITTEST.format(own=""), "--xdevice-backend=pages,numpy")
    several.assert_outcomes(errors=2)
    several.stdout.fnmatch_lines(
        ["a unittest class runs under one framework, and pages, numpy are asked for; *"]
    )


@pytest.mark.weekly
@pytest.mark.skipif(find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_xdists_workers_have_the_same(run):
    code = (
        SEES_TWO
        + """
    def test_each(device): assert xdevice.count("gpu") == 2
    def test_both(two_gpus): assert xdevice.backend() == "pages"
    """
    )
    result = run(code, "--xdevice-backend=pages", "--xdevice-virtual-gpus=2", "-n2")
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["*2 workers*"])


# ---------------------------------------------------------------- virtual GPUs


def test_subprocesses_have_virtual_gpus(run):
    run(SEES_TWO, "--xdevice-backend=pages", "--xdevice-virtual-gpus=2").assert_outcomes(passed=1)


def test_virtual_gpus_come_before_conftests(run, pytester):
    pytester.makeconftest("import xdevice; xdevice.use('pages'); assert xdevice.count('gpu') == 2")
    run(SEES_TWO, "--xdevice-backend=pages", "--xdevice-virtual-gpus=2").assert_outcomes(passed=1)


@pytest.mark.weekly
@pytest.mark.usefixtures("run")
def test_a_wrong_number_of_gpus_is_shown(pytester):
    said = "{!r} is not a number of virtual GPUs; give an integer from 0 to 64, or 2:stand-in"
    wrong = ["two", "-1", "1.5", "65", "", "２"]
    near = {"2:standin": "'2:standin' is not a number of virtual GPUs; did you mean 'stand-in'?"}
    refused(pytester, "--xdevice-virtual-gpus", {n: said.format(n) for n in wrong} | near)


@pytest.mark.weekly
def test_none_overrides_the_environment(run, monkeypatch):
    monkeypatch.setenv("XDEVICE_VIRTUAL_GPUS", "2")
    options = "--xdevice-backend=pages", "--collect-only", "-q"
    gpus = ["pages-gpu:0", "pages-gpu:1"]
    assert ids(run(EACH, *options, fork=False)) == ["pages-cpu:0", *gpus]
    assert ids(run(EACH, *options, "--xdevice-virtual-gpus=0", fork=False)) == ["pages-cpu:0"]


@pytest.mark.weekly
def test_the_environment_is_restored(run, pytester):
    pytester.makepyfile(test_it=SEES_TWO)
    code = """
import os, pytest
options = ["--xdevice-backend=pages", "--xdevice-virtual-gpus=2", "-p", "no:cacheprovider"]
for before in ({}, {"XDEVICE_VIRTUAL_GPUS": "3"}):
    os.environ.update(before)
    status = pytest.main(options)
    print("\\nafter:", int(status), os.environ.get("XDEVICE_VIRTUAL_GPUS"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert re.findall("^after: .*", done.stdout, re.MULTILINE) == ["after: 0 None", "after: 0 3"]


# ---------------------------------------------------------------- devices


def test_each_device_of_each_framework(run):
    options = "--xdevice-backend=numpy,pages", "--xdevice-virtual-gpus=2"
    expected = ["numpy-cpu:0", "pages-cpu:0", "pages-gpu:0", "pages-gpu:1"]
    assert collected(run, EACH, *options) == expected
    assert collected(run, "def test_it(device, backend): pass", *options) == expected


def test_a_devices_framework_is_chosen(run):
    code = """
        import xdevice
        def test_it(device):
            assert xdevice.device_of(xdevice.ones(2, device=device)) == device
            assert xdevice.backend() == "pages"
    """
    run(code, "--xdevice-backend=pages", "--xdevice-virtual-gpus=2").assert_outcomes(passed=3)


def test_two_gpus_of_each_framework(run):
    code = """
        import xdevice
        def test_it(two_gpus):
            assert two_gpus == (xdevice.gpu(0), xdevice.gpu(1))
            assert xdevice.backend() == "pages"
    """
    run(code, "--xdevice-backend=pages", "--xdevice-virtual-gpus=2").assert_outcomes(passed=1)


# ---------------------------------------------------------------- what a test needs


def needing(*marks):
    """A file with a test for each of these marks."""
    tests = [f"@pytest.mark.{mark}\ndef test_{i}(backend): pass" for i, mark in enumerate(marks)]
    return "\n".join(["import pytest", *tests])


WITHOUT = {  # by the number of virtual GPUs
    "0": {
        "gpu": "needs 1 real GPU, pages sees none; xdevice doctor says why a GPU is not seen",
        "multi_device": "needs 2 GPUs, pages sees none; pytest --xdevice-virtual-gpus=2 gives it virtual ones",
        "multi_device(1)": "needs 1 GPU, pages sees none; pytest --xdevice-virtual-gpus=1 gives it virtual ones",
        "usefixtures('two_gpus')": "needs 2 GPUs, pages sees none; pytest --xdevice-virtual-gpus=2 gives it *",
    },
    "2": {
        "gpu(2)": "needs 2 real GPUs, pages sees 2 virtual; virtual GPUs do not count",
        "multi_device(n=3)": "needs 3 GPUs, pages sees 2 virtual; pytest --xdevice-virtual-gpus=3 gives *",
    },
}


@pytest.mark.parametrize("virtual", WITHOUT)
def test_a_skip_says_what_to_type(run, virtual):
    reasons = WITHOUT[virtual]
    result = run(needing(*reasons), "--xdevice-backend=pages", f"--xdevice-virtual-gpus={virtual}")
    result.assert_outcomes(skipped=len(reasons))
    result.stdout.fnmatch_lines_random(
        [f"SKIPPED [[]1] *: {reason}" for reason in reasons.values()]
    )


@pytest.mark.parametrize("virtual", WITHOUT)
def test_or_it_fails_if_nothing_may_be_missing(run, virtual):
    reasons = WITHOUT[virtual]
    options = "--xdevice-backend=pages", f"--xdevice-virtual-gpus={virtual}", "--xdevice-require"
    result = run(needing(*reasons), *options)
    result.assert_outcomes(errors=len(reasons))
    result.stdout.fnmatch_lines(list(reasons.values()))


def test_a_test_whose_devices_are_there_runs(run):
    options = "--xdevice-backend=pages", "--xdevice-virtual-gpus=2", "--xdevice-require"
    run(needing("multi_device", "multi_device(1)", "multi_device(n=2)"), *options).assert_outcomes(
        passed=3
    )


def test_without_virtual_gpus_the_adapter_says_why(run):
    result = run(needing("multi_device"), "--xdevice-backend=numpy", "--xdevice-virtual-gpus=2")
    result.stdout.fnmatch_lines(
        ["SKIPPED * needs 2 GPUs, numpy sees none; numpy has no virtual GPUs: *"]
    )


def test_a_mark_asks_the_chosen_framework(run, monkeypatch):
    monkeypatch.setenv("XDEVICE_BACKEND", "pages")
    code = needing("multi_device").replace("backend", "")
    run(code, "--xdevice-virtual-gpus=2").assert_outcomes(passed=1)
    run(code).assert_outcomes(skipped=1)


def test_a_mark_with_no_number_is_an_error(run):
    marks = "gpu(0)", "multi_device('two')", "multi_device(n=-1)", "gpu(True)"
    result = run(needing(*marks), "--xdevice-backend=pages")
    result.assert_outcomes(errors=len(marks))
    result.stdout.fnmatch_lines(
        [
            f"@pytest.mark.{mark.partition('(')[0]}: * is not a number of GPUs; give 1 or more"
            for mark in marks
        ]
    )


# ---------------------------------------------------------------- other people's names


def test_own_fixtures_are_left_alone(run):
    code = """
        import pytest
        @pytest.fixture(params=["agg", "svg"])
        def backend(request): return request.param
        @pytest.fixture
        def device(): return "a fridge"
        @pytest.fixture
        def two_gpus(): return 2
        def test_it(backend, device, two_gpus):
            assert (backend in ("agg", "svg"), device, two_gpus) == (True, "a fridge", 2)
    """
    assert collected(run, code) == ["agg", "svg"]
    run(code, "--xdevice-backend=pages").assert_outcomes(passed=2)


@pytest.mark.parametrize("by", ["ini", pytest.param("conftest", marks=pytest.mark.weekly)])
def test_own_marks_are_left_alone(run, pytester, by):
    if by == "ini":
        pytester.makeini("[pytest]\naddopts = --strict-markers\nmarkers =\n    gpu(model): my own")
    else:
        pytester.makeconftest(
            "def pytest_configure(config): config.addinivalue_line('markers', 'gpu(model): my own')"
        )
    run(
        needing("gpu('a large one')"), "--xdevice-backend=pages", "--xdevice-require"
    ).assert_outcomes(passed=1)


def test_own_arguments_are_left_alone(run):
    code = """
        import pytest
        @pytest.mark.parametrize("backend", ["agg"])
        @pytest.mark.parametrize("device", [1, 2])
        def test_it(backend, device): assert (backend, device) in (("agg", 1), ("agg", 2))
    """
    run(code, "--xdevice-backend=numpy,pages").assert_outcomes(passed=2)


def test_own_fixtures_may_use_ours(run):
    code = """
        import pytest
        @pytest.fixture
        def backend(xdevice_backend): return xdevice_backend.upper()
        def test_it(backend): assert backend == "PAGES"
    """
    run(code, "--xdevice-backend=pages").assert_outcomes(passed=1)
