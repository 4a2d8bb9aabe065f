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
    "paddle": """
        import paddle
        x = paddle.ones([1024, 1024])
        kept = [x @ x for _ in range(15)]
        del kept
        print(x.shape)
    """,
}
NAMES = {"jax": "JAX", "tensorflow": "TensorFlow", "paddle": "PaddlePaddle"}
ARRAYS = 16 * 4 * MIB  # each of the programs has these at once


@pytest.fixture
def fits(tmp_path):
    def run(text, *options, size="4GiB"):
        (tmp_path / "program.py").write_text(textwrap.dedent(text))
        report = tmp_path / "report"
        start = [sys.executable, "-m", "xdevice", "run", "--fits", size, *options]
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
    assert f"under {NAMES[measured]}" in str(report)


@pytest.mark.weekly
@pytest.mark.only_backends("tensorflow", "jax")
def test_steps_of_an_optimizer_are_not_counted(backend, fits):
    done, report = fits(PROGRAMS[str(backend)], "--stop-after", "2")
    assert done.returncode == 2
    assert report is None
    assert "--stop-after counts the steps of PyTorch's and PaddlePaddle's optimizers" in done.stderr


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


TRAINING = """
    import paddle
    net = paddle.nn.Sequential(*[paddle.nn.Linear(1024, 1024, bias_attr=False) for _ in range(4)])
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    for _ in range(1000):
        net(paddle.ones([512, 1024])).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
"""


@pytest.mark.weekly
@pytest.mark.only_backends("paddle")
def test_a_training_has_a_line_a_phase_and_steps_after_which_it_is_told(backend, fits):
    done, report = fits(TRAINING, "--stop-after", "2")
    assert (done.returncode, report["steps"]) == (0, 2)
    [gpu] = report["gpus"]
    assert (gpu["line"], gpu["phase"]) == (6, "backward")
    weights_gradients_and_state = 4 * 4 * 4 * MIB
    assert report["needs"]["least"] >= weights_gradients_and_state + CONTEXT[0]
    assert gpu["reserved"] <= 1.5 * weights_gradients_and_state
    assert not [each for each in report["not_counted"] if "not Python" in each]  # paddle's `which`
    done, report = fits(TRAINING, "--stop-after", "1")
    assert (done.returncode, report["answer"]) == (3, "cannot be told")


@pytest.mark.weekly
@pytest.mark.only_backends("paddle")
@pytest.mark.parametrize("reset", ["", "paddle.device.cuda.reset_max_memory_allocated()"])
def test_the_peak_stays_when_the_program_frees_and_resets_it_under_paddle(backend, fits, reset):
    text = f"""
        import paddle
        x = [paddle.zeros([1 << 20]) for _ in range(16)]
        del x
        {reset}
        paddle.nn.functional.conv2d(paddle.ones([1, 1, 8, 8]), paddle.ones([1, 1, 3, 3]))
    """
    _, report = fits(text)
    [gpu] = report["gpus"]
    assert gpu["allocated"] == 16 * 4 * MIB
    assert gpu["bounded_kernels"] == 512 * MIB, "the limit of cuDNN's workspaces"


@pytest.mark.weekly
@pytest.mark.only_backends("paddle")
@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("paddle.jit.to_static(net, full_graph=True)(x)", "a function of paddle.jit"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "its memory is not known"),
    ],
)
def test_what_paddle_does_not_count_is_not_said_to_fit(backend, fits, then, reason):
    text = f"""
        import paddle
        x = paddle.ones([64, 64])
        net = paddle.nn.Linear(64, 64)
        {then}
    """
    done, report = fits(text)
    assert (done.returncode, report["answer"]) == (3, "cannot be told")
    assert reason in report["reason"]


@pytest.mark.weekly
@pytest.mark.only_backends("paddle")
def test_what_paddle_only_caches_is_freed_before_the_size_is_exceeded(backend, fits):
    text = """
        import paddle
        for mib in range(400, 600, 20):
            x = None
            x = paddle.zeros([mib << 18])
    """
    _, report = fits(text, size="2GiB")
    assert report["gpus"][0]["reserved"] < 1 << 30
    _, report = fits(text, size="40GiB")
    assert report["gpus"][0]["reserved"] > 2 << 30, "or nothing had to be freed"


def test_a_framework_is_measured_or_refused_before_the_program_runs(backend, fits, request):
    if find(backend).load("virtual").has("enable") and not _is_measured(backend):
        done, report = fits(f"print('ran')\nimport {backend}")
        assert (done.returncode, done.stdout, report) == (2, "", None)
        assert f"--fits is not known under {backend}" in done.stderr
    else:
        provider().check_measured([backend])  # raises no error


def _is_measured(backend):
    return find(backend).load("virtual").has("measure_memory")
