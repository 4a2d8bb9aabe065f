"""What is seen of copies on two virtual GPUs: on those that stand in, and weekly on the others, too."""

import gc
import itertools
import os
import threading
from contextlib import nullcontext

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.framework import constant_op, ops

import xdevice
from xdevice import (
    MixedDeviceError,
    TransferError,
    cpu,
    gpu,
    scope,
    strict,
    to_device,
    transfer_guard,
    watch_transfers,
)

xdevice.use("tensorflow")
xdevice.count()  # settles the devices before the first tensor is made
FIRST, SECOND = xdevice.native(gpu(0)), xdevice.native(gpu(1))
TO_HOST, TO_GPU, ACROSS, BACK = "gpu:0>host", "host>gpu:0", "gpu:0>gpu:1", "gpu:1>gpu:0"


def on(device, make):
    with scope(device):
        return make()


@pytest.fixture(autouse=True)
def on_the_first():
    with xdevice.using("tensorflow"), tf.device(FIRST):
        yield


def seen(report):
    """What was copied: kind, route and number, in order."""
    return [(found.kind, f"{found.from_}>{found.to}", found.copies) for found in report.findings]


@tf.function
def total(a, b):
    return tf.reduce_sum(a @ b)


@tf.function
def there(a, b):
    """Its author computes on the second GPU, which has ``b``."""
    with tf.device(SECOND):
        y = tf.reduce_sum(b @ b)
    return tf.reduce_sum(a), y


@pytest.fixture
def of(tmp_path):
    """What a line copies in the first GPU's scope; x and v are there, y and far on the second, c is on the CPU."""

    def run(line):
        far = on(gpu(1), lambda: {"y": tf.ones((2, 2)), "far": tf.Variable(tf.ones((2, 2)))})
        near = {"x": tf.ones((2, 2)), "v": tf.Variable(tf.ones((2, 2)))}
        host = {
            "c": on(cpu(), lambda: tf.ones((2, 2))),
            "n": np.ones((2, 2), "float32"),
            "rows": np.array([0, 1]),
        }
        host["dataset"] = on(cpu(), lambda: tf.data.Dataset.from_tensor_slices([1.0, 2.0]))
        names = {**globals(), **far, **near, **host}
        file = tmp_path / "line.py"
        file.write_text(line)
        with watch_transfers() as report:
            exec(compile(line, file, "exec"), names)
        assert {found.file for found in report.findings} <= {str(file)}
        return seen(report)

    return run


COPIES = {
    "float(x[0, 0])": ("number", TO_HOST),
    "int(x[0, 0])": ("number", TO_HOST),
    "1 if x[0, 0] > 0 else 2": ("number", TO_HOST),
    "x.numpy()": ("number", TO_HOST),
    "v.numpy()": ("number", TO_HOST),
    "x.numpy().tolist()": ("number", TO_HOST),
    "range(3)[tf.argmax(x[0])]": ("number", TO_HOST),
    "np.asarray(x)": ("number", TO_HOST),
    "np.array([c, x])": ("number", TO_HOST),
    "np.asarray(tf.cast(x, tf.bfloat16))": ("number", TO_HOST),
    "np.sum(x)": ("number", TO_HOST),
    "memoryview(x)": ("number", TO_HOST),
    "tf.debugging.assert_equal(x, x + 0)": ("number", TO_HOST),
    "print(x)": ("print", TO_HOST),
    "repr(v)": ("print", TO_HOST),
    "f'{x[0, 0]:.2f}'": ("print", TO_HOST),
    "tf.print(x, output_stream='file:///dev/null')": ("print", TO_HOST),
    "xdevice.to_device(x, 'cpu')": ("copy", TO_HOST),
    "xdevice.to_numpy(x)": ("copy", TO_HOST),
    "xdevice.to_device(c, 'gpu')": ("copy", TO_GPU),
    "xdevice.to_device(x, 'gpu:1')": ("copy", ACROSS),
    "xdevice.to_device(v, 'gpu:1')": ("copy", ACROSS),
    "xdevice.tensor([1.0, 2.0])": ("copy", TO_GPU),
    "with tf.device(SECOND): tf.identity(x)": ("copy", ACROSS),
    "with tf.device('/CPU:0'): v.read_value()": ("copy", TO_HOST),
    "tf.constant(n)": ("copy", TO_GPU),
    "tf.constant([1.0, 2.0])": ("copy", TO_GPU),
    "tf.convert_to_tensor(n)": ("copy", TO_GPU),
    "tf.Variable(n)": ("copy", TO_GPU),
    "v.assign(y)": ("copy", BACK),
    "keras.losses.MeanSquaredError()(n, x)": ("copy", TO_GPU),
    "x + y": ("operand", BACK),
    "x + c": ("operand", TO_GPU),
    "(x + c) * c": ("operand", TO_GPU),
    "tf.concat([x, y], 0)": ("operand", BACK),
    "x @ far": ("operand", BACK),
    "v.assign_add(y)": ("operand", BACK),
    "total(x, y)": ("operand", BACK),
    "tf.random.poisson((2,), x)": ("operand", TO_HOST),
    "tf.strings.as_string(x)": ("operand", TO_HOST),
    "total(n, x)": ("index", TO_GPU),
    "x + n": ("index", TO_GPU),
    "n - x": ("index", TO_GPU),
    "tf.exp(n)": ("index", TO_GPU),
    "tf.exp([1.0, 2.0])": ("index", TO_GPU),
    "v.assign(n)": ("index", TO_GPU),
    "tf.gather(x, [0, 1])": ("index", TO_GPU),
    "tf.gather(x, rows)": ("index", TO_GPU),
    "tf.gather(x, tf.constant([0, 1]))": ("index", TO_GPU),
    "tf.where(x > 0)": ("size", TO_HOST),
    "tf.boolean_mask(x, x > 0)": ("size", TO_HOST),
    "x[x > 0]": ("size", TO_HOST),
    "tf.unique(x[0])": ("size", TO_HOST),
}


@pytest.mark.parametrize("line", COPIES)
def test_a_line_that_copies_is_seen(line, of):
    assert of(line) == [(*COPIES[line], 1)]


def test_data_sets_are_on_the_cpu(of):
    """Their operations have no kernel for GPUs, real or standing in: the array comes back, and an element stays."""
    assert of("tf.data.Dataset.from_tensor_slices(n)") == [
        ("operand", TO_HOST, 1),
        ("copy", TO_GPU, 1),
    ]
    stays = os.environ["XDEVICE_VIRTUAL_GPUS"].endswith("stand-in")
    assert of("next(iter(tf.data.Dataset.range(3)))") == [("copy", TO_GPU, 1)][stays:]


@pytest.mark.parametrize(
    "line",
    """
    x + 1
    x + 1.5
    x + x
    v + x
    v.assign_sub(x)
    x[0]
    x[:, 1]
    list(x)
    len(x)
    tf.constant([1, 2])
    tf.reshape(x, [4])
    tf.reshape(x, tf.shape(x)[::-1])
    int(tf.shape(x)[0]), np.asarray(tf.shape(x))
    tf.where(x > 0, x, 0.0)
    tf.gather(x, tf.argmax(x[0]))
    tf.ones((3, 4))
    tf.random.normal((2, 2))
    tf.range(5)
    np.sum(c), memoryview(c)
    c.shape, y.dtype, v.device
    total(x, x)
    there(x, y)
    tf.identity(x)
    tf.print("text", output_stream="file:///dev/null")
    xdevice.to_device(x, "gpu:0")
    xdevice.zeros((2, 3)), xdevice.full((2, 3), 1.5), xdevice.rand((2, 3))
    with tf.device("/CPU:0"): float(c[0, 0]), np.asarray(c), c + n, tf.where(c > 0), next(iter(dataset))
    with tf.device(SECOND): y + y, far.read_value() @ y
    """.strip().splitlines(),
)
def test_a_line_that_does_not_copy_is_not_seen(line, of):
    assert of(line.strip()) == []


def site_of(act):
    with watch_transfers() as report:
        act()
    (site,) = report._recorder.sites.values()
    return site


def test_bytes_and_values_are_told():
    n = np.ones(4)
    site = site_of(lambda: [tf.constant(n) for _ in range(3)])
    assert (site.copies, site.nbytes, list(site.marks.values())) == (3, 96, [3])
    assert site_of(lambda: tf.constant(n, tf.float32)).nbytes == 16
    assert site_of(lambda: tf.constant([[1.0, 2.0], [3.0, 4.0]])).nbytes == 16
    v = tf.Variable(tf.ones((3, 5), tf.float16))
    assert site_of(lambda: to_device(v, gpu(1))).nbytes == 30


def test_an_operand_is_copied_once_while_it_lives():
    x = tf.ones(2)
    with watch_transfers() as report:
        for _ in range(3):
            y = on(gpu(1), lambda: tf.ones(2))
            z = x + y
            z = z * y
    assert seen(report) == [("operand", BACK, 3)]


def test_an_argument_of_a_function_is_copied_in_each_call():
    x, y = tf.ones((2, 2)), on(gpu(1), lambda: tf.ones((2, 2)))
    with watch_transfers() as report:
        for _ in range(3):
            total(x, y)
    assert seen(report) == [("operand", BACK, 3)]


def test_a_model_that_moves_copies_at_one_line():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    with watch_transfers() as report:
        to_device(model, gpu(1))
    (found,) = report.findings
    assert (found.kind, found.copies, found.nbytes) == ("copy", 4, 4 * (4 * 3 + 3 + 3 * 2 + 2))
    assert found.source == "to_device(model, gpu(1))"
    assert found.file == __file__


def test_a_copy_in_backward_is_the_line_that_asks_for_the_gradient():
    x = tf.ones(4)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, moved = x * x, to_device(x, gpu(1))
        far = on(cpu(), lambda: tf.reduce_sum(to_device(moved, cpu())))
    with watch_transfers() as report, tf.device(SECOND):
        tape.gradient(y, x)
    assert seen(report) == [("gradient", ACROSS, 1)]
    assert report.findings[0].source == "tape.gradient(y, x)"
    with watch_transfers() as report, tf.device("/CPU:0"):
        tape.gradient(far, x)
    assert seen(report) == [("gradient", "host>gpu:1", 1), ("gradient", BACK, 1)]


@tf.custom_gradient
def looking(x):
    def backward(upstream):
        upstream.numpy()
        return upstream

    return x * 2, backward


def test_a_function_that_backward_calls_has_lines_of_its_own():
    x = tf.ones(4)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = looking(x)
    with watch_transfers() as report:
        tape.gradient(y, x)
    assert [(found.kind, found.source) for found in report.findings] == [
        ("number", "upstream.numpy()")
    ]


def test_guards_refuse_what_they_are_told_to_and_the_copy_is_not_made():
    x, c, v = tf.ones(4), on(cpu(), lambda: tf.ones(4)), tf.Variable(tf.ones(4))
    for act in (
        lambda: float(x[0]),
        lambda: bool(x[0] > 0),
        lambda: x + c,
        lambda: x[x > 0],
        lambda: str(x),
        lambda: np.asarray(x),
        lambda: np.log(x),
        lambda: v.assign(np.zeros(4)),
        lambda: total(tf.ones((2, 2)), np.ones((2, 2), "float32")),
    ):
        with (
            transfer_guard("forbid_implicit"),
            pytest.raises(TransferError, match=r"test_copies.py:\d+: "),
        ):
            act()
    assert v.numpy().tolist() == [1, 1, 1, 1]
    with transfer_guard("forbid_implicit"):
        to_device(x, cpu()), tf.constant([1.0]), x + 1, v.assign(x * 2)
    with (
        transfer_guard("forbid"),
        pytest.raises(TransferError, match="forbids; copy outside the block"),
    ):
        v.assign(c)
    assert v.numpy().tolist() == [2, 2, 2, 2]
    with transfer_guard("allow", device_to_host="forbid"):
        tf.constant([1.0])
        with pytest.raises(TransferError):
            to_device(x, cpu())
    assert x.numpy().tolist() == [1, 1, 1, 1]


def test_a_guard_holds_inside_tapes_and_in_their_backward_pass():
    x, far = tf.ones(4), on(gpu(1), lambda: tf.ones(4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        with (
            transfer_guard("forbid"),
            pytest.raises(TransferError, match="an operand on another device"),
        ):
            x * far
        y = x * x
    with (
        transfer_guard("forbid"),
        tf.device(SECOND),
        pytest.raises(TransferError, match="in the backward pass"),
    ):
        tape.gradient(y, x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    with transfer_guard("forbid"):
        found = tape.gradient(y, x)
    assert found.numpy().tolist() == [2, 2, 2, 2]


def test_threads_have_levels_of_their_own_and_are_seen():
    x, results = tf.ones(4), {}

    def read(level):
        with tf.device(FIRST), transfer_guard(level):
            for _ in range(20):
                try:
                    results.setdefault(level, set()).add(float(x[0]))
                except TransferError:
                    results.setdefault(level, set()).add("refused")

    levels = "allow", "forbid"
    threads = [threading.Thread(target=read, args=(level,)) for level in levels]
    with watch_transfers() as report:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {"allow": {1.0}, "forbid": {"refused"}}
    assert seen(report) == [("number", TO_HOST, 20)]


WAYS = "TFE_Py_FastPathExecute", "TFE_Py_Execute", "TFE_Py_ExecuteCancelable"


def replaced():
    """All that is replaced while a block is open."""
    base, iterator = vars(ops._EagerTensorBase), iterator_ops.OwnedIterator
    return [
        *(getattr(pywrap_tfe, way) for way in WAYS),
        *(base["_numpy"], base["_copy_nograd"], vars(iterator)["_next_internal"]),
        *(base["__dlpack__"], constant_op.convert_to_eager_tensor),
    ]


def test_watching_and_strict_may_end_in_any_order_and_leave_nothing_behind():
    before = replaced()
    x, y = tf.ones(2), on(gpu(1), lambda: tf.ones(2))
    for order in itertools.permutations(range(3)):
        blocks = [strict(), watch_transfers(), watch_transfers()]
        reports = [block.__enter__() for block in blocks]
        for i, which in enumerate(order):
            refused = 0 not in order[:i]
            with pytest.raises(MixedDeviceError) if refused else nullcontext():
                x + y
            float(x[0])
            blocks[which].__exit__(None, None, None)
        reads = [
            {found.kind: found.copies for found in report.findings}["number"]
            for report in reports[1:]
        ]
        assert reads == [order.index(1) + 1, order.index(2) + 1]
        assert replaced() == before
    x + y


def test_a_wrapper_that_others_put_around_an_operation_stays():
    calls, original = [], pywrap_tfe.TFE_Py_FastPathExecute
    with watch_transfers():
        ours = pywrap_tfe.TFE_Py_FastPathExecute
        pywrap_tfe.TFE_Py_FastPathExecute = other = lambda *given: (
            calls.append(given[1]),
            ours(*given),
        )[1]
    try:
        tf.ones(2) + 1
        assert pywrap_tfe.TFE_Py_FastPathExecute is other
        assert "AddV2" in calls
    finally:
        pywrap_tfe.TFE_Py_FastPathExecute = original


def test_a_function_that_runs_eagerly_has_lines_of_the_program():
    @tf.function
    def f(x):
        return x * float(x[0])

    tf.config.run_functions_eagerly(True)
    try:
        with watch_transfers() as report:
            f(tf.ones(2))
    finally:
        tf.config.run_functions_eagerly(False)
    assert [(found.kind, found.source) for found in report.findings] == [
        ("number", "return x * float(x[0])")
    ]


def network():
    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((8, 8, 1)), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(10)]
    )


IMAGES, LABELS = np.random.default_rng(0).random((24, 8, 8, 1), "float32"), np.arange(24) % 10


def trained(compiled):
    """The losses and the weights of a network after three steps."""
    model, optimizer = network(), keras.optimizers.SGD(0.1, momentum=0.9)
    images, labels, losses = tf.constant(IMAGES), tf.constant(LABELS), []

    def step():
        with tf.GradientTape() as tape:
            found = keras.losses.sparse_categorical_crossentropy(
                labels, model(images), from_logits=True
            )
            loss = tf.reduce_mean(found)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step = tf.function(step) if compiled else step
    for _ in range(3):
        loss = step()
        losses.append(float(loss))
    return losses, model.get_weights()


@pytest.mark.parametrize("compiled", [False, True])
def test_watching_changes_no_number_and_counts_steps(compiled):
    losses, weights = trained(compiled)
    with watch_transfers() as report, transfer_guard("log"):
        watched_losses, watched_weights = trained(compiled)
    assert losses == watched_losses
    assert all(map(np.array_equal, weights, watched_weights))
    assert report.steps == 3
    found = {found.source: found for found in report.findings}["losses.append(float(loss))"]
    assert (found.copies, found.per_step) == (3, 1)


@pytest.mark.parametrize("eagerly", [False, True])
def test_each_batch_of_fit_is_a_step_and_a_function_traced_before_counts(eagerly):
    model = network()
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=eagerly
    )
    model.fit(IMAGES, LABELS, 8, verbose=0)
    with watch_transfers() as report:
        model.fit(IMAGES, LABELS, 8, 2, verbose=0)
        model.evaluate(IMAGES, LABELS, 8, verbose=0)
    assert report.steps == 6
    assert {found.file for found in report.findings} == {__file__}


def test_a_function_that_only_reads_the_number_of_steps_makes_none():
    model, optimizer = network(), keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    counter = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def look():
        counter.assign_add(1)
        return optimizer.iterations + 1

    with watch_transfers() as report:
        look()
        counter.assign_add(1)
    assert report.steps == 0


def test_what_is_watched_is_not_kept_alive():
    model, optimizer = network(), keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    with watch_transfers():
        optimizer.apply([tf.zeros_like(w) for w in model.trainable_variables])
        x, y = tf.ones(2), on(gpu(1), lambda: tf.ones(2))
        x + y
        gone = [x.ref(), y.ref()]
        count = sum(isinstance(each, type(x)) for each in gc.get_objects())
        del x, y, gone
        gc.collect()
        assert (
            sum(
                isinstance(each, type(optimizer.iterations.value.handle))
                for each in gc.get_objects()
            )
            < count
        )


def test_a_variable_is_copied_from_its_own_device():
    variable = on(cpu(), lambda: tf.Variable(tf.ones(3)))
    with watch_transfers() as report:
        to_device(variable, gpu(1))
    assert seen(report) == [("copy", "host>gpu:1", 1)]


def test_each_device_has_memory_of_its_own():
    places = [on(cpu(), lambda: tf.ones(3))]
    places += [to_device(places[0], gpu(0)), to_device(places[0], gpu(1))]
    assert len({np.asarray(memoryview(tensor)).ctypes.data for tensor in places}) == 3


@pytest.mark.parametrize("device", [gpu(0), gpu(1)], ids=str)
def test_a_result_of_the_namespace_is_on_its_tensors_device_where_gpus_have_no_kernel(device):
    x = xdevice.tensor([[1, 3], [4, 2]], dtype="int8", device=device)
    xp = xdevice.namespace(x)
    assert xdevice.device_of(tf.reduce_max(x)) is cpu()
    assert xdevice.devices_of([xp.max(x), xp.unstack(x)]) == {device}
    assert xdevice.to_numpy(xp.max(x, axis=0)).tolist() == [4, 3]
