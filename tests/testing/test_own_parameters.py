"""Parameters, hooks and fixtures of the project's own, beside those of the plugin."""

import re

import pytest

pytest_plugins = ["pytester"]

TWO = "--xdevice-backend=numpy,pages", "--xdevice-virtual-gpus=2"


def collected(run, code, *options):
    """The ids in brackets, by test."""
    output = run(code, "--collect-only", "-q", *options).stdout.str()
    found = {}
    for name, each in re.findall(r"^\S+::(\w+)\[(.+)\]$", output, re.MULTILINE):
        found.setdefault(name, []).append(each)
    return found


NAMES = """
    import numpy, pytest, xdevice_pages

    @pytest.fixture(params=["pages", "agg"])
    def backend(request): return request.param

    @pytest.mark.parametrize("backend, n", [("pages", 1), ("agg", 2)])
    def test_mark(backend, device, n): pass

    def test_fixture(backend, device): pass

    @pytest.mark.parametrize("xp", [numpy, numpy.linalg], ids=["a", "b"])
    def test_module(xp, device): pass
"""


def test_a_parameter_that_names_a_framework_meets_only_its_devices(run):
    pages = ["pages-cpu:0", "pages-gpu:0", "pages-gpu:1"]
    every = ["numpy-cpu:0", *pages]
    assert collected(run, NAMES, *TWO) == {
        "test_mark": [
            "numpy-cpu:0-agg-2",
            *(f"{each}-{n}" for each in pages for n in ("pages-1", "agg-2")),
        ],
        "test_fixture": [*(f"pages-{each}" for each in pages), *(f"agg-{each}" for each in every)],
        "test_module": ["numpy-cpu:0-a", "numpy-cpu:0-b"],
    }


HOOKS = """
    def pytest_generate_tests(metafunc):
        for name in sorted({"backend", "device", "xp"} & set(metafunc.fixturenames)):
            if "xdevice" not in metafunc.function.__name__:
                metafunc.parametrize(name, ["a", "b"])
        if "xdevice" in metafunc.function.__name__:
            metafunc.parametrize("xdevice_device", ["cuda:1"], indirect=True)

    def test_backend(backend): pass
    def test_device(device): pass
    def test_xp(xp): pass
    def test_dtype(backend, dtype): pass
    def test_xdevice(device): pass
"""


@pytest.mark.parametrize("place", ["file", pytest.param("conftest", marks=pytest.mark.weekly)])
def test_a_hook_that_gives_values_replaces_the_fixtures(run, pytester, place):
    hook, _, tests = HOOKS.partition("    def test")
    if place == "conftest":
        pytester.makeconftest(hook)
        hook = ""
    found = collected(run, f"{hook}    def test{tests}", "--xdevice-backend=pages", TWO[1])
    assert found == {
        **{name: ["a", "b"] for name in ("test_backend", "test_device", "test_xp")},
        "test_dtype": [f"{own}-pages-float{bits}" for own in "ab" for bits in (32, 64)],
        "test_xdevice": ["cuda:1-pages"],
    }


@pytest.mark.weekly
def test_a_hook_that_gives_parameters_to_a_fixture_without_is_an_error(run):
    code = """
        def pytest_generate_tests(metafunc):
            metafunc.parametrize("device", ["cuda:1"], indirect=True)
        def test_it(device): pass
    """
    result = run(code, "--xdevice-backend=pages")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_it: the fixture device takes no parameter; parametrize *"])


DEVICE = """
    import pytest
    @pytest.fixture
    def device(): return "{}"
"""
SESSION = """
    @pytest.fixture(scope="session")
    def model(backend): return backend
    def test_session(model): pass
    def test_own(device, backend): assert device == "own"
"""


def test_own_fixtures_of_each_level_are_named(run, pytester):
    pytester.makeconftest(DEVICE.format("outer"))
    inner = "def test_inner(device, backend): assert device == 'inner'"
    pytester.makepyfile(**{"folder/conftest": DEVICE.format("inner"), "folder/test_inner": inner})
    result = run(DEVICE.format("own") + SESSION, "--xdevice-backend=numpy,pages")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(
        [
            "xdevice: the project's own fixtures replace xdevice's: device (conftest.py)",
            "xdevice: the project's own *: device (folder/conftest.py); device (test_it.py)",
            "ScopeMismatch: *function scoped fixture *backend*",
        ]
    )


SERVED = """
    [pytest]
    xdevice_backends = pages {}
"""


@pytest.mark.weekly
def test_a_framework_that_is_not_served_may_be_named(run, pytester):
    pytester.makeini(SERVED.format("broken"))
    assert collected(run, "def test_it(backend): pass") == {"test_it": ["broken", "pages"]}
    code = "def test_it(backend): pass"
    assert collected(run, code, "--xdevice-backend=numpy") == {"test_it": ["numpy"]}
    pytester.makeini(SERVED.format("page"))
    result = run(code)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*xdevice_backends = pages page: 'page' is not *'pages'?"])
