"""Where TensorFlow puts what GPUs lack, and what does not exist."""

import pytest


@pytest.mark.weekly
def test_a_gpu_that_does_not_exist_is_gpu_0_or_tensorflows_error_as_placement_is_soft(program):
    lines = program("""
        import tensorflow as tf
        with tf.device("/GPU:9"):
            print(tf.constant([1.0]).device, (tf.ones(2) + 1).device)
        tf.config.set_soft_device_placement(False)
        try:
            with tf.device("/GPU:9"):
                tf.constant([1.0])
        except tf.errors.InvalidArgumentError as error:
            print(error.message)
        with tf.device("/GPU:1"):
            print(tf.constant([1.0]).device)
    """)
    here = "/job:localhost/replica:0/task:0/device:GPU:"
    assert lines[0] == f"{here}0 {here}0"
    assert lines[1].startswith(
        "Could not satisfy device specification '/device:GPU:9'. enable_soft_placement=0."
    )
    assert lines[2:] == [f"{here}1"]


UPPER = """
    import tensorflow as tf
    def upper(x):
        with tf.device("/GPU:1"):
            return tf.strings.upper(x)
    names = tf.constant(["a", "b"])
    graph = tf.function(upper)
    print(names.device[-5:], tf.strings.upper(names).device[-5:], upper(names).device[-5:], graph(names).device[-5:])
    made = graph.get_concrete_function(names).graph.get_operations()
    print([op.device[-5:] for op in made if op.type == "StringUpper"])
    print(upper(names).numpy().tolist() == graph(names).numpy().tolist() == [b"A", b"B"])
    tf.config.set_soft_device_placement(False)
    print(tf.strings.upper(names).numpy()[0])
    for run in (upper, tf.function(upper)):
        try: print(run(names).numpy()[0])
        except tf.errors.InvalidArgumentError as error:
            print(*(line for line in str(error).splitlines() if "Could" in line))
"""


@pytest.mark.weekly
def test_operations_that_gpus_lack_are_on_the_cpu_and_refused_without_soft_placement(program):
    *places, first, second = program(UPPER)
    assert places == ["CPU:0 CPU:0 CPU:0 CPU:0", "['CPU:0']", "True", "b'A'"]
    place = "/job:localhost/replica:0/task:0/device:"
    assert (
        f"Could not satisfy device specification '{place}GPU:1'. enable_soft_placement=0. Supported"
        in first
    )
    assert (
        f"types [CPU]. All available devices [{place}CPU:0, {place}GPU:0, {place}GPU:1]. [Op:StringUpper]"
        in first
    )
    assert "Cannot assign a device for operation" in second
    assert "because no supported kernel for GPU devices" in second
    assert program(UPPER, words=["--lenient"])[2:] == ["True", "b'A'", "b'A'", "b'A'"]


INTEGERS = """
    import numpy as np, tensorflow as tf
    def show(*tensors):
        print(*(x.backing_device[-5:] if hasattr(x, "backing_device") else x.device[-5:] for x in tensors))
    i, f = tf.constant([[1, 2], [3, 4]]), tf.constant([[1., 2], [3, 4]])
    z, s = tf.complex(f, f), tf.constant([["a"], ["b"]])
    show(tf.matmul(i, i), tf.argmax(i), tf.sqrt(z), tf.cumsum(tf.cast(f, "int16")), tf.split(i, 2)[0], tf.square(z))
    show(tf.raw_ops.MatMul(a=[[1]], b=[[2]]), tf.argmax(f, output_type="int16"), tf.concat([s, s], 0))
    show(tf.Variable(1), tf.Variable(["a"]))
    show(tf.matmul(f, f), i + i, tf.argmax(f), tf.cumsum(f), tf.concat([[1], [2, 3]], 0), z * z)
    show(tf.Variable([1, 2], dtype="int64"), tf.Variable(1.))
    show(tf.raw_ops.MatMul(a=[[1.]], b=np.ones((1, 1), "float32")), tf.reduce_sum(i), tf.reduce_mean(f))
    steps = tf.Variable(1)
    @tf.function
    def products(a, b):
        steps.assign_add(1)
        with tf.device("/GPU:1"):
            return tf.matmul(a, a), tf.matmul(b, b)
    show(*products(i, f))
    compiled = tf.function(lambda a: tf.matmul(a, a), jit_compile=True)
    print(int(steps), products(i, f)[0].numpy().tolist() == compiled(i).numpy().tolist() == [[7, 10], [15, 22]])
    tf.config.set_soft_device_placement(False)
    show(tf.matmul(i, i))
    def asked(run):
        try:
            with tf.device("/GPU:1"): run()
            print("runs")
        except tf.errors.InvalidArgumentError as error: print(str(error).splitlines()[-1])
    asked(lambda: tf.matmul(i, i))
    asked(lambda: tf.Variable(1))
    asked(lambda: (tf.matmul(f, f), i + i, tf.reduce_sum(i), tf.Variable(1.), tf.reshape(i, [-1])[1:], tf.range(3)))
"""


def test_dtypes_that_gpus_lack_are_on_the_cpu_and_refused_without_soft_placement(program):
    lines = program(INTEGERS)
    assert lines[:3] == [" ".join(["CPU:0"] * n) for n in (6, 3, 2)]
    assert lines[3:6] == [" ".join(["GPU:0"] * n) for n in (6, 2, 3)]
    assert lines[6:9] == ["CPU:0 GPU:1", "2 True", "CPU:0"]
    for said, operation in zip(lines[9:11], ("MatMul", "VarHandleOp"), strict=True):
        assert "enable_soft_placement=0. Supported device types [CPU]" in said
        assert f"[Op:{operation}]" in said
    assert lines[11:] == ["runs"]


@pytest.mark.weekly
def test_dtypes_that_gpus_lack_are_computed_where_lenience_is_asked_for(program):
    assert program(INTEGERS, words=["--lenient"])[9:] == ["runs"] * 3


@pytest.mark.weekly
def test_a_gpu_that_is_not_there_is_gpu_0_or_an_error_that_names_gpus(program):
    lines = program("""
        import tensorflow as tf
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            with tf.device("/gpu:9"):
                y = tf.linalg.matmul(tf.ones((2, 2)), tf.ones((2, 2)))
            try: session.run(y)
            except tf.errors.InvalidArgumentError as error: print(" ".join(error.message.split()))
        @tf.function
        def ones():
            with tf.device("/GPU:9"):
                return tf.ones(2) + 1
        print(ones().device)
        tf.config.set_soft_device_placement(False)
        try: tf.function(ones.python_function)()
        except tf.errors.InvalidArgumentError as error: print(*(x for x in str(error).splitlines() if "Could" in x))
    """)
    listed = ", ".join(
        f"/job:localhost/replica:0/task:0/device:{name}" for name in ("CPU:0", "GPU:0", "GPU:1")
    )
    assert (
        f"was explicitly assigned to /device:GPU:9 but available devices are [ {listed} ]"
        in lines[0]
    )
    assert lines[1].endswith("GPU:0")
    assert (
        "Could not satisfy device specification '/device:GPU:9'. enable_soft_placement=0"
        in lines[2]
    )


@pytest.mark.weekly
def test_data_sets_and_tables_are_on_the_cpu_and_go_to_a_gpu_when_asked(program):
    assert program("""
        import tensorflow as tf
        batches = tf.data.Dataset.range(4).map(lambda x: 2.0 * tf.cast(x, "float32")).batch(2)
        print(*(x.device[-5:] for x in batches), *((x + 1).device[-5:] for x in batches))
        print(*(x.device[-5:] for x in batches.apply(tf.data.experimental.prefetch_to_device("/gpu:1"))))
        data = tf.data.Dataset.range(1)
        last = data.map(lambda i: i), data.shuffle(2), data.cache(), data.prefetch(1)
        print(*(i.device[-5:] for steps in last for i in steps))
        list(data.map(lambda i: tf.py_function(lambda j: print(tf.ones(1).device[-5:]) or j, [i], tf.int64)))
        names = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0])
        table = tf.lookup.StaticHashTable(names, 0.0)
        b, find = tf.constant(["b"]), tf.function(table.lookup)
        print(table.lookup(b).backing_device[-5:], find(b).numpy())
        strategy = tf.distribute.MirroredStrategy()
        for part in strategy.experimental_distribute_dataset(batches.batch(2)):
            print(*(f"{x.device[-5:]} {x.numpy().tolist()}" for x in strategy.experimental_local_results(part)))
    """) == [
        "CPU:0 CPU:0 GPU:0 GPU:0",
        "GPU:1 GPU:1",
        "CPU:0 CPU:0 CPU:0 CPU:0",
        "GPU:0",  # in a thread of the runtime
        "CPU:0 [2.]",
        "GPU:0 [[0.0, 2.0]] GPU:1 [[4.0, 6.0]]",
    ]


@pytest.mark.weekly
def test_dlpack_brings_tensors_back_to_their_gpu_and_numpy_refuses_them(program):
    assert program("""
        import tensorflow as tf, numpy as np
        with tf.device("/GPU:1"):
            x = tf.constant([1.0, 2.0])
        with tf.device("/CPU:0"):
            y = tf.identity(x)
        pack, unpack = tf.experimental.dlpack.to_dlpack, tf.experimental.dlpack.from_dlpack
        print(x.__dlpack_device__(), unpack(pack(x)).device[-5:], y.__dlpack_device__(), unpack(pack(y)).device[-5:])
        try: np.from_dlpack(x)
        except (BufferError, RuntimeError) as error: print(error)
        try: x.gpu(9)
        except RuntimeError as error: print(error)
    """) == [
        "(2, 1) GPU:1 (1, 0) CPU:0",
        "Unsupported device in DLTensor.",
        "GPU:9 unknown device.",
    ]
