"""What only TensorFlow and Keras do."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

import xdevice
from xdevice import Device, cpu, device_of, to_device
from xdevice.framework.ownership import known_of


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("tensorflow"):
        yield


def run(code):
    """Run the code in a process of its own, since devices are settled before the first tensor is made."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.weekly
def test_on_two_cpus():
    """The tests of two_cpus.py, in one process: devices are settled before the first tensor is made."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--xdevice-backend=tensorflow",
    ]
    file = Path(__file__).with_name("two_cpus.py")
    done = subprocess.run(
        [*command, file], capture_output=True, text=True, timeout=280, cwd=file.parent, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "passed" in done.stdout, done.stdout[-6000:] + done.stderr[-3000:]


# ---------------------------------------------------------------- what is whose


def test_every_kind_of_object_has_its_role():
    categories = {
        "tensor": [
            tf.ones(1),
            tf.Variable(1.0),
            keras.Variable([1.0]),
            keras.Input((3,)),
            tf.ragged.constant([[1], [2, 3]]),
            tf.sparse.from_dense([[1, 0]]),
            tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0])),
        ],
        "model": [
            tf.Module(),
            keras.layers.Dense(2),
            keras.Sequential(),
            keras.optimizers.SGD(),
            keras.metrics.Mean(),
        ],
        "device": [
            tf.DeviceSpec(device_type="GPU"),
            tf.config.list_physical_devices("CPU")[0],
            tf.config.list_logical_devices("CPU")[0],
        ],
    }
    for category, objects in categories.items():
        for obj in objects:
            owned = known_of(type(obj))
            assert (owned.backend, owned.category) == ("tensorflow", category), type(obj)


def test_without_values_it_is_no_tensor():
    for obj in (
        tf.data.Dataset.range(3),
        tf.TensorArray(tf.float32, 3),
        tf.float32,
        tf.TensorShape([2]),
    ):
        owned = known_of(type(obj))
        assert owned.backend is None or owned.category == "data", type(obj)


# ---------------------------------------------------------------- devices


def test_importing_and_counting_start_nothing():
    out = run("""
import os
before = dict(os.environ)
import tensorflow as tf
settings = lambda: (tf.config.get_soft_device_placement(), tf.config.experimental.get_device_policy())
theirs, environment = settings(), dict(os.environ)
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
import xdevice
xdevice.use("tensorflow")
counts = [xdevice.count(kind) for kind in ("cpu", "gpu", "tpu", "quantum")]
xdevice.devices(), xdevice.try_gpu(), xdevice.native("cpu"), xdevice.synchronize(), xdevice.properties("cpu")
xdevice.memory_stats("cpu"), xdevice.as_device(tf.config.list_physical_devices("CPU")[0])
assert not context.context()._initialized, "the runtime was started"
tf.ones(1)
assert counts == [xdevice.count(kind) for kind in ("cpu", "gpu", "tpu", "quantum")]
assert settings() == theirs and dict(os.environ) == environment
print(counts)
""")
    assert out.startswith("[1, 0, 0, 0]") or xdevice.num_gpus()


@pytest.mark.weekly
def test_a_hidden_device_is_not_named():
    run("""
import tensorflow as tf
import xdevice
xdevice.use("tensorflow")
tf.config.set_visible_devices([], "CPU")
try:
    xdevice.as_device(tf.config.list_physical_devices("CPU")[0])
except xdevice.DeviceNotFoundError as error:
    assert "hidden" in str(error)
else:
    raise AssertionError
""")


def test_a_spec_without_an_index_is_the_first():
    assert xdevice.native("cpu") == "/CPU:0"
    with tf.device(xdevice.native("cpu")):
        assert device_of(tf.ones(1)) is cpu()
    assert xdevice.as_device(tf.DeviceSpec(device_type="GPU")) == xdevice.gpu(0)
    full = tf.DeviceSpec.from_string("/job:localhost/replica:0/task:0/device:GPU:12")
    assert xdevice.as_device(full) == xdevice.gpu(12)
    with pytest.raises(xdevice.DeviceTypeError, match="no device type"):
        xdevice.as_device(tf.DeviceSpec(job="worker"))


def test_tensorflow_still_falls_back_in_silence():
    missing = xdevice.count("gpu")
    with tf.device(f"/GPU:{missing}"):
        assert device_of(tf.ones(1)) is not Device("gpu", missing), (
            "TensorFlow raises by itself now"
        )
    with pytest.raises(xdevice.DeviceNotFoundError), xdevice.scope(xdevice.gpu(missing)):
        pass


# ---------------------------------------------------------------- where tensors are


def test_nothing_symbolic_has_a_place():
    seen = []

    @tf.function
    def graph(x):
        for symbol in (x, x + 1, tf.constant(1), tf.IndexedSlices(x, tf.constant([0]))):
            with pytest.raises(xdevice.UnknownPlacementError, match="symbolic"):
                xdevice.devices_of(symbol)
            with pytest.raises(xdevice.UnknownPlacementError, match="as device="):
                _ = device_of(symbol).kind
            assert tuple(xdevice.zeros(2, device=device_of(symbol)).shape) == (2,)
            seen.append(symbol)
        return x

    graph(tf.ones((1, 2)))
    assert len(seen) == 4
    with pytest.raises(xdevice.UnknownPlacementError, match="symbolic"):
        device_of(keras.Input((3,)))
    with (
        tf.Graph().as_default(),
        tf.device("/CPU:0"),
        pytest.raises(xdevice.UnknownPlacementError, match="symbolic"),
    ):
        device_of(tf.compat.v1.get_variable("v", (1,)))


def test_outside_tensors_do_not_move_in_a_graph():
    outside, variable = tf.ones(2), tf.Variable(1.0)
    checked = []

    @tf.function
    def graph():
        assert device_of(outside) is device_of(variable) is cpu()
        for use in (
            lambda: to_device(outside, "cpu", copy=True),
            lambda: to_device(variable, "cpu", copy=True),
        ):
            with pytest.raises(xdevice.NotSupportedError, match="while tracing"):
                use()
        with pytest.raises(xdevice.UnknownPlacementError, match="read it outside"):
            xdevice.to_numpy(variable)
        xdevice.synchronize()
        checked.append(True)
        return tf.constant(1)

    graph()
    assert checked


def test_int32_and_text_are_where_their_memory_is():
    for x in (tf.constant([1, 2]), tf.constant(["a"])):
        assert device_of(x) == xdevice.as_device(x.backing_device)


def test_sparse_and_ragged_have_a_place():
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    sparse = tf.sparse.from_dense([[1.0, 0.0]])
    slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]), tf.constant([3, 2]))
    for x, dense in ((ragged, "to_tensor"), (sparse, "to_dense"), (slices, "convert_to_tensor")):
        assert device_of(x) is cpu()
        assert type(to_device(x, "cpu", copy=True)) is type(x)
        with pytest.raises(xdevice.NotSupportedError, match=dense):
            xdevice.to_numpy(x)
    assert to_device(ragged, "cpu", copy=True).to_list() == ragged.to_list()


# ---------------------------------------------------------------- copies and values


def address(x):
    return np.asarray(memoryview(x)).ctypes.data


def test_a_copy_has_memory_of_its_own():
    x = tf.ones(100)
    assert address(tf.identity(x)) == address(x), "tf.identity copies now: use it in placement.copy"
    assert address(to_device(x, "cpu", copy=True)) != address(x)
    v = tf.Variable(x)
    assert address(to_device(v, "cpu", copy=True).read_value()) != address(v.read_value())
    assert address(xdevice.tensor(x)) != address(x)
    assert address(xdevice.tensor(x, dtype="float32")) != address(x)


def test_a_numpy_array_is_always_copied():
    room = np.zeros(4096 + 64, dtype="uint8")
    for shift in range(0, 64, 4):
        data = room[shift : shift + 4096].view("float32")
        made = xdevice.tensor(data)
        data[:] = 7
        assert not xdevice.to_numpy(made).any()
        data[:] = 0
    assert xdevice.tensor(np.ones(2)).dtype == tf.float64
    assert xdevice.tensor(np.arange(3)).dtype == tf.int64


def test_numbers_are_converted_as_numpy_does_and_exactly():
    assert xdevice.to_numpy(xdevice.tensor([0.1], dtype="float64"))[0] == 0.1
    assert xdevice.to_numpy(xdevice.tensor([1.5, -1.5], dtype="int32")).tolist() == [1, -1]
    assert xdevice.to_numpy(xdevice.tensor([1, 0], dtype=bool)).tolist() == [True, False]
    assert xdevice.to_numpy(xdevice.arange(5, dtype="uint8")).tolist() == [0, 1, 2, 3, 4]
    assert xdevice.to_numpy(xdevice.arange(2**40, 2**40 + 2)).tolist() == [2**40, 2**40 + 1]
    assert xdevice.arange(3).dtype == tf.int32
    assert xdevice.arange(0, 1, 0.5).dtype == tf.float32
    assert xdevice.full((2,), True).dtype == tf.bool


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
def test_no_random_numbers_of_odd_dtypes(dtype):
    for make in (xdevice.rand, xdevice.randn):
        with pytest.raises(xdevice.ArgumentError, match="random numbers are real"):
            make((2,), dtype=dtype)


def test_text_and_endless_sizes_are_errors():
    for data in ("text", ["a"], np.array(["a"])):
        with pytest.raises(xdevice.ArgumentError, match="not a numeric dtype"):
            xdevice.tensor(data)
    with pytest.raises(xdevice.ArgumentError):
        xdevice.zeros((2**40, 2**40))
    with pytest.raises(xdevice.ArgumentError):
        xdevice.full((2,), [1, 2])
    with pytest.raises(xdevice.ArgumentError):
        xdevice.zeros(1, dtype="string")


def test_values_read_back_are_ours_to_write():
    for x in (
        tf.ones(()),
        tf.ones(3),
        tf.Variable(1.0),
        keras.Variable([1.0]),
        tf.ones(2, tf.bfloat16),
    ):
        array = xdevice.to_numpy(x)
        assert type(array) is np.ndarray
        array[...] = 5
        assert (xdevice.to_numpy(x) == 1).all()
    assert xdevice.to_numpy(tf.ones(2, tf.bfloat16)).dtype.name == "bfloat16"


def test_a_copy_has_gradients_a_new_tensor_none():
    v = tf.Variable([1.0, 2.0])
    with tf.GradientTape(persistent=True) as tape:
        copied = tf.reduce_sum(to_device(v * 1, "cpu", copy=True) ** 2)
        made = tf.reduce_sum(xdevice.tensor(v * 1) ** 2)
    assert tape.gradient(copied, v).numpy().tolist() == [2, 4]
    assert tape.gradient(made, v) is None


# ---------------------------------------------------------------- models


def test_a_tf_modules_keras_parts_are_found():
    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable(1.0)
            self.parts = [keras.layers.Dense(2), {"bias": keras.Variable([1.0])}]

    net = Net()
    with pytest.raises(xdevice.UnknownPlacementError, match="not built"):
        device_of(net)
    net.parts[0].build((None, 3))
    assert device_of(net) is cpu()
    names = {name.split(".")[0] for name, _ in xdevice.backend().models.tensors_of(net)}
    assert names == {"scale", "parts"}
    assert len(list(xdevice.backend().models.tensors_of(net))) == 4
    with pytest.raises(xdevice.NotATensorError, match="no parameters"):
        device_of(tf.Module())


def test_a_model_says_how_it_gets_built():
    for model in (
        keras.layers.Dense(2),
        keras.Sequential([keras.layers.Dense(2)]),
        {"net": keras.layers.LSTM(2)},
    ):
        with pytest.raises(xdevice.UnknownPlacementError, match=r"build.*inside scope\(device\)"):
            device_of(model)


def test_a_copied_model_keeps_its_optimiser():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    copied = to_device(model, "cpu", copy=True)
    assert int(copied.optimizer.iterations.numpy()) == 1
    copied.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 1

    class Mine(keras.Model):
        def __init__(self, width):
            super().__init__()
            self.dense = keras.layers.Dense(width)

        def call(self, x):
            return self.dense(x)

    mine = Mine(2)
    mine(tf.ones((1, 3)))
    with pytest.raises(xdevice.NotSupportedError, match="get_config"):
        to_device(mine, "cpu", copy=True)


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[8,8]"),
        tf.errors.InternalError(None, None, "Dst tensor is not initialized."),
        tf.errors.InternalError(None, None, "Failed: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        tf.errors.InternalError(None, None, "CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_all_of_its_words_for_no_memory_are_known(error):
    assert xdevice.is_out_of_memory(error)


def test_its_other_errors_are_not_about_memory():
    assert not xdevice.is_out_of_memory(
        tf.errors.InternalError(None, None, "Blas GEMM launch failed")
    )
    message = "Received message larger than max (5 vs. 4)"
    assert not xdevice.is_out_of_memory(tf.errors.ResourceExhaustedError(None, None, message))


def test_replicas_of_variables_are_variables():
    w, x = tf.Variable([[1.0], [2.0]]), tf.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    replicas = xdevice.replicate([w], ["cpu", "cpu"])
    assert all(isinstance(replica[0], tf.Variable) for replica in replicas)
    loss = tf.function(lambda ws, rows: tf.reduce_mean((rows @ ws[0]) ** 2))
    value, gradients = xdevice.data_parallel(loss, ["cpu", "cpu"])(replicas, x)
    assert np.isclose(value, (1 + 4 + 9) / 3)
    for replica, gradient in zip(replicas, gradients, strict=True):
        replica[0].assign_sub(gradient[0])
    assert np.allclose(replicas[0][0], replicas[1][0])
    assert w.numpy().tolist() == [[1], [2]]


def test_compiled_gradients_compile_once():
    graphs = []

    @tf.function
    def loss(w, x):
        graphs.append(tf.compat.v1.get_default_graph())
        return tf.reduce_sum(w["w"] * w["w"] * x)

    step = xdevice.value_and_grad(loss)
    for number in (1.0, 2.0):
        value, gradients = step(
            {"w": tf.constant([3.0]), "unused": tf.ones(2)}, tf.constant([number])
        )
        assert value.numpy() == 9 * number
        assert gradients["w"].numpy().tolist() == [6 * number]
        assert gradients["unused"].numpy().tolist() == [0, 0]
    assert len(graphs) == 1
    with pytest.raises(xdevice.ArgumentError, match=r"^fn returned a tensor of shape \(2,\)"):
        xdevice.value_and_grad(tf.function(lambda w: w))(tf.ones(2))


def test_no_seed_while_traced():
    @tf.function(autograph=False)
    def draw():
        xdevice.seed(1)
        return xdevice.rand(2)

    with pytest.raises(xdevice.NotSupportedError, match="call it outside"):
        draw()


class Pair(tf.experimental.ExtensionType):
    a: tf.Tensor
    n: int = 3


class Module(tf.Module):
    def __init__(self):
        self.d, self.l = {"a": tf.constant([1.0, 2.0])}, [tf.constant([3.0, 4.0])]


def test_extension_types_and_containers_of_modules_are_opened():
    module = Module()
    tree = [Pair(tf.ones(2)), module.d, module.l]
    moved = xdevice.to_device(tree, "cpu", copy=True)
    assert list(map(type, moved)) == list(map(type, tree))
    assert moved[0].a is not tree[0].a
    assert moved[0].n == 3
    assert moved[1]["a"].numpy().tolist() == [1, 2]
    assert moved[2][0].numpy().tolist() == [3, 4]
    first, second = xdevice.split_batch(tree, ["cpu", "cpu"])
    assert (first[0].a.shape, second[1]["a"].numpy().tolist(), second[2][0].numpy().tolist()) == (
        (1,),
        [2],
        [4],
    )


def test_sparse_and_ragged_tensors_are_split_by_rows_and_else_refused_by_name(tmp_path):
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0], [], [4.0]])
    assert [part.to_list() for part in xdevice.split_batch(ragged, ["cpu"] * 2)] == [
        [[1], [2, 3]],
        [[], [4]],
    ]
    sparse = tf.sparse.from_dense(tf.eye(4))
    parts = xdevice.split_batch(sparse, ["cpu"] * 2)
    assert (
        tf.concat([tf.sparse.to_dense(part) for part in parts], 0).numpy().tolist()
        == tf.eye(4).numpy().tolist()
    )
    for x in (ragged, sparse):
        for ask in (
            lambda x=x: xdevice.all_reduce([x, x]),
            lambda x=x: xdevice.save({"x": x}, tmp_path / "file"),
            lambda x=x: xdevice.tensor([x]),
        ):
            with pytest.raises(
                xdevice.ArgumentTypeError, match=f"a {type(x).__name__}; fill it up"
            ):
                ask()
        with pytest.raises(
            xdevice.NotSupportedError, match=f"cannot differentiate for a {type(x).__name__}"
        ):
            xdevice.value_and_grad(tf.reduce_sum)(x)
    array = tf.TensorArray(tf.float32, 4).unstack(tf.ones(4))
    with pytest.raises(xdevice.NotATensorError, match=r"TensorArray.* is a tensor .*\[1\]"):
        xdevice.split_batch([tf.ones(4), array], ["cpu", "cpu"])


def test_autograph_leaves_errors_as_they_are_and_rewrites_nothing_of_xdevice():
    xdevice.count()  # loads the adapter, which says so

    @tf.function
    def made():
        return xdevice.ones(2, device="gpu:7")

    with pytest.raises(xdevice.DeviceNotFoundError, match="gpu:7 does not exist") as error:
        made()
    files = [str(entry.path) for entry in error.traceback]
    assert sum("__autograph_generated_file" in file for file in files) == 1, (
        "xdevice is rewritten too"
    )


def _steep(x):
    if tf.reduce_sum(x) > 0:
        return tf.reduce_sum(x * x)
    return tf.reduce_sum(x)


def test_autograph_rewrites_a_function_of_the_program_that_xdevice_calls():
    steep = tf.function(lambda x: xdevice.value_and_grad(_steep)(x))
    assert [found.numpy().tolist() for found in steep(tf.ones(2))] == [2, [2, 2]]


def test_tensorflow_feeds_no_branch_what_is_known_when_its_function_is_called():
    when_called = (lambda: tf.constant(1)), tf.TensorSpec([], tf.int32)
    inner = tf.function(
        lambda: ops.get_default_graph().capture_call_time_value(*when_called), autograph=False
    )
    outer = tf.function(
        lambda x: tf.cond(x, inner.get_concrete_function(), lambda: 0), autograph=False
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="You must feed a value for placeholder"
    ):
        outer(tf.constant(True))  # mended: _feed_control_flow in virtual/tensorflow may go


def test_a_tensor_array_in_a_tree_is_an_error_that_names_its_tensors():
    array = tf.TensorArray(tf.float32, size=1).write(0, tf.ones(2))
    for ask in (
        device_of,
        lambda tree: to_device(tree, "cpu"),
        lambda tree: xdevice.convert(tree, "numpy"),
    ):
        with pytest.raises(
            xdevice.NotATensorError, match=r"_implementation\._\w+ is a tensor.*\(at \['array'\]\)"
        ):
            ask({"array": array, "x": tf.ones(1)})
    assert device_of({"stacked": array.stack()}) == cpu()


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn"])
def test_floats_of_8_bits_are_copied(dtype):
    x = tf.cast(tf.constant([1.0, 2.5]), dtype)
    copied = to_device(x, "cpu", copy=True)
    assert copied is not x
    assert copied.dtype == x.dtype
    assert copied.numpy().tolist() == [1, 2.5]
