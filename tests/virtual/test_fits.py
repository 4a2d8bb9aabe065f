"""``xdevice run --fits`` under other frameworks than PyTorch: a peak, or an error before the program runs."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from xdevice.framework.adapters import find
from xdevice.hardware.virtual import provider
from xdevice.virtual.fits import CONTEXT

MIB = 1 << 20

PROGRAMS = {
    "jax": """
        import jax, jax.numpy as jnp
        f = jax.jit(lambda x: x @ x)
        x = jnp.ones((1024, 1024))
        kept = [f(x) for _ in range(15)]  # JAX would make all calls but the first without Python
        del kept
        print(f(x).shape)
    """,
    "tensorflow": """
        import tensorflow as tf
        x = tf.Variable(tf.ones((1024, 1024)))
        kept = [tf.matmul(x, x) for _ in range(15)]
        del kept
        print(x.shape)
    """,
}
ARRAYS = 16 * 4 * MIB  # each of the programs has these at once


@pytest.fixture
def fits(tmp_path):
    def run(text, *options):
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        report = tmp_path / "report"
        start = [sys.executable, "-m", "xdevice", "run", "--fits", "4GiB", *options]
        done = subprocess.run(
            [*start, "--format", "json", "--report", str(report), "program.py"],
            cwd=tmp_path,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=200,
        )
        written = json.loads(report.read_text()) if report.exists() else None
        return done, written

    return run


@pytest.fixture
def measured(backend):
    if backend not in PROGRAMS:
        pytest.skip(f"{backend} has its own tests, or is not measured")
    return backend


@pytest.mark.weekly
def test_the_peak_is_that_of_all_arrays_at_once_and_its_range_is_wide(measured, fits):
    done, report = fits(PROGRAMS[measured])
    assert (done.returncode, report["answer"]) == (0, "fits"), done.stderr
    [gpu] = report["gpus"]
    assert ARRAYS <= gpu["reserved"] <= 1.2 * ARRAYS
    assert report["needs"]["most"] == int(gpu["reserved"] * 1.2) + CONTEXT[1]
    assert report["needs"]["least"] < gpu["reserved"] + CONTEXT[0]
    assert f"under {'JAX' if measured == 'jax' else 'TensorFlow'}" in str(report)


@pytest.mark.weekly
def test_steps_of_an_optimizer_are_not_counted(measured, fits):
    done, report = fits(PROGRAMS[measured], "--stop-after", "2")
    assert done.returncode == 2
    assert report is None
    assert "--stop-after counts the steps of PyTorch's optimizers" in done.stderr


@pytest.mark.weekly
@pytest.mark.only_backends("jax")
def test_what_is_compiled_ahead_of_time_is_not_said_to_fit(backend, fits):
    text = """
        import jax, jax.numpy as jnp
        x = jnp.ones((8, 8))
        f = jax.jit(lambda x: x @ x).lower(x).compile()
        print(f(x + 1).shape)
    """
    done, report = fits(text)
    assert (done.returncode, report["answer"]) == (3, "cannot be told")
    assert "a function that was compiled ahead of time" in report["reason"]


def test_a_framework_is_measured_or_refused_before_the_program_runs(backend, fits, request):
    if find(backend).load("virtual").has("enable") and not _is_measured(backend):
        done, report = fits(f"print('ran')\nimport {backend}")
        assert (done.returncode, done.stdout, report) == (2, "", None)
        assert f"--fits is not known under {backend}" in done.stderr
    else:
        provider().check_measured([backend])  # raises no error


def _is_measured(backend):
    return find(backend).load("measuring").has("measure_memory")
