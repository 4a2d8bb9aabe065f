"""MXNet programs for GPUs, unedited."""

import pytest

TRAIN = """
    import mxnet as mx, numpy as np
    from mxnet import autograd, gluon
    from mxnet.gluon import nn, rnn
    mx.random.seed(0)
    contexts = [mx.gpu(i) for i in range(mx.context.num_gpus())] or [mx.cpu()]
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.words, self.lstm = nn.Embedding(9, 8), rnn.LSTM(8, layout="NTC", input_size=8)
                self.gru, self.conv = rnn.GRU(8, layout="NTC", input_size=8), nn.Conv1D(6, 3, in_channels=6)
                self.out = nn.Dense(3)
        def hybrid_forward(self, F, x):
            h = self.gru(self.lstm(self.words(x)))
            h = F.batch_dot(F.softmax(F.batch_dot(h, h, transpose_b=True)), h)  # attention
            return self.out(F.relu(self.conv(h)))
    net = Net()
    net.initialize(mx.init.Constant(0.05), ctx=contexts)
    net.hybridize()
    rng = np.random.RandomState(0)
    words, labels = rng.randint(0, 9, (16, 6)), rng.randint(0, 3, 16)
    loss, trainer = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.Trainer(net.collect_params(), "adam", kvstore="device")
    for _ in range(3):
        split = [gluon.utils.split_and_load(part.astype("float32"), contexts) for part in (words, labels)]
        with autograd.record():
            losses = [loss(net(x), y) for x, y in zip(*split)]
        autograd.backward(losses)
        trainer.step(16)
    print(sum(float(part.sum().asscalar()) for part in losses))
    print(len(contexts), {str(part.context) for part in losses} == set(map(str, contexts)))
"""


@pytest.mark.parametrize("shares", [True, pytest.param(False, marks=pytest.mark.weekly)])
def test_a_program_finds_gpus_computes_on_them_and_is_told_what_is_missing(program, shares):
    lines = program(
        """
        import mxnet as mx
        x = mx.nd.array([[1, 2], [3, 4]], ctx=mx.gpu(0))
        print(mx.context.num_gpus(), mx.npx.num_gpus(), x.context, x.context == mx.gpu(0), x.context.device_type)
        print(str(x).splitlines()[-1], mx.nd.random.uniform(shape=2, ctx=mx.gpu(1)).context)
        with mx.Context("gpu", 1):
            print(mx.nd.ones(2).context, mx.nd.arange(3).context, mx.np.zeros(2).ctx)
        print(x.copyto(mx.gpu(1)).context, x.as_in_context(mx.cpu()).context, (x * 2).context)
        print(mx.context.gpu_memory_info(0)[1] > 2**20, mx.runtime.Features()["CUDA"], mx.kv.create("nccl").type)
        print(*(each for each in mx.runtime.feature_list() if "CUD" in each.name))
        try: mx.nd.ones(2, ctx=mx.gpu(5)).wait_to_read()
        except mx.MXNetError as error: print(error)
        mx.profiler.set_config(profile_all=True, aggregate_stats=True)
        mx.profiler.set_state("run")  # MXNet's own profiler would end the process at the next line
        x = mx.nd.dot(x, x)
        mx.nd.waitall()
        mx.profiler.set_state("stop")
        import xdevice
        print(xdevice.devices(), xdevice.device_of(x), xdevice.native("gpu:1"))
        print(xdevice.device_of(xdevice.to_device(x, "gpu:1")), xdevice.ones(2, device="gpu:1").ctx)
    """,
        shares=shares,
    )
    assert lines == [
        "2 2 gpu(0) True gpu",
        "<NDArray 2x2 @gpu(0)> gpu(1)",
        "gpu(1) gpu(1) gpu(1)",
        "gpu(1) cpu(0) gpu(0)",
        "True \u2714 CUDA device",
        "\u2714 CUDA \u2716 CUDNN \u2716 CUDA_RTC",
        "invalid device ordinal 5: there are 2 virtual GPUs",
        "[Device('cpu:0'), Device('gpu:0'), Device('gpu:1')] gpu:0 gpu(1)",
        "gpu:1 gpu(1)",
    ]


def test_a_network_trains_on_both_gpus_to_the_cpus_numbers(program, computed_on_cpu):
    (loss, both), (alone, one) = program(TRAIN), computed_on_cpu(TRAIN)
    assert (both, one) == ("2 True", "1 True")
    assert float(loss) == pytest.approx(float(alone), rel=1e-5)


def test_what_goes_wrong_says_what_it_says_of_real_gpus(program):
    lines = program("""
        import mxnet as mx
        from mxnet import gluon, nd
        x, on_cpu = nd.ones((2, 2), ctx=mx.gpu(1)), nd.ones((2, 2))
        net = gluon.nn.Dense(2, in_units=2)
        net.initialize(ctx=mx.gpu(1))
        net.hybridize()
        net(x)
        wrong = {
            "an operator": lambda: x + on_cpu,
            "of mxnet.np": lambda: mx.np.tensordot(on_cpu.as_np_ndarray(), x.as_np_ndarray(), 1),
            "hybridized": lambda: net(on_cpu),
            "memory": lambda: mx.context.gpu_memory_info(5),
        }
        for name, work in wrong.items():
            try: work()
            except mx.MXNetError as error: print(name, "|", str(error).splitlines()[-1])
        on_cpu.copyto(x)
        x[0] = on_cpu[1]
        print((x + x.copyto(mx.gpu(0))).context)
    """)
    words = "require all inputs live on the same context. But the first argument is on"
    assert lines[:2] == [
        f"an operator | Operator broadcast_add {words} gpu(1) while the 2-th argument is on cpu(0)",
        f"of mxnet.np | Operator tensordot {words} cpu(0) while the 2-th argument is on gpu(1)",
    ]
    assert lines[2].endswith("But data is on cpu(0) while dense0_weight is on gpu(1)")
    assert lines[3:] == ["memory | invalid device ordinal 5: there are 2 virtual GPUs", "gpu(1)"]


def test_parameters_are_loaded_to_the_gpu_that_is_named_and_arrays_and_pickles_to_the_cpu(program):
    assert program("""
        import os, pickle
        import mxnet as mx
        for make in (mx.nd.ones, mx.np.ones):
            x = pickle.loads(pickle.dumps(make((2, 3), ctx=mx.gpu(1))))
            print(type(x).__name__, x.context, x.asnumpy().sum())
        saved = os.path.join(os.path.dirname(__file__), "saved")
        mx.nd.save(saved, {"a": mx.nd.ones(2, ctx=mx.gpu(1)), "b": mx.nd.ones(3)})
        print(*(f"{name} {x.context} {x.asnumpy().sum()}" for name, x in sorted(mx.nd.load(saved).items())))
        net = mx.gluon.nn.Dense(2, in_units=2)
        net.initialize(mx.init.Constant(0.5), ctx=mx.gpu(1))
        net.save_parameters(saved)
        for context in (mx.gpu(1), mx.gpu(0), mx.cpu()):
            other = mx.gluon.nn.Dense(2, in_units=2)
            other.load_parameters(saved, ctx=context)
            print(other.weight.data().context, other.weight.data().asnumpy().sum())
        print((mx.nd.ones(2, ctx=mx.cpu(1)) + mx.nd.ones(2, ctx=mx.cpu(1))).context)
    """) == [
        "NDArray cpu(0) 6.0",
        "ndarray cpu(0) 6.0",
        "a cpu(0) 2.0 b cpu(0) 3.0",
        "gpu(1) 2.0",
        "gpu(0) 2.0",
        "cpu(0) 2.0",
        "cpu(1)",
    ]


def test_an_operator_without_a_kernel_of_the_cpu_is_refused_in_mxnets_words(program):
    lines = program("""
        import mxnet as mx
        x = mx.nd.ones((2, 4), dtype="float16", ctx=mx.gpu(1))
        print(x.asnumpy().dtype, (x + x).context)
        for work in (lambda: mx.nd.dot(x, x.T), lambda: mx.nd.contrib.fft(x.astype("float32"))):
            try: work().wait_to_read()
            except mx.MXNetError as error: print(str(error).splitlines()[-1])
    """)
    assert lines[0] == "float16 gpu(1)"
    assert len(lines) == 3, lines
    assert all("Error" in line for line in lines[1:]), lines


def test_a_limit_of_memory_is_refused_by_name(monkeypatch):
    import xdevice
    from xdevice.virtual import mxnet as virtual
    from xdevice.virtual.request import of_environment

    xdevice.backend("mxnet").framework  # noqa: B018  (imports MXNet under any NumPy)
    monkeypatch.setenv("XDEVICE_VIRTUAL_MEMORY", "1GiB")
    with pytest.raises(
        xdevice.NotSupportedError,
        match=r"XDEVICE_VIRTUAL_MEMORY asks for a limit, and mxnet cannot",
    ):
        virtual.enable(of_environment()._replace(number=2, force=True))
