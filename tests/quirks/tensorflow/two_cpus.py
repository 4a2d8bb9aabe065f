"""What test_tensorflow.py runs: TensorFlow on two logical CPUs, which are asked for before the first tensor is made."""

import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import xdevice
from xdevice import Device, cpu, device_of, to_device

(CPU,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(CPU, [tf.config.LogicalDeviceConfiguration()] * 2)
A, B = cpu(), Device("cpu:1")
with xdevice.using("tensorflow"):
    BEFORE = xdevice.devices("cpu")


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("tensorflow"):
        yield


def test_split_devices_are_counted_before_they_are_used():
    assert [A, B] == BEFORE == xdevice.devices("cpu")
    assert [xdevice.as_device(d) for d in tf.config.list_logical_devices("CPU")] == [A, B]
    assert xdevice.as_device(CPU) is A


def test_gradients_flow_between_devices():
    for dtype in (tf.float32, tf.int32, tf.bool, tf.string, tf.bfloat16, tf.complex64):
        x = tf.constant(["a", "b"]) if dtype is tf.string else tf.cast(tf.constant([0, 1]), dtype)
        moved = to_device({"x": x}, B)["x"]
        assert (device_of(x), device_of(moved), moved.dtype) == (A, B, dtype), dtype
        assert (xdevice.to_numpy(moved) == xdevice.to_numpy(x)).all()
        assert to_device(moved, "cpu:1") is moved
        again = to_device(moved, B, copy=True)
        assert again is not moved
        assert device_of(again) is B
    x = tf.constant(3.0)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = to_device(to_device(x, B, copy=True), B) ** 3
        slope = inner.gradient(y, x)
    assert (float(slope), float(outer.gradient(slope, x))) == (27.0, 18.0)
    tf.config.experimental.set_device_policy("explicit")
    try:
        assert device_of(to_device(tf.ones(2), B)) is B
    finally:
        tf.config.experimental.set_device_policy("silent")


def test_creation_follows_device_and_scope():
    for make in (xdevice.zeros, xdevice.ones, xdevice.rand, xdevice.randn, xdevice.empty):
        assert device_of(make((2, 3), device=B)) is B
    assert device_of(xdevice.arange(3, device=B)) is device_of(xdevice.full((2,), 1, device=B)) is B
    assert (
        device_of(xdevice.tensor([1, 2], device=B))
        is device_of(xdevice.tensor(np.ones(3), device=B))
        is B
    )
    assert device_of(xdevice.tensor(tf.ones(2), device=B)) is B
    with B:
        assert (
            device_of(tf.ones(3)) is device_of(tf.Variable(1.0)) is device_of(xdevice.ones(3)) is B
        )
        with A:
            assert device_of(tf.ones(3)) is A
    assert device_of(tf.ones(3)) is A
    xdevice.synchronize(A, B)


def test_a_variable_moves_into_a_new_one():
    for trainable in (True, False):
        v = tf.Variable([1.0, 2.0], trainable=trainable, name="mine", constraint=tf.nn.relu)
        moved = to_device(v, B)
        assert (device_of(v), device_of(moved)) == (A, B)
        assert type(moved) is type(v)
        assert moved.trainable is trainable
        assert moved.name == v.name
        assert moved.constraint is v.constraint
        moved.assign([5.0, 6.0])
        assert v.numpy().tolist() == [1, 2]

        k = keras.Variable([1.0, 2.0], trainable=trainable, name="mine")
        moved = to_device({"k": k}, B)["k"]
        assert (device_of(k), device_of(moved)) == (A, B)
        assert type(moved) is type(k)
        assert moved.trainable is trainable
        assert moved.path == k.path
        moved.assign([5.0, 6.0])
        assert xdevice.to_numpy(k).tolist() == [1, 2]

    grown = tf.Variable([1.0], shape=tf.TensorShape([None]))
    to_device(grown, B).assign([1.0, 2.0])


def test_parts_on_two_devices_are_mixed():
    with tf.device("/CPU:1"):
        there = tf.ones((1, 2))
    slices = tf.IndexedSlices(there, tf.constant([0]), tf.constant([3, 2]))
    with pytest.raises(xdevice.MixedDeviceError, match="cpu:0 and cpu:1") as error:
        device_of(slices)
    assert error.value.devices == {A, B} == xdevice.devices_of(slices)
    assert device_of(to_device(slices, B)) is B
    with tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"]).scope():
        v = tf.Variable(1.0)
    assert xdevice.devices_of(v) == {A, B}
    with pytest.raises(xdevice.MixedDeviceError, match="cpu:0 and cpu:1"):
        device_of(v)
    with pytest.raises(xdevice.NotSupportedError, match="strategy"):
        to_device(v, A)


def test_a_missing_device_is_never_another():
    x = xdevice.ones(3, device=B)
    with pytest.raises(xdevice.DeviceNotFoundError, match="sees cpu:0, cpu:1"):
        to_device(x, "cpu:2")
    with tf.device("/CPU:2"):
        assert device_of(tf.ones(1)) in (A, B), (
            "TensorFlow took the missing device for another one in silence"
        )


def test_training_goes_on_after_a_move():
    def trained(move):
        keras.utils.set_random_seed(1)
        net = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(8, "tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.1),
                keras.layers.Dense(1),
            ]
        )
        net.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
        x = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
        y = x.sum(1, keepdims=True)
        logs = []
        for step in range(6):
            if step == 2 and move:
                before, inside = net.weights, [w.value for w in net.weights]
                assert to_device(net, B) is net
                assert all(a is b for a, b in zip(before, net.weights, strict=True))
                assert all(a is b.value for a, b in zip(inside, net.weights, strict=True))
                assert device_of(net) is device_of(net.optimizer) is B
            if step == 4 and move:
                assert device_of(to_device({"net": net}, A)["net"]) is A
            logs.append(net.train_on_batch(x, y))
            logs.append(net.evaluate(x, y, verbose=0))
        return logs, net.predict(x, verbose=0), int(net.optimizer.iterations.numpy())

    (logs, out, steps), (their_logs, their_out, their_steps) = trained(True), trained(False)
    assert np.allclose(logs, their_logs, atol=1e-6), (logs, their_logs)
    assert np.allclose(out, their_out, atol=1e-6)
    assert steps == their_steps == 6
    assert logs[-1][0] < logs[0][0]


def test_a_loop_of_ones_own_goes_on_after_a_move():
    def trained(move):
        keras.utils.set_random_seed(1)
        net, optimizer = keras.layers.Dense(1), keras.optimizers.SGD(0.1, momentum=0.9)
        net.build((None, 3))
        for step in range(4):
            if step == 2 and move:
                tree = {"net": net, "optimizer": optimizer, "weights": net.weights}
                moved = to_device(tree, B)
                assert moved["net"] is net
                assert device_of(moved) is B
                assert all(a is b for a, b in zip(moved["weights"], net.weights, strict=True)), (
                    "shared no longer"
                )
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((net(tf.ones((2, 3))) - 1) ** 2)
            grads = tape.gradient(loss, net.trainable_weights)
            optimizer.apply(grads, net.trainable_weights)
        return np.concatenate([np.ravel(w.numpy()) for w in net.weights])

    assert np.allclose(trained(True), trained(False))


def test_a_tf_module_moves_with_its_variables():
    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable([1.0, 2.0], name="w")
            self.tied = self.w
            self.dense = keras.layers.Dense(1)
            self.dense.build((None, 2))

    net = Net()
    w = net.w
    to_device(net, B)
    assert net.w is net.tied is w
    assert device_of(net) is device_of(w) is B
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(net.w**2)
    assert tape.gradient(loss, net.w).numpy().tolist() == [2, 4]
    path = tf.train.Checkpoint(net=net).write(tempfile.mkdtemp() + "/checkpoint")
    w.assign([0.0, 0.0])
    tf.train.Checkpoint(net=net).read(path)
    assert w.numpy().tolist() == [1, 2]
    assert device_of(w) is B
    copied = to_device(net, A, copy=True)
    assert device_of(copied) is A
    assert device_of(net) is B
    assert copied.w is copied.tied
    assert copied.w.numpy().tolist() == [1, 2]


def test_a_traced_models_move_is_refused():
    net = keras.layers.Dense(1)
    net.build((None, 3))

    @tf.function
    def forward(x):
        return net(x)

    forward(tf.ones((1, 3)))
    with pytest.raises(xdevice.NotSupportedError, match="traced"):
        to_device(net, B)
    assert device_of(net) is A
    del forward
    assert device_of(to_device(net, B)) is B

    @tf.function
    def traced_later(x):
        return net(x)

    x = to_device(tf.ones((1, 3)), B)
    assert np.allclose(traced_later(x), net(x))


def test_a_model_on_two_devices():
    with A:
        first = keras.layers.Dense(2, name="first")
        first.build((None, 2))
    with B:
        second = keras.layers.Dense(2, name="second")
        second.build((None, 2))
    net = keras.Sequential([keras.Input((2,)), first, second])
    with pytest.raises(xdevice.MixedDeviceError, match="on cpu:1: "):
        device_of(net)
    copied = to_device(net, A, copy=True)
    assert device_of(copied) is A
    assert xdevice.devices_of(net) == {A, B}
    from xdevice.backends.tensorflow import models

    assert xdevice.devices_of(models.copy_models([net])) == {A, B}
    assert device_of(to_device(net, B)) is B


def trained_pair():
    """Two models that are compiled, trained, and share a layer."""
    shared = keras.layers.Dense(2)
    pair = [keras.Sequential([keras.Input((3,)), shared, keras.layers.Dense(1)]) for _ in range(2)]
    for model in pair:
        model.compile("adam", "mse")
        model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    return pair


def test_models_that_share_a_layer_move_together():
    pair = trained_pair()
    with pytest.raises(xdevice.NotSupportedError, match="copy the model that is compiled with it"):
        to_device(pair[0].optimizer, B, copy=True)
    copied, optimizer = to_device([pair[0], pair[0].optimizer], B, copy=True)
    assert copied.optimizer is optimizer
    assert device_of([copied, optimizer]) is B
    assert device_of(pair) is A
    moved = to_device(pair, B)
    assert device_of(moved) is B
    assert moved[0].layers[0] is moved[1].layers[0]
    before = moved[0].layers[0].kernel.numpy()
    moved[1].fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)
    assert not np.allclose(moved[0].layers[0].kernel.numpy(), before)
    assert device_of(moved) is B
