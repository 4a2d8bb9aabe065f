"""PaddlePaddle programs for GPUs, unedited."""

import json

import numpy as np
import pytest

TRAIN = """
    import numpy as np, paddle
    from paddle import nn
    paddle.seed(0)
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.words, self.lstm, self.gru = nn.Embedding(9, 8), nn.LSTM(8, 8), nn.GRU(8, 8)
            self.attention, self.conv = nn.MultiHeadAttention(8, 2), nn.Conv1D(8, 8, 3, padding=1)
            self.norm, self.out = nn.BatchNorm1D(8), nn.Linear(48, 3)
        def forward(self, x):
            h = self.gru(self.lstm(self.words(x))[0])[0]
            h = self.norm(self.conv((h + self.attention(h)).transpose([0, 2, 1])))
            return self.out(nn.functional.relu(h).flatten(1))
    net = Net()
    for i, p in enumerate(net.parameters()):
        p.set_value(0.1 * np.sin(np.arange(p.size) + i).reshape(p.shape).astype("float32"))
    adam, rng = paddle.optimizer.Adam(0.01, parameters=net.parameters()), np.random.RandomState(0)
    x, y = paddle.to_tensor(rng.randint(0, 9, (16, 6))), paddle.to_tensor(rng.randint(0, 3, 16))
    for _ in range(3):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        adam.step()
        adam.clear_grad()
    print(float(loss))
    state = [t for t in adam.state_dict().values() if hasattr(t, "place")]
    print({str(p.place) for p in net.parameters()}, {str(t.place) for t in state})
"""


def test_a_program_finds_gpus_computes_on_them_and_is_told_that_they_are_virtual(program):
    lines = program(
        """
        import os, time
        import paddle
        cuda = paddle.device.cuda
        print(paddle.device.is_compiled_with_cuda(), cuda.device_count(), paddle.device.get_device())
        x = paddle.to_tensor([1.0, 2.0], place=paddle.CUDAPlace(1))
        print(x.place, (x + x).place, x.cpu().place, x.cuda(0).place, x.place.is_gpu_place(), x.place.gpu_device_id())
        print(x, paddle.ones([2]).place, paddle.device.get_available_device())
        y = x.cuda(0)
        print(paddle.lerp(y, y, 0.5).place, y.is_cuda, x.cpu().is_cuda, paddle.device.get_available_custom_device())
        paddle.device.set_device("gpu:1")
        allocated = cuda.memory_allocated(1)
        print(paddle.rand([2]).place, paddle.get_device(), cuda.get_device_name(0), allocated)
        paddle.device.synchronize()
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record(), time.sleep(0.01), end.record()
        with cuda.stream_guard(cuda.Stream()):
            print(start.elapsed_time(end) >= 10)
        try: paddle.CUDAPlace(7)
        except ValueError as error: print(error)
        try: print([paddle.ones([1024, 1024]) for _ in range(40)])
        except MemoryError as error: print("Out of memory" in str(error), cuda.get_device_properties(0).total_memory)
        print(float(paddle.ones([1024, 1024]).sum()))
        import xdevice
        xdevice.use("paddle")
        print(xdevice.devices(), xdevice.device_of(x), xdevice.native("gpu:1"))
        print(xdevice.device_of(xdevice.to_device(x, "gpu")), xdevice.ones(2, device="gpu:1").place)
        drawn = []
        for place in ("cpu", "gpu:0", "gpu:1"):
            paddle.set_device(place)
            paddle.seed(3)
            drawn.append([paddle.rand([4]).tolist(), paddle.nn.functional.dropout(paddle.ones([8])).tolist()])
        print(drawn[0] == drawn[1] == drawn[2], flush=True)
        child = os.fork()
        if not child:
            print(paddle.to_tensor([1.0], place=paddle.CPUPlace()).sum().item(), flush=True)
            for use in (lambda: paddle.ones([2]), lambda: x + x, x.numpy):
                try: print(use(), flush=True)
                except OSError as error: print(str(error).split(".")[0], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """,
        words=("--model", "rtx4090"),
        XDEVICE_VIRTUAL_MEMORY="64MiB",
    )
    assert lines == [
        "True 2 gpu:0",
        "Place(gpu:1) Place(gpu:1) Place(cpu) Place(gpu:0) True 1",
        "Tensor(shape=[2], dtype=float32, place=Place(gpu:1), stop_gradient=True,",
        "       [1., 2.]) Place(gpu:0) ['cpu', 'gpu:0', 'gpu:1']",
        "Place(gpu:0) True False []",
        "Place(gpu:1) gpu:1 NVIDIA GeForce RTX 4090 (virtual GPU: xdevice, on the CPU) 256",
        "True",
        "(InvalidArgument) Invalid CUDAPlace(7), must inside [0, 2), because GPU number on your machine is 2.",
        "True 67108864",
        "1048576.0",
        "[Device('cpu:0'), Device('gpu:0'), Device('gpu:1')] gpu:1 Place(gpu:1)",
        "gpu:0 Place(gpu:1)",
        "True",  # a GPU draws the CPU's numbers
        # a forked process has the CPU alone, as under CUDA: C++'s message has no text of the plug-in
        "1.0",
        *["(External)  CustomDevice error, the error code is : 3"] * 3,
    ]


def test_page_locked_tensors_say_that_they_are(program):
    assert program("""
        import paddle, xdevice
        x, place = paddle.ones([2]), paddle.CUDAPinnedPlace()
        pinned = x.pin_memory()
        assert pinned.pin_memory() is pinned and pinned.place.is_cuda_pinned_place()
        made = [pinned, x.cpu().pin_memory(), paddle.to_tensor([1.0, 1.0], place=place), x._copy_to(place, True)]
        print({str(each.place) for each in made}, "gpu_pinned" in str(pinned), xdevice.device_of(pinned))
        print(pinned.cuda(1).place, pinned.cpu().place, (pinned.cuda() + 1).place, [each.tolist() for each in made])
        # an operation is computed on the current GPU, and its operand stays there
        results = [pinned.detach() + x.cpu(), made[1].sum(), paddle.zeros_like(x.pin_memory()), paddle.concat(made[2:])]
        print({str(each.place) for each in [*results, *made]}, [each.tolist() for each in results])
        paddle.set_device("gpu:1")
        x = x.cpu()
        with xdevice.watch_transfers() as report:
            print(x.pin_memory().reshape([2, 1]).place)
        print(report.copies, report.nbytes)
        """) == [
        "{'Place(gpu_pinned)'} True gpu_pinned:0",
        "Place(gpu:1) Place(cpu) Place(gpu:0) [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]",
        "{'Place(gpu:0)'} [[2.0, 2.0], 2.0, [0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]",
        "Place(gpu:1)",
        "1 8",
    ]


def test_a_network_with_every_kind_of_layer_trains_to_the_cpus_numbers(program, computed_on_cpu):
    (loss, places), (alone, on_the_cpu) = program(TRAIN), computed_on_cpu(TRAIN)
    assert on_the_cpu == "{'Place(cpu)'} {'Place(cpu)'}"
    assert float(loss) == pytest.approx(float(alone), rel=1e-5)
    assert places == "{'Place(gpu:0)'} {'Place(gpu:0)'}"


def test_16_bit_floats_are_stored_and_mixed_precision_computes_in_float32(program):
    lines = program("""
        import warnings
        import numpy as np, paddle
        print(paddle.amp.is_float16_supported(), paddle.amp.is_bfloat16_supported())
        for dtype in ("float16", "bfloat16"):
            half = paddle.ones([2, 2]).astype(dtype)
            print(half.place, half.dtype, half.cuda(1).astype("float32").tolist())
            try: half @ half
            except RuntimeError as error: print(f"{dtype}) of kernel `matmul` is not registered" in str(error))
        x, y = paddle.to_tensor(np.eye(4, 4, dtype="float32")), paddle.to_tensor([0, 1, 2, 0])
        for level, dtype in (("O1", "float16"), ("O2", "float16"), ("O2", "bfloat16")):
            net = paddle.nn.Linear(4, 4)
            adam = paddle.optimizer.Adam(parameters=net.parameters())
            if level == "O2":
                net, adam = paddle.amp.decorate(net, adam, level=level, dtype=dtype)
            scaler = paddle.amp.GradScaler()
            before = net.weight.numpy()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with paddle.amp.auto_cast(level=level, dtype=dtype):
                    out = net(x)
                    loss = paddle.nn.functional.cross_entropy(out, y)
            scaler.scale(loss).backward()
            scaler.step(adam)
            warned = any("Compute Capability" in str(each.message) for each in caught)
            print(warned, out.dtype, net.weight.dtype, net.weight.place, (net.weight.numpy() != before).all())
    """)
    assert lines == [
        "False False",
        "Place(gpu:0) paddle.float16 [[1.0, 1.0], [1.0, 1.0]]",
        "True",
        "Place(gpu:0) paddle.bfloat16 [[1.0, 1.0], [1.0, 1.0]]",
        "True",
        *["True paddle.float32 paddle.float32 Place(gpu:0) True"] * 3,
    ]


def test_what_cannot_be_on_virtual_gpus_computes_otherwise_or_raises_by_name(program):
    lines = program("""
        import numpy as np, paddle
        paddle.set_flags({"FLAGS_cudnn_deterministic": True})
        flags = paddle.base.framework._global_flags()
        print(paddle.get_flags("FLAGS_cudnn_deterministic"), "FLAGS_cudnn_deterministic" in flags, "FLAGS_no" in flags)
        for impossible in (paddle.device.cuda.graphs.CUDAGraph, lambda: paddle.device.cuda.get_device_properties(7)):
            try: impossible()
            except (AssertionError, ValueError) as error: print(error)
        print(paddle.jit.to_static(paddle.nn.Linear(2, 3))(paddle.ones([1, 2])).shape)
        whole = paddle.jit.to_static(paddle.nn.Linear(2, 3), full_graph=True)
        print(whole(paddle.ones([1, 2])).place)
        paddle.enable_static()
        x = paddle.static.data("x", [None, 2])
        loss = paddle.static.nn.fc(x, 1, weight_attr=paddle.nn.initializer.Constant(1.0)).mean()
        paddle.optimizer.SGD(0.25).minimize(loss)
        executor = paddle.static.Executor(paddle.CUDAPlace(0))
        executor.run(paddle.static.default_startup_program())
        ones = {"x": np.ones((2, 2), "float32")}
        print([float(executor.run(feed=ones, fetch_list=[loss])[0]) for _ in range(2)])
    """)
    assert lines == [
        "{'FLAGS_cudnn_deterministic': True} True False",
        "CUDA Graph is only supported on PaddlePaddle compiled with NVIDIA GPU.",
        "(InvalidArgument) Invalid CUDAPlace(7), must inside [0, 2), because GPU number on your machine is 2.",
        "paddle.Size([1, 3])",
        "Place(gpu:0)",
        "[2.0, 1.25]",
    ]


PROCESSES = """
    import json, os
    import numpy as np, paddle, paddle.distributed as dist
    from paddle import nn
    from paddle.distributed import fleet
    random = np.random.RandomState(0)
    x, y = random.rand(16, 4).astype("float32"), random.randint(0, 3, 16)

    def trained(wrap, rows):
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        for i, p in enumerate(net.parameters()):
            p.set_value(0.1 * np.sin(np.arange(p.size) + i).reshape(p.shape).astype("float32"))
        whole, adam = wrap(net), paddle.optimizer.Adam(0.01, parameters=net.parameters())
        for _ in range(3):
            nn.functional.cross_entropy(whole(paddle.to_tensor(x[rows])), paddle.to_tensor(y[rows])).backward()
            adam.step()
            adam.clear_grad()
        return net[0].weight

    def work():
        fleet.init(is_collective=True)
        rank = dist.get_rank()
        own = slice(8 * rank, 8 * rank + 8)
        weights = [trained(wrap, own) for wrap in (paddle.DataParallel, fleet.distributed_model)]
        mean, parts, objects = paddle.to_tensor(rank + 1.0), [], []
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        dist.all_gather(parts, paddle.to_tensor(rank))
        dist.all_gather_object(objects, str(parts[0].place))
        nothing, real = paddle.zeros([0]), paddle.ones([2])
        calls = [lambda: dist.alltoall([], [mean, mean]), lambda: dist.all_reduce(real.cast("complex64")),
            lambda: dist.all_gather([], real.cast("int16")), lambda: dist.all_gather([], nothing)]
        refused = []
        for call in calls:
            try: call()
            except (NotImplementedError, ValueError) as error: refused.append(str(error))
        half = real.cast("float16")
        dist.all_reduce(half)
        assert half.tolist() == [2, 2] and half.dtype == paddle.float16
        told = paddle.get_device(), str(weights[0].place), [int(part) for part in parts], objects
        with open(os.path.join(os.environ["FOLDER"], str(rank)), "w") as file:
            json.dump([rank, *told, float(mean), refused, [weight.numpy().tolist() for weight in weights]], file)

    if __name__ == "__main__":
        dist.spawn(work, nprocs=2)
        paddle.set_device("cpu")
        print(json.dumps(trained(lambda net: net, slice(None)).numpy().tolist()))
"""


@pytest.mark.weekly
def test_processes_have_a_gpu_each_and_train_together_to_the_cpus_numbers(program, tmp_path):
    alone = json.loads(program(PROCESSES, PYTHONWARNINGS="ignore", FOLDER=str(tmp_path))[-1])
    for index in range(2):
        rank, device, place, parts, objects, mean, refused, weights = json.loads(
            (tmp_path / str(index)).read_text()
        )
        assert (rank, device, place) == (index, f"gpu:{index}", f"Place(gpu:{index})")
        assert (parts, objects, mean) == ([0, 1], ["Place(gpu:0)", "Place(gpu:1)"], 1.5)
        words = [
            "all_to_all",
            "This datatype in nccl is not supported",
            "This datatype in nccl is not supported",
            "Size of tensor should be greater than 0",
        ]
        assert [word in error for word, error in zip(words, refused, strict=True)] == [True] * 4
        for weight in weights:
            np.testing.assert_allclose(weight, alone, rtol=1e-5, atol=1e-7)


@pytest.mark.weekly
def test_the_peak_has_activations_and_recomputing_them_lowers_it(program):
    lines = program("""
        import paddle
        from paddle import nn
        from paddle.distributed.fleet.utils import recompute
        cuda, rows, units, number = paddle.device.cuda, 1024, 128, 16
        relu = nn.functional.relu
        class Residual(nn.Layer):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(units, units), nn.Linear(units, units)
            def forward(self, x):
                return x + relu(self.second(relu(self.first(x))))
        segments = [nn.Sequential(*(Residual() for _ in range(4))) for _ in range(number // 4)]
        for recomputes in (False, True):
            x = paddle.ones([rows, units])
            x.stop_gradient = False
            cuda.reset_max_memory_allocated(0)
            before = cuda.memory_allocated(0)
            for segment in segments:
                x = recompute(segment, x) if recomputes else segment(x)
            x.sum().backward()
            print((cuda.max_memory_allocated(0) - before) / (rows * units * 4))
    """)
    without, with_it = map(float, lines)
    # a block keeps three results of the size of x; with it, one segment and the inputs of all
    assert 48 <= without < 54
    assert 12 <= with_it < 23
