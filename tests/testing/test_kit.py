"""The plugin's fixtures for libraries: `xp`, `dtype` and `assert_close`; marks that name frameworks."""

import re

import pytest

pytest_plugins = ["pytester"]

XP = "def test_it(xp): pass"


def ids(result):
    return re.findall(r"^test_it\.py::\S*\[(.+)\]$", result.stdout.str(), re.MULTILINE)


def collected(run, code, *options):
    return ids(run(code, "--collect-only", "-q", *options))


# ---------------------------------------------------------------- xp, dtype


def test_xp_is_the_namespace_under_the_frameworks_name(run):
    code = """
        import numpy, xdevice
        def test_it(xp):
            assert xp is xdevice.namespace(numpy.ones(1))
            assert xdevice.backend() == "numpy"
    """
    assert collected(run, code, "--xdevice-backend=numpy,pages") == ["numpy", "pages"]
    run(code, "--xdevice-backend=numpy").assert_outcomes(passed=1)


DTYPE = """
    import numpy
    def test_it(xp, device, dtype): assert xp.ones(1, dtype=dtype, device=device).dtype == dtype
    def test_alone(dtype): assert isinstance(dtype, numpy.dtype)
"""


@pytest.mark.parametrize(
    ("value", "names"),
    {
        "": ["float32", "float64"],
        "float16,float32": ["float16", "float32"],
        "float64, real floating": ["float64", "float32"],
        "signed integer": ["int8", "int16", "int32", "int64"],
        "bool": ["bool"],
    }.items(),
)
def test_dtypes_are_named_or_of_a_kind(run, value, names):
    options = ["--xdevice-backend=numpy", *([f"--xdevice-dtypes={value}"] if value else [])]
    expected = [f"numpy-cpu:0-{name}" for name in names] + [f"numpy-{name}" for name in names]
    said = run(DTYPE, "-v", *options).stdout.str()
    assert re.findall(r"^test_it\.py::\S+\[(.+)\] PASSED", said, re.MULTILINE) == expected


def test_a_missing_dtype_is_a_skip_or_a_failure(run):
    options = "--xdevice-backend=numpy", "--xdevice-dtypes=bfloat16"
    code = "def test_it(dtype): raise AssertionError('the test must not run')"
    result = run(code, *options)
    result.assert_outcomes(skipped=1)
    reason = "needs bfloat16, which the framework does not have on *"
    result.stdout.fnmatch_lines([f"SKIPPED * {reason}"])
    run(code, *options, "--xdevice-require").assert_outcomes(errors=1)


def test_a_word_that_is_not_a_dtype_is_a_usage_error(run):
    result = run(XP, "--xdevice-dtypes=floaty32")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'floaty32' is not a dtype or a kind of dtypes; did you mean*"])


# ---------------------------------------------------------------- devices


EACH = "def test_it(device): pass"


@pytest.mark.parametrize(
    ("value", "names"),
    {
        "two": ["cpu:0", "gpu:0", "gpu:1"],
        "all": ["cpu:0", "gpu:0", "gpu:1", "gpu:2"],
        "gpu,cpu": ["gpu:0", "gpu:1", "cpu:0"],
        "cuda:2": ["gpu:2"],
    }.items(),
)
def test_devices_are_two_of_each_kind_or_those_named(run, value, names):
    options = "--xdevice-backend=pages", "--xdevice-virtual-gpus=3"
    assert collected(run, EACH, *options, f"--xdevice-devices={value}") == [
        f"pages-{name}" for name in names
    ]


def test_a_missing_device_is_a_skip_or_a_failure(run):
    options = "--xdevice-backend=pages", "--xdevice-devices=cpu,gpu"
    result = run(EACH, *options)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * needs gpu:0, and the framework's devices are cpu:0"])
    run(EACH, *options, "--xdevice-require").assert_outcomes(passed=1, errors=1)


@pytest.mark.parametrize("value", ["", "gpu:x"])
def test_a_word_that_is_not_a_device_is_a_usage_error(run, value):
    result = run(EACH, f"--xdevice-devices={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--xdevice-devices*give two, all, or*cpu,gpu:1*"])


def test_a_device_may_be_native_or_the_default(run):
    code = """
        import pytest, xdevice
        def test_native(native_device): assert xdevice.as_device(native_device).kind == "gpu"
        @pytest.mark.usefixtures("device_scope")
        def test_scope(): assert xdevice.device_of(xdevice.ones(1)).kind == "gpu"
        def test_it(device, device_scope): assert device_scope == device
    """
    options = "--xdevice-backend=pages", "--xdevice-virtual-gpus=2", "--xdevice-devices=gpu"
    run(code, *options).assert_outcomes(passed=6)


# ---------------------------------------------------------------- assert_close


def test_the_fixture_knows_framework_device_and_dtype(run):
    code = """
        import numpy, pytest, xdevice
        def test_it(device, assert_close):
            assert_close(xdevice.ones(2, device=device), [1, 1])
        def test_elsewhere(device, assert_close):
            assert_close(xdevice.ones(2, device="gpu:1"), [1, 1])
        def test_another(backend, assert_close): assert_close(numpy.ones(2), [1, 1])
        def test_given(backend, assert_close): assert_close(numpy.ones(2), numpy.ones(2))
        def test_of(dtype, assert_close): assert_close(xdevice.ones(2, dtype="float32"), [1, 1])
        def test_index(dtype, assert_close): assert_close(xdevice.ones(2, dtype="int32"), [1, 1])
    """
    options = "--xdevice-virtual-gpus=2", "--xdevice-devices=gpu", "--xdevice-dtypes=float64"
    result = run(code, "--xdevice-backend=pages", *options)
    result.assert_outcomes(passed=5, failed=3)
    result.stdout.fnmatch_lines(["*E * dtype: float32, expected float64"])
    result.stdout.fnmatch_lines(["*E * device: gpu:1, expected gpu:0"])
    result.stdout.fnmatch_lines(["*E * framework: numpy, expected pages"])


# ---------------------------------------------------------------- marks


def marked(mark, arguments="device"):
    return f"import pytest\n@pytest.mark.{mark}\ndef test_it({arguments}): assert 0"


TWO = "--xdevice-backend=numpy,pages", "--xdevice-virtual-gpus=1"  # numpy-cpu, pages-cpu, pages-gpu

SKIPPED = {
    "skip_backends('pages')": ["numpy-cpu:0"],
    "skip_backends('pages.arrays')": ["numpy-cpu:0"],
    "skip_backends('numpy', 'pages', reason='both')": [],
    "skip_backends('numpy', False)": ["numpy-cpu:0", "pages-cpu:0", "pages-gpu:0"],
    "skip_backends('numpy', 2 > 1)": ["pages-cpu:0", "pages-gpu:0"],
    "skip_backends(cpu_only=True)": ["numpy-cpu:0", "pages-cpu:0"],
    "skip_backends(cpu_only=True, exceptions=['pages'])": [
        "numpy-cpu:0", "pages-cpu:0", "pages-gpu:0"],
    "skip_backends(np_only=True, exceptions=['pages.arrays'])": [
        "numpy-cpu:0", "pages-cpu:0", "pages-gpu:0"],
    "skip_backends(gpu_only=True)": ["pages-gpu:0"],
    "skip_backends('pages', cpu_only=True)": ["numpy-cpu:0", "pages-cpu:0"],
    "skip_backends(np_only=True)": ["numpy-cpu:0"],
    "skip_backends(eager_only=True)": ["numpy-cpu:0", "pages-cpu:0", "pages-gpu:0"],
    "only_backends('pages')": ["pages-cpu:0", "pages-gpu:0"],
    "only_backends('pages', cpu_only=True)": ["pages-cpu:0"],
    "only_backends('numpy', 'torch')": ["numpy-cpu:0"],
}  # fmt: skip


def test_marks_skip_by_framework_and_device(run):
    tests = [
        f"@pytest.mark.{mark}\ndef test_{i}(device): assert 0" for i, mark in enumerate(SKIPPED)
    ]
    result = run("\n".join(["import pytest", *tests]), *TWO, "-rf")
    failed = re.findall(
        r"^FAILED test_it\.py::test_(\d+)\[(.+?)\]", result.stdout.str(), re.MULTILINE
    )
    for i, (mark, expected) in enumerate(SKIPPED.items()):
        assert [name for number, name in failed if number == str(i)] == expected, mark
    result.assert_outcomes(failed=len(failed), skipped=3 * len(SKIPPED) - len(failed))


REASONS = {
    "skip_backends('pages')": "skip_backends: under pages",
    "skip_backends('pages', reason='no binding')": "no binding",
    "skip_backends('pages', cpu_only=True)": "skip_backends: cpu_only, and this is on gpu:0",
    "skip_backends(np_only=True)": "skip_backends: np_only, and this is pages",
    "only_backends('numpy')": "only_backends: not under pages",
}


def test_a_skip_has_a_reason(run):
    tests = [f"@pytest.mark.{mark}\ndef test_{i}(device): pass" for i, mark in enumerate(REASONS)]
    result = run("\n".join(["import pytest", *tests]), *TWO)
    result.stdout.fnmatch_lines_random([f"SKIPPED * {reason}" for reason in REASONS.values()])


def test_an_expected_failure_that_passes_fails_if_strict(run):
    code = """
        import pytest
        xfail = pytest.mark.xfail_backends
        @xfail("pages", reason="no")
        def test_failing(backend): assert backend != "pages"
        @xfail("pages", strict=True)
        def test_strict(backend): pass
        @xfail("pages")
        def test_passing(backend): pass
        @xfail("pages", raises=KeyError)
        def test_other_error(backend): assert backend != "pages"
        @xfail("pages", run=False)
        def test_not_run(backend): assert backend != "pages", "the test must not run"
        @xfail(cpu_only=True)
        def test_on_gpu(device): assert device.kind == "cpu"
    """
    result = run(code, *TWO, "-rxX")
    result.assert_outcomes(passed=7, failed=2, xfailed=3, xpassed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*xfail_backends: under pages*"])


def test_marks_of_classes_and_modules_add_up(run):
    code = """
        import pytest
        pytestmark = pytest.mark.skip_backends("numpy")
        @pytest.mark.skip_backends(cpu_only=True)
        class TestIt:
            def test_it(self, device): assert device.kind == "cpu"
            @pytest.mark.skip_backends("pages")
            def test_none(self, device): assert 0
    """
    run(code, *TWO).assert_outcomes(passed=1, skipped=5)


def test_without_a_fixture_a_mark_asks_the_chosen_framework(run, monkeypatch):
    monkeypatch.setenv("XDEVICE_BACKEND", "pages")
    run(marked("skip_backends('pages')", "")).assert_outcomes(skipped=1)
    run(marked("skip_backends('numpy')", "")).assert_outcomes(failed=1)


def test_the_project_names_lazy_and_other_frameworks(run, pytester):
    names = "xdevice_lazy_backends = pages.arrays\nxdevice_other_backends = dask mlx"
    pytester.makeini(f"[pytest]\n{names}")
    code = """
        import pytest
        @pytest.mark.skip_backends("dask.array", "mlx")
        @pytest.mark.skip_backends(eager_only=True, exceptions=["dask"])
        def test_it(backend): assert backend == "numpy"
    """
    run(code, *TWO).assert_outcomes(passed=1, skipped=1)


WRONG = {
    "skip_backends('numpi')": "'numpi' is not a backend; did you mean 'numpy'?",
    "skip_backends('tf')": "'tf' is not a backend; did you mean 'tensorflow'?",
    "skip_backends(['numpy', 'jax'])": "*is not a name; write the names one by one: 'numpy', 'jax'",
    "only_backends(7)": "7 is not a backend; there are *",
    "skip_backends(cpu_only=True, exceptions='pagess')": "'pagess' is not a backend; did you *",
    "skip_backends(reason='why')": "it names no framework; give names, or one of cpu_only, *",
    "xfail_backends('numpy', stict=True)": "there is no stict=; there are cpu_only, *",
    "skip_backends('numpy', strict=True)": "there is no strict=; there are cpu_only, *",
}


def test_a_wrong_mark_is_an_error(run):
    tests = [f"@pytest.mark.{mark}\ndef test_{i}(backend): pass" for i, mark in enumerate(WRONG)]
    result = run("\n".join(["import pytest", *tests]), "--xdevice-backend=numpy")
    result.assert_outcomes(errors=len(WRONG))
    result.stdout.fnmatch_lines(
        [f"@pytest.mark.{mark.partition('(')[0]}: {text}" for mark, text in WRONG.items()]
    )


# ---------------------------------------------------------------- the project's own names


def test_own_marks_are_left_alone(run, pytester):
    pytester.makeini("[pytest]\nmarkers =\n    skip_backends(model): my own")
    run(marked("skip_backends('anything')"), "--xdevice-backend=numpy").assert_outcomes(failed=1)


OWN = """
    import pytest
    @pytest.fixture(params=["a", "b"])
    def xp(request): return request.param
    @pytest.fixture(name="device")
    def own_device(): return "a fridge"
    @pytest.fixture
    def dtype(): return "f"
    @pytest.fixture
    def assert_close(): return None
"""


def test_own_fixtures_are_used_and_named_once(run, pytester):
    pytester.makeconftest(OWN)
    code = """
        def test_it(xp, device, dtype, assert_close):
            assert (xp in "ab", device, dtype, assert_close) == (True, "a fridge", "f", None)
    """
    assert collected(run, code) == ["a", "b"]
    result = run(code)
    result.assert_outcomes(passed=2)
    line = "xdevice: the project's own fixtures replace xdevice's: xp, device, dtype, "
    assert result.stdout.str().count(line + "assert_close (conftest.py)") == 1
