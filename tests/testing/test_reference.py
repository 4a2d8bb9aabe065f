"""``--xdevice-reference``: results are compared with those under another framework."""

import re

import pytest

pytest_plugins = ["pytester"]

PAGES = "--xdevice-backend=pages", "--xdevice-virtual-gpus=2", "--xdevice-reference=numpy"
CODE = """
    import pytest, xdevice
    from xdevice.testing import assert_close
    def test_same(device): assert_close(xdevice.ones(2, device=device), xdevice.ones(2, device=device))
    def test_other(backend, assert_close):
        x = xdevice.ones(3) * (1 + (backend == "pages"))
        assert_close(x, x)
    @pytest.mark.parametrize("n", [1, 2])
    def test_recorded(backend, record_result, n):
        record_result({"n": n, "x": [xdevice.ones(n), backend == "pages" and n == 2]})
    def test_numbers(backend, record_result):
        for _ in range(1 + (backend == "pages")): record_result(1.0)
    def test_failing_there(backend): assert backend == "pages"
    def test_failing_here(backend, record_result):
        record_result(backend)
        assert backend != "pages", "the test's own error"
    @pytest.mark.skip_backends("numpy")
    def test_skipped_there(backend): pass
    def test_nothing(backend): pass
    @pytest.mark.no_reference(reason="random")
    def test_exempt(backend, record_result): record_result(backend)
    def test_without_framework(): pass
"""


def outcomes(result):
    return dict(re.findall(r"test_it\.py::(\S+)", result.stdout.str()))


def test_results_that_differ_fail(run, workers):
    result = run(CODE, *PAGES, *workers, "-rf", "--tb=short")
    failed = re.findall(r"^FAILED test_it\.py::(\S+)", result.stdout.str(), re.MULTILINE)
    assert sorted(failed) == [
        "test_failing_here[pages]",
        "test_failing_there[pages]",
        "test_numbers[pages]",
        "test_other[pages]",
        "test_recorded[pages-2]",
    ]
    result.assert_outcomes(passed=8, failed=5)
    result.stdout.fnmatch_lines_random(
        [
            "result 1 of 1 differs from that under numpy:",
            "  values: 3 of 3 differ, the first at [[]0]: 2.0, expected 1.0",
            "  at [[]'x'[]][[]1[]]:",
            "the test has 2 results, and 1 under numpy; --xdevice-reference compares them",
            "under the reference numpy the test fails: *assert*",
            "*the test's own error*",
            "xdevice: 4 tests compared with numpy; *",
        ]
    )
    last = next(line for line in result.outlines if line.startswith("xdevice: 4 tests"))
    assert "1 not: no results; give them to assert_close or record_result" in last
    assert "1 not: the test is skipped, or expected to fail, under the reference" in last


def test_the_reference_is_collected_only_if_it_is_tested(run):
    code = "def test_it(device): pass"
    result = run(code, *PAGES, "--collect-only", "-q")
    assert re.findall(r"\[(.*)\]", result.stdout.str()) == [
        "pages-cpu:0",
        "pages-gpu:0",
        "pages-gpu:1",
    ]
    result = run(code, "--xdevice-backend=numpy,pages", "--xdevice-reference=numpy", "-v")
    assert re.findall(r"\[(.*)\] PASSED", result.stdout.str()) == ["numpy-cpu:0", "pages-cpu:0"]


def test_a_test_named_by_its_id_has_its_reference(run):
    result = run(CODE, *PAGES, "test_it.py::test_other[pages]")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["result 1 of 1 differs from that under numpy:"])


def test_it_runs_once_for_all_devices(run, pytester):
    code = """
        import pathlib, xdevice
        def test_it(device, record_result):
            record_result(xdevice.ones(2))
            if xdevice.backend() == "numpy":
                with open("runs", "a") as file: file.write("x")
    """
    run(code, *PAGES).assert_outcomes(passed=3)
    assert (pytester.path / "runs").read_text() == "x"


@pytest.mark.parametrize(
    "fixture", ["setup_function", pytest.param("setup_module", marks=pytest.mark.weekly)]
)
def test_the_modules_own_set_up_holds(run, fixture):
    code = f"""
        import xdevice
        ready = []
        def {fixture}(*_): ready.append(1)
        def test_it(backend, record_result):
            assert ready
            record_result(xdevice.ones(2))
    """
    result = run(code, *PAGES)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["xdevice: 1 tests compared with numpy"])


def test_a_missing_reference_is_a_usage_error(run):
    result = run("def test_it(): pass", "--xdevice-reference=ghost")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--xdevice-reference=ghost: ghost is not installed; installed *"])


def test_without_the_option_results_go_nowhere(run):
    code = "def test_it(backend, record_result): record_result(1)"
    result = run(code, "--xdevice-backend=pages")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("xdevice: *compared*")
