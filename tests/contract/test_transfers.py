"""Loops that train on a GPU wait for nothing: the mark ``no_transfers`` holds them to it."""

import pytest

from xdevice import full, namespace, ones, value_and_grad, zeros

# these have gradients
pytestmark = pytest.mark.frameworks("torch", "tensorflow", "paddle", "mxnet", "jax")


def squares(w, x, y):
    xp = namespace(x)
    off = xp.matmul(x, w) - y
    return xp.sum(off * off)


@pytest.mark.no_transfers(level="forbid_implicit")
def test_a_training_loop_on_a_gpu_asks_for_each_of_its_copies(two_gpus):
    with two_gpus[1]:
        x, y, w, rate = ones((4, 3)), ones((4, 1)), zeros((3, 1)), full((1,), 0.1)
        for _ in range(3):
            _, gradient = value_and_grad(squares)(w, x, y)
            w = w - rate * gradient


@pytest.mark.no_transfers(level="forbid_implicit", max_copies=1)
def test_reading_its_loss_once_is_one_copy(two_gpus):
    with two_gpus[1]:
        x, y, w = ones((4, 3)), ones((4, 1)), zeros((3, 1))
        loss, _ = value_and_grad(squares)(w, x, y)
    assert float(loss) == pytest.approx(4)
