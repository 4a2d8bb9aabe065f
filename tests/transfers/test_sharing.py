"""`share_gpus`, each time in a process of its own: what a framework was told holds until its process ends."""

import textwrap

import pytest

import xdevice
from xdevice.hardware import sharing


@pytest.fixture
def shared(backend, in_a_fork):
    def run(code, imported=backend, **variables):
        """What a process prints; its framework is not used yet, and may not be imported either."""
        code = "import importlib, os, xdevice\n" + textwrap.dedent(code)
        of_backend = {"XDEVICE_BACKEND": backend, "FRAMEWORK": backend}
        done = in_a_fork(imported, code, **of_backend, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().splitlines()

    return run


def has_real_gpus():
    return any(not xdevice.properties(gpu)["virtual"] for gpu in xdevice.devices("gpu"))


@pytest.mark.parametrize("wrong", [0, -0.1, 1.5, float("nan")])
def test_a_fraction_is_above_0_and_up_to_1(wrong):
    with pytest.raises(xdevice.ArgumentError, match="is not above 0 and up to 1"):
        xdevice.share_gpus(wrong)


@pytest.mark.parametrize("wrong", ["0.3", True, [0.3]])
def test_a_fraction_is_a_number(wrong):
    with pytest.raises(
        xdevice.ArgumentTypeError, match="is not a number; give one above 0 and up to 1"
    ):
        xdevice.share_gpus(wrong)
    assert sharing._request is None


@pytest.mark.frameworks("jax")
def test_before_first_use_it_does_no_harm_and_may_be_asked_again(backend, shared):
    code = """
        first = xdevice.share_gpus(0.5)
        print(xdevice.share_gpus(0.5) == first, xdevice.ones(2).shape[0])
        assert all(isinstance(word, str) for words in first.values() for word in words.values())
        print(sorted(first.get(os.environ["FRAMEWORK"], ())))
        print(xdevice.share_gpus(0.5) == first)
    """
    lines = shared(code)
    assert lines[0] == "True 2"
    assert lines[-1] == "True"
    own = {
        "jax": ["XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"],
        "paddle": ["FLAGS_allocator_strategy"],
        "mxnet": ["MXNET_GPU_MEM_POOL_RESERVE"],
    }
    if not has_real_gpus():
        assert lines[1] == str(own.get(backend, []))


@pytest.mark.frameworks("jax")
def test_after_first_use_it_is_an_error_that_names_the_framework(backend, shared):
    code = """
        xdevice.ones(2)
        try:
            print(xdevice.share_gpus())
        except xdevice.TooLateError as error:
            print(error)
    """
    (said,) = shared(code)[-1:]
    if backend in (
        "tensorflow",
        "paddle",
        "jax",
    ):  # the others can be told at any time, or take nothing beforehand
        assert said.startswith(f"{backend} has been used, and ")
        assert "call share_gpus() before" in said
    else:
        assert said == "{}"


@pytest.mark.frameworks("jax")
@pytest.mark.parametrize("virtual", [pytest.param("0", marks=pytest.mark.weekly), "2"])
def test_a_framework_that_is_imported_later_is_told_then(backend, shared, virtual):
    code = """
        del os.environ["XDEVICE_BACKEND"]
        from xdevice.hardware import sharing
        xdevice.share_gpus()
        importlib.import_module(os.environ["FRAMEWORK"])
        with xdevice.using(os.environ["FRAMEWORK"]):
            print(os.environ["FRAMEWORK"] in sharing._sharing, xdevice.num_gpus())
    """
    gpus = 0 if backend == "numpy" else int(virtual)
    if not has_real_gpus():
        assert shared(code, "numpy", XDEVICE_VIRTUAL_GPUS=virtual)[-1] == f"True {gpus}"


@pytest.mark.weekly
@pytest.mark.frameworks("jax")
def test_two_frameworks_are_told_in_one_process(backend, shared):
    code = """
        xdevice.share_gpus(0.25)
        with xdevice.using("numpy"):
            xdevice.ones(2)
        print(xdevice.ones(2).shape[0], sorted(map(str, xdevice.share_gpus(0.25))))
    """
    told = [str(backend)] if backend in ("jax", "paddle", "mxnet") else []
    if not has_real_gpus():
        assert shared(code)[-1].startswith(f"2 {told}"[:-1])
