"""The plugin's fixtures and marks in a library's tests, under each framework."""

import re
from pathlib import Path

import pytest

import xdevice
from xdevice.testing import assert_close

COMPILERS = {
    "torch": "aot_eager",
    "tensorflow": "function",
    "paddle": "sot",
    "mxnet": "hybridize",
    "jax": "jit",
}
COMPILES_FUNCTIONS = set(COMPILERS) - {"mxnet"}
READS_NO_NUMBER = {"jax", "tensorflow"}  # while they trace


def ids(result, test):
    """The ids in brackets of a test, by outcome."""
    found = re.findall(rf"::{test}\[(.+?)\] (PASSED|FAILED|SKIPPED)", result.stdout.str())
    return {outcome: [each for each, other in found if other == outcome] for _, outcome in found}


DEVICES = """
    import pytest, xdevice
    from mylib import softmax

    def test_values(xp, device, device_scope, dtype, assert_close):  # TensorFlow's operators follow it
        x = xp.ones((2, 2), dtype=dtype, device=device)
        assert softmax(x).dtype == dtype
        assert_close(softmax(x), [[0.5, 0.5], [0.5, 0.5]])

    def test_elsewhere(xp, device, assert_close):
        assert_close(xp.ones(2, device="cpu"), [1, 1])

    @pytest.mark.skip_backends(cpu_only=True)
    def test_cpu(device): assert device.kind == "cpu"

    def test_native(xp, native_device, assert_close):
        xdevice.as_device(native_device)

    with xdevice.using("FRAMEWORK"):
        x = xdevice.tensor([1.0])

    @pytest.mark.parametrize(("pair", "text"), [((x, {"of": x}), "x")])
    def test_parameters(device, pair, text, parameters_on_device):
        assert xdevice.device_of(pair) == device and pair[0] is pair[1]["of"] and text == "x"

    class TestFixture:
        @pytest.mark.usefixtures("parameters_on_device")
        @pytest.mark.parametrize("x", [x])
        def test_parameter(self, device, x): assert xdevice.device_of(x) == device
"""


@pytest.mark.frameworks("mxnet", "jax", "numpy", "array_api_strict")
def test_each_device_and_dtype(run, backend):
    result = run(DEVICES.replace("FRAMEWORK", backend), "--xdevice-virtual-gpus=2", "-v")
    places = [str(place) for place in xdevice.devices()]
    if backend != "numpy":
        places = ["cpu:0", "gpu:0", "gpu:1"]
    dtypes = ["float32"] if backend == "jax" else ["float32", "float64"]
    names = [f"{backend}-{place}-{dtype}" for place in places for dtype in dtypes]
    assert ids(result, "test_values") == {"PASSED": names}
    everywhere = [f"{backend}-{place}" for place in places]
    assert ids(result, "test_parameters") == {"PASSED": [f"{name}-pair0-x" for name in everywhere]}
    assert ids(result, "test_parameter") == {"PASSED": [f"{name}-x0" for name in everywhere]}
    gpus = [f"{backend}-{place}" for place in places if place != "cpu:0"]
    on_cpu = {"PASSED": [f"{backend}-cpu:0"]}
    assert ids(result, "test_elsewhere") == ({**on_cpu, "FAILED": gpus} if gpus else on_cpu)
    assert ids(result, "test_cpu") == ({**on_cpu, "SKIPPED": gpus} if gpus else on_cpu)
    if gpus:
        result.stdout.fnmatch_lines(["*E * device: cpu:0, expected gpu:1"])


COMPILED = """
    import pytest, xdevice, mylib, package
    from mylib import softmax

    def test_fixture(xp, compiled, assert_close):
        x = xp.asarray([1.0, 2.0, 4.0])
        assert_close(compiled(softmax)(x, axis=0), softmax(x))

    @pytest.mark.compiled("softmax", "mylib.double", "mylib.Scale.apply", "package.twice")
    class TestMark:
        def test_mark(self, xp, assert_close):
            x = xp.asarray([1.0, 2.0, 4.0])
            doubled = mylib.double(x, name="z")
            assert_close(doubled["z"], [2, 4, 8])
            assert (doubled["number"], doubled["name"]) == (3, "z")
            assert_close(xp.sum(softmax(x)), 1.0)
            assert_close(mylib.Scale(2).apply(x), [2, 4, 8])
            assert_close(package.twice(x), [2, 4, 8])

    @pytest.mark.compiled("mylib.halves")
    def test_untraceable(xp): mylib.halves(xp.asarray([1.0]))

    @pytest.mark.compiled("mylib.halves")
    @pytest.mark.skip_backends(eager_only=True, reason="reads a number")
    def test_eager(xp): mylib.halves(xp.asarray([1.0]))

    def test_as_it_is(xp): assert softmax.__module__ == "mylib" and "traced" not in repr(softmax)
"""


PACKAGE = {  # whose function has the name of its module
    "package/__init__": "from package.twice import twice",
    "package/twice": "def twice(*arrays): return arrays[0] + arrays[-1]",
}


@pytest.mark.frameworks("mxnet", "jax", "numpy", "array_api_strict")
def test_functions_run_compiled_too(run, pytester, backend):
    pytester.makepyfile(**PACKAGE)
    result = run(COMPILED, "-v")
    compiled = f"{backend}-compiled-{COMPILERS.get(backend)}"
    both = {"PASSED": [backend, compiled]}
    if backend not in COMPILERS:
        both = {"PASSED": [backend]}
    elif backend not in COMPILES_FUNCTIONS:
        both = {"PASSED": [backend], "SKIPPED": [compiled]}
        result.stdout.fnmatch_lines(["SKIPPED *mxnet compiles Gluon's HybridBlocks only*"])
    assert ids(result, "test_fixture") == ids(result, "test_mark") == both
    if backend in READS_NO_NUMBER:
        both = {"PASSED": [backend], "FAILED": [compiled]}
    assert ids(result, "test_untraceable") == both
    if backend in COMPILERS:
        assert ids(result, "test_eager") == {"PASSED": [backend], "SKIPPED": [compiled]}


@pytest.mark.frameworks("mxnet", "numpy", "array_api_strict")
def test_a_compiled_run_can_be_the_only_one_or_none(run, backend):
    code = "def test_it(xp, compiled): assert compiled(abs) is not abs"
    assert ids(run(code, "-v", "--xdevice-compiled=no"), "test_it") == {"FAILED": [backend]}
    only = ids(run(code, "-v", "--xdevice-compiled=only"), "test_it")
    compiled = f"{backend}-compiled-{COMPILERS.get(backend, 'none')}"
    outcome = "PASSED" if backend in COMPILES_FUNCTIONS else "SKIPPED"
    assert only == {outcome: [compiled]}


OTHERS = {"torch": "eager", "tensorflow": "xla", "paddle": "ast"}


@pytest.mark.frameworks("jax", "numpy", "array_api_strict")
def test_another_compiler_is_named_in_the_id(run, backend):
    if backend not in COMPILERS:
        result = run("def test_it(xp, compiled): pass", "--xdevice-compiler=numpi=jit")
        result.stderr.fnmatch_lines(
            ["*--xdevice-compiler=numpi=jit: 'numpi' is not a backend; did*"]
        )
        return
    code = """
        from mylib import Scale
        def test_it(xp, compiled, assert_close):
            assert_close(compiled(Scale(2).apply)(xp.asarray([1.0])), [2.0])
    """
    other = OTHERS.get(backend, COMPILERS[backend])
    result = run(code, "-v", f"--xdevice-compiler={backend}={other}", "--xdevice-compiled=only")
    outcome = "PASSED" if backend in COMPILES_FUNCTIONS else "SKIPPED"
    assert ids(result, "test_it") == {outcome: [f"{backend}-compiled-{other}"]}
    wrong = run(code, f"--xdevice-compiler={backend}=gcc")
    assert wrong.ret
    wrong.stdout.fnmatch_lines([f"*{backend} has no compiler 'gcc'; there are *"])


def test_what_is_close_depends_on_nothing_else(backend):
    x = xdevice.tensor([1.0, 2.0])
    assert_close(x, xdevice.tensor([1.0, 2.0]))
    assert_close({"x": [x]}, {"x": [[1.0, 2.0]]})
    with pytest.raises(AssertionError, match=r"first at \[1\]: 2\.0, expected 2\.5"):
        assert_close(x, xdevice.tensor([1.0, 2.5]))
    if backend == "numpy":
        return
    numbers = xdevice.to_numpy(x)
    with pytest.raises(AssertionError, match=f"framework: {backend}, expected numpy"):
        assert_close(x, numbers)
    assert_close(x, numbers, check_backend=False)


def test_short_floats_can_be_compared(backend):
    if xdevice.backend().creation.dtype("bfloat16") is None:
        pytest.skip(f"{backend} has no bfloat16")
    x = xdevice.tensor([1.0, 2.0], dtype="bfloat16")
    assert_close(x, [1.0, 2.01])
    with pytest.raises(AssertionError, match=r"rtol=0\.016, atol=1e-05 \(bfloat16\)"):
        assert_close(x, [1.0, 2.5])


KIT = Path(__file__).parents[2] / "docs" / "test" / "kit.md"


@pytest.mark.frameworks("numpy")
def test_the_first_lines_of_the_kits_page_pass(run, backend, pytester):
    text = KIT.read_text(encoding="utf-8")
    files = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    for name in ("rescale.py", "test_rescale.py", "pytest.ini"):
        (pytester.path / name).write_text(files[name], encoding="utf-8")
    command = re.search(r"^pytest (--xdevice.*)$", text, re.MULTILINE)[1].split()
    result = run("", *command, f"--xdevice-backend={backend}", "test_rescale.py")
    outcomes = result.parseoutcomes()
    assert result.ret == 0
    assert outcomes["passed"] >= 2
    assert set(outcomes) <= {"passed", "skipped", "warnings"}
    assert ("skipped" in outcomes) == (backend == "mxnet")  # which compiles Gluon's blocks alone
