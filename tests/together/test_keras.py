"""Keras runs on several frameworks: its tensors and models are whose it runs on."""

import subprocess
import sys

import pytest

import xdevice

NEEDED = {"tensorflow", "jax"}  # Keras on NumPy needs JAX for some of its functions

pytestmark = pytest.mark.skipif(
    not set(xdevice.available()) >= NEEDED, reason="needs TensorFlow and JAX side by side: `tox -e all`"
)


def test_a_keras_on_another_framework_is_not_tensorflows():
    code = """
import os
os.environ["KERAS_BACKEND"] = "numpy"
import keras
import tensorflow
from xdevice.backends.tensorflow import placement
assert placement.role(type(keras.layers.Dense(2))) is None
assert placement.role(type(keras.Input((2,)))) is None
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_keras_model_on_jax_moves_and_can_be_put_back():
    code = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import xdevice
xdevice.use("jax")
xdevice.virtual_gpus(2)
import keras
net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
first, second = xdevice.gpu(0), xdevice.gpu(1)
assert xdevice.to_device(net, first) is net
put_back = xdevice.backend().models.keep(net)
assert xdevice.device_of(xdevice.to_device(net, second)) == second
put_back()
assert xdevice.device_of(net) == first
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
