"""``--xdevice-default-device``."""

import pytest

pytest_plugins = ["pytester"]

TWO = "--xdevice-virtual-gpus=2"
CODE = """
    import pytest, xdevice

    xdevice.use("pages")
    def place(): return str(xdevice.device_of(xdevice.ones(1)))

    @pytest.fixture(scope="module")
    def model(): return place()

    def test_nothing(): assert place() == "gpu:1"
    def test_model(model): assert model == "gpu:1"
    def test_backend(backend): assert place() == ("gpu:1" if backend == "pages" else "cpu:0")
    def test_device(device): assert place() == "gpu:1"
    def test_scope(device_scope): assert place() == str(device_scope)
    assert place() == "cpu:0"
"""


def test_it_is_that_of_each_test_with_fixtures_or_without(run, pytester):
    # and the frameworks are those that the project serves
    pytester.makeini("[pytest]\naddopts = -rs\nxdevice_backends = pages numpy")
    result = run(CODE, TWO, "--xdevice-default-device=cuda:1")
    result.assert_outcomes(passed=9, skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED * needs gpu:1, and the framework's devices are cpu:0"])


@pytest.mark.weekly
def test_another_word_is_a_usage_error(run):
    result = run(CODE, "--xdevice-default-device=gpux:")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--xdevice-default-device=gpux:: 'gpux:' is not a device*"])
