"""TensorFlow programs for GPUs, unedited."""

import pytest


@pytest.mark.parametrize("shares", [True, pytest.param(False, marks=pytest.mark.weekly)])
def test_a_program_finds_gpus_computes_on_them_and_is_told_that_they_are_virtual(program, shares):
    lines = program(
        """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        print(gpus, tf.test.is_built_with_cuda(), tf.test.gpu_device_name(), tf.test.is_gpu_available())
        print(tf.config.experimental.get_device_details(gpus[0]))
        print([d.name for d in tf.config.list_logical_devices("GPU")], len(tf.config.list_logical_devices()))
        x = tf.ones((2, 3))
        print(x.device, (x + 1).backing_device)
        with tf.device("/GPU:1"):
            y, v = tf.random.normal((100, 100)), tf.Variable(tf.ones(10000))
        with tf.device("CPU:0"):
            z = tf.ones(2)
        print(y.device, v.device, z.device)
        print(tf.identity(y).device, x.gpu(1).device if hasattr(x, "gpu") else y.device, x.cpu().device)
        memory = tf.config.experimental.get_memory_info("GPU:1")
        tf.config.experimental.reset_memory_stats("GPU:1")
        print(memory["current"] >= 80000, memory["peak"])
        @tf.function
        def double(a):
            with tf.device("/GPU:1"):
                b = 2 * a
                print(b.device or b.op.device)
            return b
        print(float(tf.reduce_sum(double(x))))
        from tensorflow.python.client import device_lib
        print([d.name for d in device_lib.list_local_devices()])
        keras2 = {"tf": tf, "__name__": "tf_keras.src.optimizers.optimizer"}  # compiles with XLA if it sees GPUs
        print(eval("tf.config.list_physical_devices('GPU') + tf.config.list_logical_devices('GPU')", keras2))
        import threading
        asked = threading.Thread(target=lambda: print(tf.ones(1).device[-5:]))
        asked.start()
        asked.join()
        import xdevice
        xdevice.use("tensorflow")
        moved = xdevice.to_device(y, "gpu")
        print(xdevice.devices(), xdevice.device_of(y), xdevice.native("gpu:1"), xdevice.device_of(moved))
        stats = xdevice.memory_stats("gpu:1")
        print(stats["peak"], stats["allocated"] >= 40000)
    """,
        shares=shares,
    )
    local = "/job:localhost/replica:0/task:0/device:"
    assert lines[0].count("PhysicalDevice") == 2
    assert lines[0].endswith(" True /device:GPU:0 True")
    assert lines[1:] == [
        "{'device_name': 'xdevice virtual GPU'}",  # and no compute capability
        "['/device:GPU:0', '/device:GPU:1'] 3",
        f"{local}GPU:0 {local}GPU:0",
        f"{local}GPU:1 {local}GPU:1 {local}CPU:0",
        f"{local}GPU:0 {local}GPU:1 {local}CPU:0",
        "True nan",
        "/device:GPU:1",
        "12.0",
        "['/device:CPU:0', '/device:GPU:0', '/device:GPU:1']",
        "[]",
        "GPU:0",
        "[Device('cpu:0'), Device('gpu:0'), Device('gpu:1')] gpu:1 /GPU:1 gpu:0",
        "None True",
    ]


@pytest.mark.weekly
def test_strategies_sessions_meshes_and_servers_have_the_gpus_and_the_cpu_may_be_split(program):
    lines = program(
        """
        import tensorflow as tf
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        print([device.name[-5:] for device in tf.config.list_logical_devices()], tf.ones(1).device[-5:])
        with tf.device("CPU:1"):
            print(tf.ones(1).device[-5:], tf.sysconfig.get_build_info()["cuda_version"])
        try: tf.config.experimental.get_memory_info("GPU:7")
        except ValueError as error: print(error)
        try:
            with tf.device("GPU:1"): tf.ones((2, 3)) @ tf.ones((2, 3))
        except tf.errors.InvalidArgumentError as error: print("GPU:1" in str(error), "CPU:" in str(error))
        one = tf.distribute.OneDeviceStrategy("/gpu:1")
        square = tf.function(lambda x: x @ x, jit_compile=True)
        with one.scope():
            v = tf.Variable(tf.eye(2))
        print(v.device[-5:], one.run(square, (v.read_value(),)).device[-5:])
        fed = tf.data.Dataset.range(4).batch(2).apply(tf.data.experimental.prefetch_to_device("/GPU:1"))
        print([x.device[-5:] for x in fed])
        with tf.Graph().as_default():
            with tf.device("/gpu:1"):
                a = tf.constant([1.0, 2.0]) * 2
            with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto()) as session:
                print(session.run(a), a.device, [device.name[-5:] for device in session.list_devices()])
            with tf.device("/gpu:1"):
                joined = tf.strings.join(["a", "b"])
            for is_soft in (True, False):
                config = tf.compat.v1.ConfigProto(allow_soft_placement=is_soft)
                with tf.compat.v1.Session(config=config) as session:
                    try: print(session.run(joined))
                    except tf.errors.InvalidArgumentError as error: print("'/device:GPU:1' because no" in str(error))
        from tensorflow.experimental import dtensor
        mesh = dtensor.create_mesh([("x", 2)], device_type="GPU")
        x = dtensor.call_with_layout(tf.ones, dtensor.Layout(["x", dtensor.UNSHARDED], mesh), shape=(4, 2))
        print([part.device[-5:] for part in dtensor.unpack(x)], float(tf.reduce_sum(x)))
        server = tf.distribute.Server.create_local_server()
        tf.config.experimental_connect_to_host(server.target)
        from tensorflow.python.eager import context
        print(len(tf.config.list_logical_devices("GPU")), context.num_gpus())
        with tf.device("/job:worker/replica:0/task:0/device:GPU:1"):
            print((tf.ones(2) * 2).device)
        print(tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[1])["device_name"])
        import xdevice
        xdevice.use("tensorflow")
        print(xdevice.devices(), xdevice.device_of(tf.ones(1)))
    """,
        words=("--model", "rtx4090"),
    )
    assert lines == [
        "['CPU:0', 'CPU:1', 'GPU:0', 'GPU:1'] GPU:0",
        "CPU:1 virtual",
        "No matching devices found for 'GPU:7'",
        "True False",
        "GPU:1 GPU:1",
        "['GPU:1', 'GPU:1']",
        "[2. 4.] /device:GPU:1 ['CPU:0', 'CPU:1', 'GPU:0', 'GPU:1']",
        "b'ab'",
        "True",
        "['GPU:0', 'GPU:1'] 8.0",
        "4 2",
        "/job:worker/replica:0/task:0/device:GPU:1",
        "NVIDIA GeForce RTX 4090 (virtual GPU: xdevice, on the CPU)",
        "[Device('cpu:0'), Device('cpu:1'), Device('gpu:0'), Device('gpu:1')] gpu:0",
    ]


def test_a_reduction_by_nccl_gives_each_gpu_the_whole(program):
    lines = program("""
        import tensorflow as tf
        from tensorflow.python.ops import nccl_ops
        parts = []
        for i in range(2):
            with tf.device(f"/GPU:{i}"):
                parts.append(tf.constant([1.0 + i, 5.0]))
        for reduce in (nccl_ops.all_sum, nccl_ops.all_prod, nccl_ops.all_min, nccl_ops.all_max):
            print([(whole.numpy().tolist(), whole.device[-5:]) for whole in reduce(parts)])
    """)
    sums = [3.0, 10.0], [2.0, 25.0], [1.0, 5.0], [2.0, 5.0]
    assert lines == [str([(whole, "GPU:0"), (whole, "GPU:1")]) for whole in sums]


@pytest.mark.weekly
def test_a_mirrored_strategy_has_a_replica_on_each_gpu_and_gives_the_cpus_numbers(program):
    code = """
        import os, tensorflow as tf, keras, numpy as np
        keras.utils.set_random_seed(0)
        strategy = tf.distribute.MirroredStrategy()
        print(strategy.num_replicas_in_sync, strategy.extended.worker_devices)
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
            model.compile("adam", "mse")
        x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
        print(model.fit(x, x.sum(1), 8, 2, verbose=0, shuffle=False).history["loss"][-1])
        class Scaled(tf.Module):
            def __init__(self):
                with tf.device("/GPU:1"):
                    self.factor = tf.Variable(3.0)
            @tf.function(input_signature=[tf.TensorSpec([2])])
            def __call__(self, x):
                with tf.device("/GPU:1"):
                    return x * self.factor
        saved = os.path.join(os.path.dirname(__file__), "saved")
        if strategy.num_replicas_in_sync == 2:
            tf.saved_model.save(Scaled(), saved)
        print(tf.saved_model.load(saved)(tf.constant([1.0, 2.0])).numpy())
    """
    # both are files in one folder, where the first saves what the second loads
    replicas, loss, scaled = program(code, shares=False)
    _, alone, loaded = program(code, gpus=False)
    assert replicas.startswith("2 ('/job:localhost/replica:0/task:0/device:GPU:0', ")
    assert float(loss) == pytest.approx(float(alone), rel=1e-4)
    assert scaled == loaded == "[3. 6.]"  # what was saved is loaded where there is no GPU


# the loop of TensorFlow's tutorials on distribution: weights and slots are made in the first call of a tf.function
LOOP = """
    import os
    "XDEVICE_VIRTUAL_GPUS" in os.environ and __import__("xdevice")
    import numpy as np, tensorflow as tf
    tf.keras.utils.set_random_seed(0)
    strategy = tf.distribute.MirroredStrategy()
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    batches = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(16)
    data = strategy.experimental_distribute_dataset(batches)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(1)])
        optimizer = tf.keras.optimizers.Adam(0.01)
        error = tf.keras.metrics.MeanAbsoluteError()
    def train_step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            predicted = model(x, training=True)
            loss = tf.nn.compute_average_loss(tf.reduce_mean((predicted - y) ** 2, 1), global_batch_size=16)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        error.update_state(y, predicted)
        return loss
    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(train_step, args=(batch,)), axis=None)
    @tf.function
    def epoch(data):
        total = 0.0
        for batch in data:
            total += step(batch)
        return total
    print(strategy.num_replicas_in_sync)
    print(*(float(step(batch)) for batch in data), float(epoch(data)), float(error.result()))
"""


@pytest.mark.weekly
def test_a_loop_whose_weights_are_made_in_its_first_step_has_the_cpus_numbers(program):
    ran = (
        program(LOOP),
        program(LOOP, gpus=False, XDEVICE_VIRTUAL_GPUS="2"),
        program(LOOP, gpus=False),
    )
    assert [replicas for replicas, _ in ran] == ["2", "2", "1"]
    stands_in, virtual, alone = ([float(x) for x in losses.split()] for _, losses in ran)
    assert stands_in == pytest.approx(alone, rel=1e-4)
    assert virtual == pytest.approx(alone, rel=1e-4)


@pytest.mark.weekly
def test_images_with_their_channels_first_have_the_numbers_of_those_with_channels_last(program):
    (line,) = program(
        """
        import numpy as np, tensorflow as tf
        rng = np.random.default_rng(0)
        def last(x): return tf.transpose(x, [0, *range(2, x.shape.rank), 1])
        def both(name, operation, image, *others, dtype="float64"):
            arrays = [tf.constant(rng.normal(size=shape), dtype) for shape in others]
            first = tf.constant(rng.normal(size=image), dtype)
            def gradients(x, channels_first):
                with tf.GradientTape() as tape:
                    tape.watch([x, *arrays])
                    made = operation(x, *arrays, channels_first)
                    total = tf.reduce_sum(made ** 2)
                return [made, *tape.gradient(total, [x, *arrays], unconnected_gradients="zero")]
            expected = gradients(last(first), False)
            for run in (gradients, tf.function(gradients)):
                made, by_image, *found = run(first, True)
                found = [last(made), last(by_image), *found]
                near = 1e-2 if dtype == "float16" else 1e-6
                assert all(np.allclose(a, b, rtol=near, atol=near) for a, b in zip(found, expected)), name
                assert made.device.endswith("GPU:0")
        two, three = lambda f: "NCHW" if f else "NHWC", lambda f: "NCDHW" if f else "NDHWC"
        def conv(x, w, f): return tf.nn.conv2d(x, w, (1, 1, 2, 2) if f else (1, 2, 2, 1), "SAME", two(f))
        def padded(x, w, f):
            room = [[0, 0], [0, 0], [1, 2], [0, 1]] if f else [[0, 0], [1, 2], [0, 1], [0, 0]]
            return tf.nn.conv2d(x, w, 1, room, two(f))
        def transposed(x, w, f):
            return tf.nn.conv2d_transpose(x, w, (2, 4, 16, 16) if f else (2, 16, 16, 4), 2, "SAME", two(f))
        def normed(x, scale, offset, f):
            return tf.compat.v1.nn.fused_batch_norm(x, scale, offset, data_format=two(f))[0]
        both("conv2d", conv, (2, 3, 8, 8), (3, 3, 3, 4))
        both("conv2d, float16", conv, (2, 3, 8, 8), (3, 3, 3, 4), dtype="float16")
        both("conv2d, padded", padded, (2, 3, 8, 8), (3, 3, 3, 4))
        both("conv2d_transpose", transposed, (2, 3, 8, 8), (3, 3, 4, 3))
        both("conv3d", lambda x, w, f: tf.nn.conv3d(x, w, [1] * 5, "SAME", three(f)), (1, 2, 4, 6, 6), (3, 3, 3, 2, 4))
        both("max_pool2d", lambda x, f: tf.nn.max_pool2d(x, 2, 2, "SAME", two(f)), (2, 3, 8, 8), dtype="float32")
        both("avg_pool2d", lambda x, f: tf.nn.avg_pool2d(x, 2, 2, "SAME", two(f)), (2, 3, 8, 8))
        both("max_pool3d", lambda x, f: tf.nn.max_pool3d(x, 2, 2, "SAME", three(f)), (1, 2, 4, 6, 6), dtype="float32")
        both("bias_add", lambda x, b, f: tf.nn.bias_add(x, b, two(f)), (2, 3, 8, 8), (3,))
        both("fused_batch_norm", normed, (2, 3, 8, 8), (3,), (3,), dtype="float32")
        depthwise = lambda x, w, f: tf.nn.depthwise_conv2d(x, w, [1] * 4, "SAME", two(f))
        both("depthwise_conv2d", depthwise, (2, 3, 8, 8), (3, 3, 3, 2))
        both("space_to_depth", lambda x, f: tf.nn.space_to_depth(x, 2, two(f)), (2, 3, 8, 8))
        print("all agree")
        """,
        TF_ENABLE_ONEDNN_OPTS="0",
    )
    assert line == "all agree"


@pytest.mark.weekly
def test_recurrent_layers_convolutions_and_attention_of_keras_train_to_the_cpus_numbers(
    keras_losses,
):
    with_gpus, alone, more = keras_losses(
        "tensorflow",
        """
        with keras.device("gpu:1"):
            print(keras.ops.ones(2).device[-5:])
        print(keras.distribution.list_devices("gpu"))
        image = keras.ops.ones((1, 8, 8, 3))
        print(layers.Conv2D(4, 3)(image).shape, layers.MaxPooling2D()(image).shape)
        """,
    )
    assert with_gpus == pytest.approx(alone, abs=2e-5)
    assert more == ["GPU:1", "['gpu:0', 'gpu:1']", "(1, 6, 6, 4) (1, 4, 4, 3)"]
