"""TensorFlow: Keras layers, and a gradient tape."""

import keras
import tensorflow as tf


def linear(weight, bias):
    layer = keras.layers.Dense(len(bias))
    layer.build((None, len(weight)))
    layer.kernel.assign(weight)
    layer.bias.assign(bias)
    return layer


def parameters(model):
    return {"weight": model.kernel, "bias": model.bias}


def norm(x):
    return tf.norm(x)


def stack(tensors):
    return tf.stack(tensors)


def classifier(inputs, hidden, classes):
    # Keras draws weights from its own generator, which TensorFlow's seed does not affect.
    keras.utils.set_random_seed(int(tf.random.uniform((), maxval=2**31 - 1, dtype=tf.int32)))
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((inputs,)), layers.Dense(hidden, "relu"), layers.Dense(classes)]
    )


def trainer(net, rate):
    optimizer = keras.optimizers.SGD(rate)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x, labels):
        with tf.GradientTape() as tape:
            loss = cross_entropy(labels, net(x))
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return loss

    return step


def convolution(x, weight, bias):
    # On the CPU, TensorFlow has gradients only for channels-last images
    with tf.device(x.device):
        y = tf.nn.conv2d(
            tf.transpose(x, [0, 2, 3, 1]), tf.transpose(weight, [2, 3, 1, 0]), 1, "VALID"
        )
        return tf.transpose(y + bias, [0, 3, 1, 2])


def average_pooling(x):
    with tf.device(x.device):
        return tf.transpose(
            tf.nn.avg_pool2d(tf.transpose(x, [0, 2, 3, 1]), 2, 2, "VALID"), [0, 3, 1, 2]
        )


def compiled(function):
    return function
