"""Copies under PyTorch: programs in processes of their own."""

import os
import subprocess
import sys

import pytest


@pytest.mark.weekly
@pytest.mark.parametrize("compiler", [{}, {"CXX": "absent"}], ids=["compiled", "in Python"])
def test_copies_are_seen_and_refused_also_on_those_that_do_not_stand_in(compiler, copies_on):
    copies_on("torch", **compiler)


@pytest.mark.weekly
def test_there_is_nothing_to_see_without_a_gpu():
    program = """
import torch, xdevice
from torch.optim import optimizer
engine = torch.autograd.Variable._execution_engine
with xdevice.watch_transfers() as report:
    w = torch.ones(3, requires_grad=True)
    w.sum().backward()
    print(float(w.sum()), w[w > 0].tolist())
print(len(report), torch.autograd.Variable._execution_engine is engine, len(optimizer._global_optimizer_post_hooks))
with xdevice.watch_transfers() as report:
    xdevice.virtual_gpus(1)
    torch.ones(3).to("vgpu")
print(len(report))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.splitlines() == ["3.0 [1.0, 1.0, 1.0]", "0 True 0", "1"], done.stderr


@pytest.mark.weekly
def test_steps_of_keras_on_pytorch_are_counted_wherever_it_is_imported():
    program = """
import torch, xdevice
xdevice.virtual_gpus(1, stand_in=True)
with xdevice.watch_transfers() as report:
    import keras, numpy as np
    keras.utils.set_random_seed(0)
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    net.compile("adam", "mse")
    net.fit(np.ones((32, 4), "float32"), np.ones((32, 3), "float32"), 8, 2, verbose=0)
print(report.steps, "apply" in vars(keras.optimizers.Optimizer))
net.fit(np.ones((32, 4), "float32"), np.ones((32, 3), "float32"), 8, 1, verbose=0)
print(report.steps)
"""
    env = os.environ | {"KERAS_BACKEND": "torch"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, env=env
    )
    assert done.stdout.splitlines() == ["8 False", "8"], done.stderr[-3000:]


@pytest.mark.weekly
def test_advice_that_is_followed_leaves_nothing_to_mend(check_advice):
    check_advice("torch")


@pytest.mark.weekly
def test_the_tests_that_the_page_shows_pass(check_page):
    check_page("torch")
