"""What only TensorFlow and Keras do on virtual GPUs, and about mixing devices; two virtual GPUs are there."""

import tempfile
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe

import xdevice
from xdevice import cpu, device_of, gpu, scope, strict, to_device
from xdevice.virtual.request import ENV, MEMORY, of_environment

EVERYWHERE = (cpu(), gpu(0), gpu(1))
layers = keras.layers


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("tensorflow"):
        xdevice.count()  # settles the devices before the first tensor is made
        yield


def on(device, make):
    with scope(device):
        return make()


def address(x):
    if isinstance(x, tf.Variable):
        x = tf.raw_ops.ReadVariableOp(
            resource=x.handle, dtype=x.dtype
        )  # x.read_value() is a copy in the scope
    return np.asarray(memoryview(x)).ctypes.data


@pytest.fixture
def run(in_a_fork):
    """Run the code in a process of its own, which has asked for nothing yet."""

    def run(code, imported="tensorflow", **environment):
        code = "import xdevice\nxdevice.use('tensorflow')\n" + code
        done = in_a_fork(imported, code, **environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


# ---------------------------------------------------------------- devices


def test_a_virtual_gpu_is_the_logical_cpu_behind_the_cpu_and_all_of_its_names_say_so():
    assert [xdevice.native(d) for d in EVERYWHERE] == ["/CPU:0", "/CPU:1", "/CPU:2"]
    logical = tf.config.list_logical_devices("CPU")
    assert (
        [xdevice.as_device(d) for d in logical]
        == [xdevice.as_device(d.name) for d in logical]
        == list(EVERYWHERE)
    )
    for name in ("/CPU:2", "/cpu:2", "/device:CPU:2", on(gpu(1), lambda: tf.ones(1)).device):
        assert (
            xdevice.as_device(name) is xdevice.as_device(tf.DeviceSpec.from_string(name)) is gpu(1)
        )
    assert xdevice.count("cpu") == 1
    with pytest.raises(
        xdevice.DeviceNotFoundError, match="sees cpu:0, virtual gpu:0, virtual gpu:1"
    ):
        xdevice.native("cpu:2")


def test_the_cpu_is_not_among_the_gpus_peers():
    strategy = tf.distribute.MirroredStrategy()
    assert [xdevice.as_device(name) for name in strategy.extended.worker_devices] == [
        gpu(0),
        gpu(1),
    ]


@pytest.mark.weekly
def test_the_environment_is_heeded_right_after_the_import_of_tensorflow(run):
    code = "import tensorflow as tf; x = tf.constant(0.0); print(xdevice.devices('gpu'))"
    assert run(code, "numpy", **{ENV: "2"}) == "[Device('gpu:0'), Device('gpu:1')]\n"


def test_tensorflows_own_factories_and_layers_take_the_native_device():
    with tf.device(xdevice.native(gpu(1))):
        made = [tf.ones(3), tf.constant([1.0, 2.0]), tf.Variable(1.0), keras.Variable([1.0])]
        made += [tf.random.normal((3,)), tf.range(3), tf.sparse.from_dense([[1.0]])]
        integers, text = tf.constant([1, 2]), tf.constant("a")
        dense = layers.Dense(2)
        dense.build((None, 3))
        made += [dense, dense(tf.ones((1, 3)))]
    assert {device_of(x) for x in made} == {gpu(1)}
    assert device_of(integers) is device_of(text) is cpu(), (
        "as on a real GPU: TensorFlow leaves these to the host"
    )
    assert (
        device_of(xdevice.tensor([1, 2], device=gpu(1)))
        is device_of(to_device(text, gpu(1)))
        is gpu(1)
    )


def test_a_function_computes_where_it_is_called():
    @tf.function
    def double(x):
        return 2 * x

    @tf.function(jit_compile=True)
    def compiled(x):
        return 2 * x

    for device in EVERYWHERE:
        x = xdevice.ones(3, device=device)
        with scope(device):
            assert device_of(double(x)) is device_of(compiled(x)) is device


def test_a_function_that_was_traced_elsewhere_follows_the_scope_of_each_call():
    function = tf.function(lambda: 2 * xdevice.ones(3))
    home = device_of(function())
    with scope(gpu(1)):
        assert device_of(function()) is gpu(1)
    assert device_of(function()) is home


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "string", "float16", "complex64"])
def test_a_move_has_memory_of_its_own_for_every_pair_of_devices(dtype):
    for source in EVERYWHERE:
        x = to_device(
            tf.constant(["a", "b"]) if dtype == "string" else tf.cast([0, 1], dtype), source
        )
        for target in EVERYWHERE:
            moved = to_device(x, target, copy=True if target is source else None)
            assert (device_of(moved), device_of(x), moved.dtype) == (target, source, x.dtype)
            assert (moved.numpy() == x.numpy()).all()
            assert dtype == "string" or address(moved) != address(
                x
            )  # text has no buffer to look at


def test_what_tensorflow_itself_copies_between_them_is_the_same_memory():
    x = tf.ones(100)
    shared = on(gpu(1), lambda: tf.identity(x))
    assert device_of(shared) is gpu(1)
    assert address(shared) == address(x), "TensorFlow copies now: placement.move need not"


def test_variables_models_and_what_holds_tensors_move_into_memory_of_their_own():
    v = on(gpu(0), lambda: tf.Variable(tf.ones(100)))
    for target in EVERYWHERE:
        moved = to_device(v, target, copy=True if target is gpu(0) else None)
        assert device_of(moved) is target
        assert address(moved) != address(v)
        moved.assign_add(tf.ones(100))
        assert v.numpy().max() == 1
    net = on(gpu(0), lambda: keras.Sequential([keras.Input((3,)), layers.Dense(2)]))
    before = {address(w.value) for w in net.weights}
    to_device(net, gpu(1))
    assert device_of(net) is gpu(1)
    assert not before & {address(w.value) for w in net.weights}
    sparse = tf.sparse.from_dense([[1.0, 0.0]])
    assert address(to_device(sparse, gpu(1)).values) != address(sparse.values)


def test_new_tensors_have_memory_of_their_own_and_a_seed_covers_every_device():
    makers = [
        lambda: tf.constant(1.0),
        lambda: tf.zeros((2, 3)),
        lambda: xdevice.full((2,), 1),
        lambda: tf.eye(2),
    ]
    for make in makers:
        assert len({address(on(device, make)) for device in EVERYWHERE for _ in range(2)}) >= len(
            EVERYWHERE
        )
    for device in EVERYWHERE:
        xdevice.seed(3)
        a = xdevice.rand(4, device=device)
        xdevice.seed(3)
        assert np.array_equal(a, xdevice.rand(4, device=device))


def test_gradients_come_back_through_a_move_to_where_they_belong_in_memory_of_their_own():
    x = on(gpu(0), lambda: tf.Variable([1.0, 2.0, 3.0]))
    weight = xdevice.tensor([4.0, 5.0, 6.0], device=gpu(1))
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            moved = to_device(on(gpu(0), lambda: x * 1), gpu(1))
            y = on(gpu(1), lambda: tf.reduce_sum(moved**2 * weight))
        slope = on(gpu(1), lambda: inner.gradient(y, moved))
        back = to_device(slope, gpu(0))
    assert slope.numpy().tolist() == [8, 20, 36]
    gradient = outer.gradient(moved, x, output_gradients=weight)
    assert gradient.numpy().tolist() == [4, 5, 6]
    with tf.GradientTape() as tape:
        source = to_device(weight, gpu(0), copy=True)
        tape.watch(source)
        moved = to_device(source, gpu(1))
    gradient = tape.gradient(moved, source, output_gradients=weight)
    assert device_of(gradient) is gpu(0)
    assert address(gradient) != address(weight)
    assert outer.gradient(back, x).numpy().tolist() == [8, 10, 12]


def test_a_sparse_gradient_comes_back_through_a_move():
    table = xdevice.ones((4, 2), device=gpu(0))
    with tf.GradientTape() as tape:
        tape.watch(table)
        moved = to_device(table, gpu(1))
        rows = on(gpu(1), lambda: tf.gather(moved, [1, 1, 3]))
    gradient = on(gpu(1), lambda: tape.gradient(rows, table))
    assert device_of(gradient) is gpu(0)
    assert tf.convert_to_tensor(gradient).numpy().tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_a_handle_does_not_move_alone():
    for x in (tf.Variable([1.0]).handle, tf.data.Dataset.range(3)._variant_tensor):
        assert to_device(x, "cpu") is x
        for call in (
            lambda x: to_device([x, tf.constant(1.0)], gpu(0)),
            lambda x: to_device(x, "cpu", copy=True),
            xdevice.to_numpy,
            xdevice.tensor,
        ):
            with pytest.raises(xdevice.NotSupportedError, match="is a handle"):
                call(x)


def test_no_memory_figures_are_invented():
    on(gpu(1), lambda: tf.ones(1000))
    found = xdevice.memory_stats(gpu(1))
    assert found["allocated"] is found["peak"] is None
    assert found["total"] > 0


# ---------------------------------------------------------------- training


def lenet():
    return [
        keras.Input((28, 28, 1)),
        layers.Conv2D(6, 5, padding="same", activation="relu"),
        layers.AveragePooling2D(2),
        layers.BatchNormalization(),
        layers.Conv2D(16, 5, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dropout(0.3),
        layers.Dense(10),
    ]


def reader():
    return [
        keras.Input((7,), dtype="int32"),
        layers.Embedding(20, 8),
        layers.LSTM(8),
        layers.Dense(10),
    ]


ROWS = np.random.default_rng(0)
DATA = {
    lenet: ROWS.normal(size=(8, 28, 28, 1)).astype("float32"),
    reader: ROWS.integers(0, 20, (8, 7)),
}
LABELS = ROWS.integers(0, 10, 8)


def stepping(net, optimizer, loss):
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, net(x, training=True))
        optimizer.apply(tape.gradient(value, net.trainable_variables), net.trainable_variables)
        return value

    return step


def eager(net, optimizer, loss, x, y):
    step = stepping(net, optimizer, loss)
    return [float(step(xdevice.tensor(x), xdevice.tensor(y))) for _ in range(2)]


def traced(net, optimizer, loss, x, y):
    step = tf.function(stepping(net, optimizer, loss), reduce_retracing=True)
    return [float(step(xdevice.tensor(x), xdevice.tensor(y))) for _ in range(2)]


def fitted(net, optimizer, loss, x, y):
    net.compile(optimizer, loss, metrics=["accuracy"])
    losses = net.fit(x, y, epochs=2, verbose=0, shuffle=False).history["loss"]
    return [*losses, *net.evaluate(x, y, verbose=0), *net.predict(x, verbose=0).ravel()]


def trained(device, way, network, optimizer):
    keras.utils.set_random_seed(1)
    with scope(device):
        net = keras.Sequential(network())
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        values = way(net, optimizer(), loss, DATA[network], LABELS)
    return net, values, [weight.numpy() for weight in net.weights]


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(
            lambda: keras.optimizers.SGD(0.1, momentum=0.9), id="SGD", marks=pytest.mark.weekly
        ),
        keras.optimizers.Adam,
    ],
)
@pytest.mark.parametrize("network", [lenet, reader])
@pytest.mark.parametrize(
    "way",
    [
        eager,
        pytest.param(traced, marks=pytest.mark.weekly),
        pytest.param(fitted, marks=pytest.mark.weekly),
    ],
)
def test_training_equals_the_cpus_to_the_last_bit_and_mixes_nothing(way, network, optimizer):
    with strict():
        net, values, weights = trained(gpu(1), way, network, optimizer)
    assert xdevice.devices_of(net) == {gpu(1)}
    _, theirs, their_weights = trained(cpu(), way, network, optimizer)
    assert values == theirs
    assert all(np.array_equal(a, b) for a, b in zip(weights, their_weights, strict=True))


@pytest.mark.weekly
def test_a_model_trained_on_one_goes_on_training_on_another():
    def steps(devices):
        keras.utils.set_random_seed(1)
        net, optimizer = keras.Sequential(lenet()), keras.optimizers.Adam()
        for device in devices:
            to_device({"net": net, "optimizer": optimizer}, device)
            with scope(device), strict():
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                eager(net, optimizer, loss, DATA[lenet], LABELS)
        return [weight.numpy() for weight in net.weights]

    moved, stayed = steps([gpu(0), gpu(1), cpu()]), steps([cpu()] * 3)
    assert all(np.array_equal(a, b) for a, b in zip(moved, stayed, strict=True))


def test_gradients_of_a_network_over_both_devices_are_computed_beside_its_layers():
    def loss(first, second):
        here, there = device_of(first), device_of(second)
        with scope(here):
            hidden = tf.split(tf.nn.relu(tf.matmul(rows, first)), 4, axis=1)
            hidden = tf.concat(hidden[:3], 1)  # one is never used
        hidden = to_device(hidden, there)
        with scope(there):
            a, _, b = tf.split(tf.nn.softmax(tf.matmul(hidden, second)), 3, axis=1)
            return tf.reduce_mean(a * b)

    def gradients(here, there):
        nonlocal rows
        rows = xdevice.tensor(DATA[reader], dtype="float32", device=here)
        weights = [xdevice.tensor(w, device=d) for w, d in zip(numbers, (here, there), strict=True)]
        return xdevice.value_and_grad(loss, (0, 1))(*weights)

    rows, numbers = None, [ROWS.normal(size=shape).astype("float32") for shape in ((7, 8), (6, 6))]
    with strict():
        value, found = gradients(gpu(0), gpu(1))
    assert [device_of(g) for g in (value, *found)] == [gpu(1), gpu(0), gpu(1)]
    expected, theirs = gradients(cpu(), cpu())
    assert np.array_equal(value, expected)
    assert all(np.array_equal(a, b) for a, b in zip(found, theirs, strict=True))


@pytest.mark.weekly
def test_a_mirrored_strategy_trains_over_both():
    def losses(strategy):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            net = keras.Sequential([keras.Input((7,)), layers.Dense(8, "relu"), layers.Dense(1)])
            net.compile("sgd", "mse")
        x = DATA[reader].astype("float32")
        return net, net.fit(x, x[:, :1], epochs=3, batch_size=8, verbose=0, shuffle=False).history[
            "loss"
        ]

    strategy = tf.distribute.MirroredStrategy([xdevice.native(d) for d in (gpu(0), gpu(1))])
    with strategy.scope(), strict():
        net, values = losses(strategy)
    assert xdevice.devices_of(net) == {gpu(0), gpu(1)}
    assert np.allclose(
        values, losses(tf.distribute.OneDeviceStrategy(xdevice.native(cpu())))[1], rtol=1e-6
    )


# ---------------------------------------------------------------- mixing


class Tensors:
    """Tensors of each kind on each device: `cpu`, `one` on gpu:0, `two` on gpu:1, and a variable of either sort."""

    def __init__(self):
        self.cpu, self.one, self.two = (
            xdevice.ones((2, 3), device=device) for device in EVERYWHERE
        )
        self.variable = on(gpu(1), lambda: tf.Variable(tf.ones((2, 3))))
        self.keras = on(gpu(1), lambda: keras.Variable(tf.ones((2, 3))))
        self.scalars = [xdevice.tensor(2.0, device=device) for device in EVERYWHERE]
        self.rows = [xdevice.tensor([0, 1], device=device) for device in EVERYWHERE]
        self.labels = tf.constant([0, 1])

    def multiply(self):
        @tf.function
        def multiply(x):
            return tf.reduce_sum(x * self.variable)

        return multiply


MIXED = {
    "AddV2": lambda t: t.one + t.two,
    "AddV2 ": lambda t: t.cpu + t.two,
    "Mul": lambda t: t.variable * t.one,
    "Mul ": lambda t: tf.multiply(t.one, t.keras),
    "Sub": lambda t: tf.raw_ops.Sub(x=t.one, y=t.two),
    "MatMul": lambda t: tf.matmul(t.one, t.two, transpose_b=True),
    "Pack": lambda t: tf.stack([t.two, t.two, t.one]),
    "ConcatV2": lambda t: tf.concat([t.cpu, t.two], 0),
    "AddN": lambda t: tf.add_n([t.one, t.two]),
    "GatherV2": lambda t: tf.gather(t.two, t.labels),
    "SparseSoftmax": lambda t: tf.nn.sparse_softmax_cross_entropy_with_logits(t.labels, t.two),
    "AddV2  ": lambda t: t.scalars[1] + t.scalars[2],
    "AddV2   ": lambda t: t.rows[1] + t.rows[2],
    "AddV2    ": lambda t: t.rows[0] + t.rows[2],
    "AssignAddVariableOp": lambda t: t.variable.assign_add(t.one),
    "tf.function 'multiply'": lambda t: t.multiply()(t.one),
    "the gradient of tf.function 'multiply'": lambda t: gradient_of_function(t),
}


def gradient_of_function(t):
    with tf.GradientTape() as tape:
        value = on(gpu(1), lambda: t.multiply()(t.two))
        tape.watch(t.two)
        value = on(gpu(1), lambda: t.multiply()(t.two))
    return tape.gradient(value, t.two, output_gradients=t.scalars[1])


@pytest.mark.parametrize("name", MIXED)
def test_an_operation_on_tensors_of_two_devices_is_an_error_that_names_it(name):
    tensors = Tensors()
    with strict(), pytest.raises(xdevice.MixedDeviceError) as error:
        MIXED[name](tensors)
    assert str(error.value).startswith(name.strip())
    assert len(error.value.devices) == 2
    assert tensors.variable.numpy().max() == 1, "the error came after the work"
    MIXED[name](tensors)


def test_it_is_an_error_in_every_thread_and_in_the_backward_pass_and_only_within_the_block():
    t = Tensors()
    before = [getattr(pywrap_tfe, name) for name in dir(pywrap_tfe) if name.startswith("TFE_Py_")]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([t.one, t.two])
        y = on(gpu(1), lambda: tf.identity(t.one) * t.two)
    found = []

    def work():
        try:
            _ = t.one + t.two
        except xdevice.MixedDeviceError as error:
            found.append(error)

    with strict():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with pytest.raises(xdevice.MixedDeviceError, match="Mul"):
            tape.gradient(y, [t.one, t.two])
        with scope(gpu(1)):
            tape.gradient(y, [t.one, t.two])
    assert found
    work()
    assert len(found) == 1
    assert [
        getattr(pywrap_tfe, name) for name in dir(pywrap_tfe) if name.startswith("TFE_Py_")
    ] == before


def test_an_operation_that_strays_because_no_scope_is_open_is_told_so():
    t = Tensors()
    with (
        strict(),
        pytest.raises(xdevice.MixedDeviceError, match="outside any scope and so run on cpu:0"),
    ):
        _ = t.two * t.two + t.two
    with strict(), scope(gpu(1)):
        assert device_of(t.two * t.two + t.two) is gpu(1)


LEAVING = {
    "Mul": lambda x: x * x,
    "RealDiv": lambda x: x / 2,
    "Sum": tf.reduce_sum,
    "StridedSlice": lambda x: x[0],
    "ConcatV2": lambda x: tf.concat([x, x], 0),
}


@pytest.mark.parametrize("name", LEAVING)
def test_an_operation_that_leaves_the_device_of_its_operands_is_an_error(name):
    x = xdevice.ones((2, 3), device=gpu(1))
    with strict(), pytest.raises(xdevice.MixedDeviceError) as error:
        LEAVING[name](x)
    said = "outside any scope and so run on cpu:0, was given tensors on gpu:1; enter their device, with scope('gpu:1')"
    assert str(error.value) == f"{name}, {said}"
    assert error.value.devices == {cpu(), gpu(1)}
    with strict(), gpu(1):
        assert device_of(LEAVING[name](x)) is gpu(1)


def test_functions_of_a_namespace_and_of_creation_stay_with_their_operands():
    x = xdevice.ones((2, 3), device=gpu(1))
    xp = xdevice.namespace(x)
    with strict():
        made = [
            xp.divide(x, x),
            xp.add(1, x),
            xp.sum(x),
            xp.std(x),
            xp.linalg.qr(x)[0],
            *xp.unstack(x),
            xp.clip(x, 0, 1),
        ]
        made += [
            xdevice.zeros((2,), like=x),
            xdevice.rand((2,), like=x),
            xp.full_like(x, 2.0),
            xp.astype(x, "int32"),
        ]
    assert {device_of(each) for each in made[:-1]} == {gpu(1)}


ALONE = [
    lambda x: 2 * x,
    lambda x: x**2.0,
    lambda x: x > 0,
    lambda x: tf.where(x > 0, x, 0.0) if device_of(x > 0) is device_of(x) else x,
    lambda x: tf.reduce_sum(x),
    lambda x: tf.reduce_mean(x, axis=[0, 1]),
    lambda x: tf.reshape(x, [-1]),
    lambda x: x[0, 1:],
    lambda x: x[..., tf.newaxis],
    lambda x: tf.gather(x, [1, 0]),
    lambda x: tf.gather(x, 1, axis=1),
    lambda x: tf.pad(x, [[1, 1], [2, 2]]),
    lambda x: tf.transpose(x, [1, 0]),
    lambda x: tf.tile(x, [2, 2]),
    lambda x: tf.split(x, [1, 2], axis=1),
    lambda x: tf.slice(x, [0, 0], [1, 1]),
    lambda x: tf.concat([x, x], 1),
    lambda x: tf.stack([x, x]),
    lambda x: tf.broadcast_to(x, (4, 2, 3)),
    lambda x: tf.clip_by_value(x, 0.0, 1.0),
    lambda x: tf.argmax(x, -1),
    lambda x: tf.math.top_k(x, 2),
    lambda x: tf.roll(x, 1, 0),
    lambda x: tf.cumsum(x, 1),
    lambda x: tf.image.resize(x[None, :, :, None], (4, 4)),
    lambda x: tf.strings.as_string(x),
    lambda x: str(x) and x.numpy(),
]


def test_operands_on_one_device_are_fine_in_any_scope_and_pythons_numbers_are_nobodys_tensors():
    x = xdevice.ones((2, 3), device=gpu(1))
    with strict():
        for operation in ALONE:
            for device in EVERYWHERE:
                on(device, lambda: operation(x))  # noqa: B023  (called at once)


def test_copies_by_xdevice_and_by_tensorflows_own_words_are_allowed():
    t = Tensors()
    with strict():
        assert device_of(to_device([t.one, t.cpu, t.two], gpu(1))) is gpu(1)
        assert device_of(on(gpu(1), lambda: tf.identity(t.one))) is gpu(1)
        assert device_of(on(gpu(1), lambda: tf.Variable(t.one))) is gpu(1)
        t.variable.assign(on(gpu(0), lambda: 2 * t.one))
        assert t.variable.numpy().max() == 2
        assert device_of(t.variable) is gpu(1)
        net = on(gpu(1), lambda: keras.Sequential([keras.Input((3,)), layers.Dense(2)]))
        checkpoint = tf.train.Checkpoint(net=net, other=tf.Variable(t.cpu))
        checkpoint.read(checkpoint.write(tempfile.mkdtemp() + "/checkpoint"))
        net.set_weights(net.get_weights())
        for batch in tf.data.Dataset.from_tensor_slices(np.ones((4, 3), "float32")).batch(2):
            on(gpu(1), lambda: net(to_device(batch, gpu(1))))  # noqa: B023  (called at once)
        assert on(gpu(1), lambda: t.scalars[0] * t.two) is not None, (
            "a number on the CPU goes anywhere"
        )
        integers = on(gpu(0), lambda: tf.constant([[1, 2, 3]] * 2))
        assert device_of(integers) is cpu(), (
            "the host's, so nobody's who would be copied from a GPU"
        )
        assert device_of(integers * integers + tf.ones((2, 3), tf.int32)) is cpu()


def test_what_is_decided_inside_a_function_is_not_seen():
    @tf.function
    def inside(x):
        with tf.device(xdevice.native(gpu(0))):
            y = 2 * x
        with tf.device(xdevice.native(gpu(1))):
            return x + y

    with strict(), scope(gpu(1)):
        assert device_of(inside(xdevice.ones(3))) is gpu(1)


def test_small_integers_of_the_wrong_device_are_data_where_an_operation_takes_data():
    t = Tensors()
    with (
        strict(),
        scope(gpu(1)),
        pytest.raises(xdevice.MixedDeviceError, match=r"GatherV2.*cpu:0 and gpu:1"),
    ):
        tf.gather(t.two, t.rows[0])
    with strict(), scope(gpu(1)):
        assert tf.reshape(t.two, tf.reshape(t.rows[0] * 0 + [3, 2], [-1])).shape == (3, 2)


# ---------------------------------------------------------------- asking for them


def test_asked_for_after_the_import_but_before_the_first_tensor_they_are_there_and_again_is_nothing_new(
    run,
):
    out = run("""
import tensorflow as tf
assert xdevice.virtual_gpus(3) == xdevice.virtual_gpus(3) == xdevice.devices("gpu")
with tf.device(xdevice.native("gpu:2")):
    print(repr(xdevice.device_of(tf.ones(1))), *xdevice.devices())
""")
    assert out.strip() == "Device('gpu:2') cpu:0 gpu:0 gpu:1 gpu:2"


@pytest.mark.weekly
def test_another_number_is_an_error_and_to_hide_real_gpus_where_there_are_none_is_not(run):
    run("""
assert len(xdevice.virtual_gpus(2, force=True)) == 2
try:
    xdevice.virtual_gpus(3)
except xdevice.VirtualDeviceError:
    assert xdevice.count("gpu") == 2
else:
    raise AssertionError
""")


SPLIT = (
    "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)"
)


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("tf.ones(1)", "too late"),
        (SPLIT, "split already"),
        ("tf.config.set_visible_devices([], 'CPU')", "hidden"),
    ],
)
def test_too_late_or_in_the_way_of_the_users_own_devices_is_an_error_and_changes_nothing(
    run, before, says
):
    out = run(f"""
import tensorflow as tf
cpu = tf.config.list_physical_devices('CPU')[0]
{before}
counted = xdevice.count('cpu')
try:
    xdevice.virtual_gpus(2)
except xdevice.VirtualDeviceError as error:
    print(error)
assert (xdevice.count('cpu'), xdevice.count('gpu')) == (counted, 0)
""")
    assert says in out


# ---------------------------------------------------------------- variables and models that belong together


def variable(kind):
    made = tf.Variable([1.0, 2.0])
    return keras.Variable(made) if kind == "keras" else made


@pytest.mark.parametrize("kind", ["tensorflow", "keras"])
@pytest.mark.parametrize("forced", [None, True])
def test_gradients_flow_through_the_move_of_a_variable(kind, forced):
    start = variable(kind)
    inner = start.value if kind == "keras" else start
    with tf.GradientTape() as tape:
        moved = to_device({"v": start}, gpu(1), copy=forced)["v"]
        again = to_device(moved, gpu(0), copy=forced)
        loss = (
            tf.reduce_sum(moved * moved)
            + tf.reduce_sum(tf.convert_to_tensor(again))
            + tf.reduce_sum(start)
        )
    gradient = tape.gradient(loss, inner)
    assert gradient.numpy().tolist() == [4, 6]
    assert device_of(gradient) is device_of(start) is cpu()
    assert type(moved) is type(start)


def test_a_sparse_gradient_flows_through_the_move_of_a_variable():
    table = tf.Variable([[1.0], [2.0], [3.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(to_device(table, gpu(1)), [0, 2, 2]))
    gradient = tape.gradient(loss, table)
    assert tf.convert_to_tensor(gradient).numpy().tolist() == [[1], [0], [2]]
    assert device_of(gradient) is cpu()


def two_models():
    shared = keras.layers.Dense(2)
    first = keras.Sequential([keras.Input((2,)), shared])
    second = keras.Sequential(
        [keras.Input((2,)), shared, keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    return first, second


@pytest.mark.weekly
def test_copies_of_models_share_the_layers_that_the_models_share():
    first, second = two_models()
    inputs = keras.Input((2,))
    both = keras.Model(inputs, second(first(inputs)))
    second.compile("adam", "mse")
    second.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
    for models in ([first, second], [both, second, first], [second, first.layers[0]]):
        copied = to_device(models, gpu(1), copy=True)
        weights = [w for model in copied for w in model.weights]
        originals = [w for model in models for w in model.weights]
        assert device_of(copied) is gpu(1)
        assert not {id(w) for w in weights} & {id(w) for w in originals}
        assert len({id(w) for w in weights}) == len({id(w) for w in originals})
        assert all(np.array_equal(a, b) for a, b in zip(weights, originals, strict=True))
    one, other = to_device([first, second], gpu(1), copy=True)
    assert one.layers[0] is other.layers[0]
    replicas = xdevice.replicate([first, second], ["gpu:0", "gpu:1"])
    assert all(a.layers[0] is b.layers[0] for a, b in replicas)


@pytest.mark.weekly
def test_the_copy_of_a_models_optimizer_is_the_optimizer_of_its_copy():
    _, model = two_models()
    model.compile("adam", "mse")
    model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
    copied = to_device({"model": model, "optimizer": model.optimizer}, gpu(0), copy=True)
    assert copied["optimizer"] is copied["model"].optimizer
    assert device_of(copied["optimizer"]) is gpu(0)
    pairs = zip(copied["optimizer"].variables, model.optimizer.variables, strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_copies_of_modules_share_the_variables_that_the_modules_share():
    first, second = tf.Module(), tf.Module()
    first.w = second.w = tf.Variable([1.0])
    one, other = to_device([first, second], gpu(1), copy=True)
    assert one.w is other.w
    assert one.w is not first.w


@pytest.mark.weekly
def test_a_variable_beside_its_model_stays_the_models():
    model = two_models()[1]
    model.compile("adam", "mse")
    model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
    module = tf.Module()
    module.w = tf.Variable([1.0])
    kernel, slots = model.layers[0].kernel, model.optimizer.variables
    tree = {
        "slots": list(slots),
        "inner": kernel.value,
        "kernel": kernel,
        "w": module.w,
        "models": [model, module],
    }
    moved = to_device(tree, gpu(1))
    assert device_of(moved) is gpu(1)
    assert moved["kernel"] is model.layers[0].kernel
    assert moved["inner"] is model.layers[0].kernel.value
    assert moved["w"] is module.w
    assert all(a is b for a, b in zip(moved["slots"], slots, strict=True))


def test_a_limit_of_memory_raises_since_it_cannot_be_kept(monkeypatch):
    monkeypatch.setenv(MEMORY, "64MiB")
    with pytest.raises(
        xdevice.NotSupportedError, match=f"{MEMORY} asks for a limit, and tensorflow cannot"
    ):
        xdevice.backend("tensorflow").virtual.enable(of_environment()._replace(number=2))
