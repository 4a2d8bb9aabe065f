"""`deterministic`: what it sets, and that it sets it back."""

import random

import numpy as np
import pytest

import xdevice
from xdevice.testing import deterministic


def settings(backend):
    """What the block may change, under the framework that is tested."""
    framework = xdevice.backend().framework
    if backend == "torch":
        cuda, cudnn = framework.backends.cuda.matmul, framework.backends.cudnn
        onednn = framework.backends.mkldnn.enabled
        return (
            framework.get_float32_matmul_precision(),
            *(cuda.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, onednn),
        )
    if backend == "jax":
        return framework.config.jax_enable_x64, framework.config.jax_default_matmul_precision
    if backend == "tensorflow":
        return (framework.config.experimental.tensor_float_32_execution_enabled(),)
    if backend == "paddle":
        core = framework.base.core
        return core.get_cublas_switch(), core.get_cudnn_switch()
    return ()


WITHIN = {
    "torch": ("highest", False, False, True, False),
    "jax": (True, "highest"),
    "tensorflow": (False,),
    "paddle": (False, False),
}


def test_settings_are_as_before_afterwards(backend):
    framework = xdevice.backend().framework
    if backend == "torch":
        framework.set_float32_matmul_precision("high")
    if backend == "paddle":
        framework.base.core.set_cublas_switch(True)
    before = settings(backend)
    try:
        with deterministic():
            assert settings(backend) == WITHIN.get(backend, ())
            if backend == "jax":
                assert xdevice.ones(1, dtype="float64").dtype == "float64"
        assert settings(backend) == before
        with deterministic(x64=False):
            if backend == "jax":
                assert not settings(backend)[0]
    finally:
        if backend == "torch":
            framework.set_float32_matmul_precision("highest")
        if backend == "paddle":
            framework.base.core.set_cublas_switch(False)
    if before:
        assert before != WITHIN[backend]


def test_random_numbers_are_the_same_in_each_block(backend):
    drawn = []
    for seed in (0, 0, 1):
        with deterministic(seed):
            numbers = xdevice.to_numpy(xdevice.rand(4)).tolist()
            drawn.append((numbers, random.random(), np.random.random()))
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_programs_random_numbers_continue():
    random.seed(3)
    np.random.seed(3)
    expected = [random.random(), np.random.random()]
    random.seed(3)
    np.random.seed(3)
    with deterministic():
        random.random()
        np.random.random()
    assert [random.random(), np.random.random()] == expected


CODE = """
    import os, random, xdevice
    def test_dtypes(xp, dtype, {fixture}): pass
    def test_seed(backend, {fixture}): assert random.random() == {first}
"""
ENVIRONMENT = """
    def test_environment(): assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == "0"
"""


@pytest.mark.weekly
@pytest.mark.frameworks("numpy")
def test_the_fixture_and_the_option_do_it(run, backend):
    code = CODE.format(fixture="deterministic", first=random.Random(0).random())
    run(code).assert_outcomes(passed=3)
    code = code.replace(", deterministic", "")
    without = run(code).parseoutcomes()
    assert without == {"failed": 1, "passed": 1 if backend == "jax" else 2}
    run(code + ENVIRONMENT, "--xdevice-deterministic").assert_outcomes(passed=4)
