"""TensorFlow's own words for what the contract suite needs."""

import numpy as np
import tensorflow as tf


def ones():
    return tf.ones((2, 3))


def address(x):
    return np.asarray(memoryview(x)).ctypes.data


def owned():
    import keras

    return [tf.ones(1), tf.Variable(1.0), keras.Variable([1.0]), tf.constant(1)]


def parameter(frozen=False):
    return tf.Variable(tf.ones((2, 3)), trainable=not frozen)


def is_frozen(parameter):
    return not parameter.trainable


def model():
    import keras

    net = keras.Sequential([keras.layers.Dense(2), keras.layers.BatchNormalization()])
    net.build((None, 3))
    return net


def unbuilt_model():
    import keras

    return keras.Sequential([keras.layers.Dense(2)])


def output(model, x):
    return model(x)


def parameters(model):
    return list(model.weights)


def compiled(fn):
    return tf.function(
        fn, autograph=False
    )  # which would make an error of its own of each that is raised


def compiled_loss():
    compilations = []

    def loss(p, x):
        compilations.append(x)  # runs only while TensorFlow traces
        return tf.reduce_sum((x @ p["w"] + p["b"]) ** 2)

    return tf.function(loss, autograph=False), compilations


def gradient(move):
    """The gradient of sum(2 * move(x)) with respect to x, which is 2 everywhere."""
    x = tf.ones(3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(2 * move(x))
    return tape.gradient(y, x).numpy().tolist()


def mixing_gradient(x, y):
    """A backward pass in which x's gradient meets y."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        z = tf.reduce_sum(x * y)
    return lambda: tape.gradient(z, x)


def symbolic(ask):
    """Ask about a tensor of a graph."""

    @tf.function
    def graph(x):
        ask(x)
        return x

    graph(tf.ones(2))


def native_devices():
    return [
        (tf.DeviceSpec.from_string("/GPU:3"), "gpu:3"),
        (tf.config.list_physical_devices("CPU")[0], "cpu:0"),
        (tf.config.list_logical_devices("CPU")[0], "cpu:0"),
    ]
