"""The plugin beside hypothesis, unittest, doctest, and parameters of a test's own."""

import pytest

pytest_plugins = ["pytester"]

TWO = "--xdevice-backend=numpy,pages", "--xdevice-virtual-gpus=2"


# ---------------------------------------------------------------- hypothesis


EXAMPLES = """
    import time
    import pytest
    from hypothesis import example, given, settings, strategies as st

    @settings(max_examples=2)
    @given(n=st.integers(1, 3))
    def test_it(xp, device, dtype, compiled, assert_close, n):
        assert_close(xp.ones(n, dtype=dtype, device=device), [1] * n)

    class TestIt:
        @settings(max_examples=2)
        @given(n=st.integers(1, 3))
        def test_it(self, xp, n): assert xp.ones(n).shape == (n,)

    first = []
    @settings(max_examples=2)
    @given(n=st.integers(1, 1000))
    def test_slow_at_first(xp, n):
        if not first:
            first.append(n)
            time.sleep(0.25)
"""


def run_examples(run, code, *options):
    return run(code, "-p", "hypothesispytest", *options, fork=False)  # it has settings of ours here


REFUSED = """
    from datetime import timedelta

    @pytest.fixture
    def own(xp): return xp.ones(1)

    @given(n=st.integers(1, 3))
    def test_own(xp, own, n): pass

    @given(n=st.integers(1, 3))
    def test_transfers(xp, transfers, n): pass

    @settings(deadline=timedelta(milliseconds=70), max_examples=2)
    @given(n=st.integers(1, 3))
    def test_slow(xp, n):
        import time
        time.sleep(0.1)
"""


def test_the_fixtures_stand_beside_given_and_it_refuses_those_that_change(run):
    result = run_examples(run, EXAMPLES + REFUSED, "--xdevice-backend=numpy")
    result.assert_outcomes(passed=4, failed=3)
    for name in ("own", "transfers"):  # not xp, which is the first
        result.stdout.fnmatch_lines([f"*' uses a function-scoped fixture '{name}', *"])
    result.stdout.fnmatch_lines(["*deadline of 70.00ms*"])


RANDOM = """
    import xdevice
    from hypothesis import given, settings, strategies as st

    @settings(max_examples=3)
    @given(n=st.integers(1, 10**9))
    def test_it(backend, assert_close, n): assert_close(xdevice.ones(1) * n, [n])
"""


@pytest.mark.weekly
def test_a_reference_does_not_compare_examples(run):
    options = "--xdevice-backend=pages", "--xdevice-reference=numpy"
    result = run_examples(run, RANDOM, *options)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["xdevice: 0 tests compared with numpy"])


# ---------------------------------------------------------------- a test's own parameters


OWN = """
    import pytest
    @pytest.mark.parametrize("xdevice_device", ["cuda:1"], indirect=True)
    def test_device(device, assert_close): assert str(device) == "gpu:1"
    @pytest.mark.parametrize("n, xdevice_dtype", [(1, "int32")], indirect=["xdevice_dtype"])
    def test_dtype(dtype, n): assert "int32" in str(dtype)
    @pytest.mark.parametrize("dtype", ["int32"])
    def test_direct(backend, dtype): assert dtype == "int32"
    @pytest.mark.parametrize(("k", "xdevice_device"), [(1, "gpu:7")], indirect=True)
    @pytest.mark.skip_backends(gpu_only=True)
    def test_missing(device, k): raise AssertionError("the test must not run")
    @pytest.fixture
    def k(request): return request.param
"""


def test_a_test_may_name_its_devices_and_dtypes(run):
    result = run(OWN, "--xdevice-backend=pages", "--xdevice-virtual-gpus=2")
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * needs gpu:7, and the framework's devices are cpu:0, *"])


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("dtype", "parametrize xdevice_dtype"),
        ("xdevice_backend", "select frameworks with @pytest.mark.only_backends"),
        pytest.param("device", "parametrize xdevice_device", marks=pytest.mark.weekly),
    ],
)
def test_a_parameter_that_no_fixture_reads_is_an_error(run, name, advice):
    code = f"""
        import pytest
        @pytest.mark.parametrize("{name}", ["numpy"], indirect=True)
        def test_it({name}): pass
    """
    result = run(code, "--xdevice-backend=numpy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*test_it: the fixture {name} takes no parameter; {advice}"])


def test_a_project_may_read_parameters_of_its_own_fixture(run):
    code = """
        import pytest
        @pytest.fixture
        def device(request): return request.param
        @pytest.mark.parametrize("device", ["a fridge"], indirect=True)
        def test_it(device): assert device == "a fridge"
    """
    run(code, "--xdevice-backend=numpy").assert_outcomes(passed=1)


# ---------------------------------------------------------------- scopes


SCOPED = """
    import xdevice
    def test_it(device): assert xdevice.device_of(xdevice.ones(1)) == {expected}
    def test_after(backend): assert str(xdevice.device_of(xdevice.ones(1))) == "cpu:0"
"""


def test_the_device_is_the_default_under_scoped_frameworks(run, pytester):
    pytester.makeini("[pytest]\nxdevice_scoped_backends = pages")
    run(SCOPED.format(expected="device"), *TWO).assert_outcomes(passed=6)
    pytester.makeini("[pytest]\nxdevice_scoped_backends = numpy")
    run(SCOPED.format(expected="'cpu:0'"), *TWO).assert_outcomes(passed=6)
    pytester.makeini("[pytest]\nxdevice_scoped_backends = page")
    result = run("", *TWO)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*xdevice_scoped_backends = page: 'page' is not *'pages'?"])


# ---------------------------------------------------------------- tests without parameters


UNITTEST = """
    import unittest
    import pytest, xdevice

    @pytest.mark.usefixtures("device_scope")
    class TestIt(unittest.TestCase):
        backend = "pages"
        def test_it(self): self.assertEqual(str(xdevice.backend()), "pages")

    class TestAny(unittest.TestCase):
        @pytest.fixture(autouse=True)
        def take(self, backend): self.backend_name = str(backend)
        def test_it(self): self.assertIn(self.backend_name, ("numpy", "pages"))
"""


def test_unittest_classes_run_under_one_framework(run):
    run(UNITTEST, "--xdevice-backend=numpy").assert_outcomes(passed=1, deselected=1)
    result = run(UNITTEST, "--xdevice-backend=numpy,pages")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["a unittest class runs under one framework, and numpy, pages *"])


DOCTEST = '''
    def double(x):
        """Twice.

        >>> xp = getfixture("xp")
        >>> double(xp.ones(1)).tolist()
        [2.0]
        """
        return x + x
'''


def test_a_doctest_runs_under_one_framework(run):
    file = "--doctest-modules", "test_it.py"
    run(DOCTEST, *file, "--xdevice-backend=numpy").assert_outcomes(passed=1)
    result = run(DOCTEST, *file, "--xdevice-backend=numpy,pages")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a doctest runs under one framework, and numpy, pages are *"])


# ---------------------------------------------------------------- compiled


BARE = """
    import pytest

    @pytest.mark.compiled
    def test_it(xp): pass
"""


def test_the_mark_compiled_names_functions_also_where_nothing_is_compiled(run):
    result = run(BARE, "--xdevice-backend=numpy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*it names no function; give @pytest.mark.compiled('softmax')*"])
