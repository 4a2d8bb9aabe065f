"""TensorFlow draws the same random numbers on the CPU and on GPUs: those that a real GPU was recorded drawing.

Source: smolix/d2l-neu, outputs/tensorflow/chapter_builders-guide, init.json and reproducibility-inspection.json, of an
RTX 4090.
"""

import keras
import numpy as np
import tensorflow as tf

import xdevice
from xdevice import device_of, gpu, scope


def test_keras_initializers_draw_what_a_real_gpu_drew():
    with xdevice.using("tensorflow"):
        xdevice.count()  # settles the devices before the first tensor is made
        initializers = keras.initializers
        keras.utils.set_random_seed(0)
        with scope(gpu(1)):
            initializers.GlorotUniform()  # takes a seed, as the chapter's first layer does
            normal = initializers.RandomNormal(stddev=0.01)((4, 8))
            uniform = initializers.GlorotUniform()((4, 8))
            seeded = initializers.GlorotUniform(seed=1)((8, 1))
        assert device_of(normal) == gpu(1)
    for drawn, recorded in (
        (normal[:, 0], (0.01419753, 0.01572837, -0.02287325, -0.00140878)),
        (uniform[:, 0], (0.22517478, -0.18920076, 0.62674755, 0.11356837)),
        (seeded[:3, 0], (0.6180687, -0.06535196, 0.16377491)),
    ):
        np.testing.assert_allclose(drawn, recorded, rtol=1e-6, atol=5e-9)


def test_a_generator_draws_what_a_real_gpu_drew():
    with xdevice.using("tensorflow"):
        xdevice.count()  # as above
        with scope(gpu(1)):
            numbers = tf.random.Generator.from_seed(42).uniform((10,))
            order = tf.argsort(numbers)
        assert device_of(numbers) == gpu(1)
    assert order.numpy().tolist() == [4, 2, 7, 3, 5, 8, 9, 1, 0, 6]
