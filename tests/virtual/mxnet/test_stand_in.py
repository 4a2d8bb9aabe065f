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


def test_a_program_finds_gpus_computes_on_them_and_is_told_what_is_missing(program):
    lines = program("""
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
    """)
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


def test_a_network_trains_on_both_gpus_to_the_cpus_numbers(program):
    first = (
        "    import xdevice; xdevice.backend('mxnet').framework"  # imports MXNet under any NumPy
    )
    (loss, both), (alone, one) = program(TRAIN), program(first + TRAIN, gpus=False)
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


def test_pickles_files_and_dlpack_come_back_on_their_gpu_and_the_programs_own_cpus_stay_cpus(
    program,
):
    assert program("""
        import os, pickle
        import mxnet as mx
        for make in (mx.nd.ones, mx.np.ones):
            for context in (mx.gpu(1), mx.cpu(1)):
                x = pickle.loads(pickle.dumps(make((2, 3), ctx=context)))
                print(type(x).__name__, x.context, x.asnumpy().sum())
        for context in (mx.gpu(1), mx.cpu()):
            x = mx.nd.from_dlpack(mx.nd.ones(3, ctx=context).to_dlpack_for_read())
            print(x.context, x.asnumpy().sum())
        saved = os.path.join(os.path.dirname(__file__), "saved")
        sparse = mx.nd.sparse.csr_matrix(([1., 2.], [0, 1], [0, 1, 2]), shape=(2, 2), ctx=mx.gpu(1))
        rows = mx.nd.sparse.row_sparse_array(([[1., 2.]], [1]), shape=(3, 2), ctx=mx.gpu(0))
        given = {"a": mx.nd.ones(2, ctx=mx.gpu(1)), "b": sparse, "c": rows, "d": mx.nd.ones((1, 2), dtype="float16")}
        mx.nd.save(saved, given)
        for found in (mx.nd.load(saved), mx.nd.load_frombuffer(open(saved, "rb").read())):
            print(*(f"{k} {x.context} {x.stype} {x.asnumpy().sum()}" for k, x in sorted(found.items())))
        mx.npx.set_np()
        mx.npx.save(saved, [mx.np.array(2.0, ctx=mx.gpu(1)), mx.np.ones((0, 2)), mx.np.ones(2, ctx=mx.gpu(0))])
        print(*(f"{x.ctx} {x.shape}" for x in mx.npx.load(saved)))
        here = open(saved, "rb").read()
        there = [number.to_bytes(4, "little") for number in (2, 1, 7)]
        open(saved, "wb").write(here.replace(there[0] + there[1], there[0] + there[2], 1))
        try: mx.npx.load(saved)
        except mx.MXNetError as error: print(error)
        mx.npx.reset_np()
        print((mx.nd.ones(2, ctx=mx.cpu(1)) + mx.nd.ones(2, ctx=mx.cpu(1))).context)
    """) == [
        "NDArray gpu(1) 6.0",
        "NDArray cpu(0) 6.0",  # as in MXNet
        "ndarray gpu(1) 6.0",
        "ndarray cpu(0) 6.0",
        "gpu(1) 3.0",
        "cpu(0) 3.0",
        *["a gpu(1) default 2.0 b gpu(1) csr 3.0 c gpu(0) row_sparse 3.0 d cpu(0) default 2.0"] * 2,
        "gpu(1) () cpu(0) (0, 2) gpu(0) (2,)",
        "invalid device ordinal 7: there are 2 virtual GPUs",
        "cpu(1)",
    ]


def test_float16_is_computed_in_float32_and_rounded(program):
    lines = program("""
        import os
        import mxnet as mx, numpy as np
        from mxnet import autograd, gluon, nd
        rng = np.random.default_rng(0)
        def check(name, work, *shapes):
            numbers = [rng.normal(size=shape).astype("float16") for shape in shapes]
            half = [nd.array(each, dtype="float16", ctx=mx.gpu(1)) for each in numbers]
            wide = [nd.array(each.astype("float32")) for each in numbers]
            for x in half + wide:
                x.attach_grad()
            with autograd.record():
                found, expected = work(*half), work(*wide)
            autograd.backward([found, expected])
            for x, y in [(found, expected), *((h.grad, w.grad) for h, w in zip(half, wide))]:
                x, y = x.asnumpy(), y.asnumpy()
                assert x.dtype == "float16" and np.abs(x - y).max() <= 2e-3 * np.abs(y).max(), name
            print(name, found.context)
        np_ = lambda work: lambda *given: work(*(x.as_np_ndarray() for x in given))
        check("dense", lambda *given: nd.FullyConnected(*given, num_hidden=4), (2, 3), (4, 3), 4)
        check("conv", lambda *given: nd.Convolution(*given, kernel=(3, 3), num_filter=4), (1, 2, 5, 5), (4, 2, 3, 3), 4)
        check("rnn", lambda *x: nd.RNN(*x, state_size=4, num_layers=1, mode="rnn_tanh"), (3, 2, 4), (40,), (1, 2, 4))
        check("dot", nd.dot, (2, 3), (3, 2))
        check("batch_dot", nd.batch_dot, (5, 2, 3), (5, 3, 2))
        check("np.dot", np_(mx.np.dot), (2, 3), (3, 2))
        check("np.matmul", np_(mx.np.matmul), (5, 2, 3), (5, 3, 2))
        check("np.tensordot", np_(lambda x, y: mx.np.tensordot(x, y, 1)), (2, 3), (3, 2))
        x = nd.ones((2, 3), dtype="float16", ctx=mx.gpu(0))
        there = nd.zeros((2, 2), dtype="float16", ctx=mx.gpu(0))
        print(nd.dot(x, x.T, out=there) is there, there.asnumpy().tolist())
        losses = []
        for hybrid in (False, True):
            mx.random.seed(0)
            net = gluon.nn.HybridSequential()
            net.add(gluon.nn.Conv2D(4, 3, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dense(3))
            net.initialize(mx.init.Constant(0.05), ctx=mx.gpu(0))
            net.cast("float16")
            hybrid and net.hybridize()
            trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "multi_precision": True})
            data = nd.array(np.random.default_rng(1).normal(size=(4, 2, 6, 6)), dtype="float16", ctx=mx.gpu(0))
            for _ in range(3):
                with autograd.record():
                    loss = ((net(data) - 1) ** 2).sum()
                loss.backward()
                trainer.step(4)
            losses.append(loss.asscalar())
        net.export(os.path.join(os.path.dirname(__file__), "exported"))
        print(losses[0] == losses[1] > 0, loss.dtype)
        try: nd.dot(x.copyto(mx.cpu()), x.T.copyto(mx.cpu())).wait_to_read()
        except mx.MXNetError: print("no kernel")  # as without virtual GPUs
    """)
    names = "dense", "conv", "rnn", "dot", "batch_dot", "np.dot", "np.matmul", "np.tensordot"
    assert lines == [
        *(f"{name} gpu(1)" for name in names),
        "True [[3.0, 3.0], [3.0, 3.0]]",
        "True <class 'numpy.float16'>",
        "no kernel",
    ]


def test_float16_in_a_graph_is_computed_in_float32_and_rounded(program):
    assert program("""
        import os
        import mxnet as mx, numpy as np
        from mxnet import autograd, gluon
        names = "data", "conv_weight", "conv_bias", "fc_weight", "fc_bias"
        def network():
            conv = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
            halves = mx.sym.split(mx.sym.Activation(conv, act_type="relu"), num_outputs=2)
            return mx.sym.FullyConnected(halves[0] + halves[1], num_hidden=2, name="fc")
        symbol, rng = network(), np.random.default_rng(0)
        shapes = dict(zip(names, symbol.infer_shape(data=(1, 2, 5, 5))[0]))
        numbers = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        def train(graph):
            for name, value in numbers.items():
                graph.arg_dict[name][:] = mx.nd.array(value, ctx=graph.arg_dict[name].context)
            graph.forward(is_train=True)
            graph.backward(mx.nd.ones_like(graph.outputs[0]))
            return [graph.output_dict["fc_output"], *(graph.grad_dict[name] for name in names)]
        def arrays():
            return {name: mx.nd.zeros(shape, ctx=mx.gpu(1), dtype="float16") for name, shape in shapes.items()}
        expected = train(symbol.simple_bind(mx.cpu(), data=(1, 2, 5, 5)))
        bound = [
            symbol.simple_bind(mx.gpu(1), type_dict={"data": "float16"}, data=(1, 2, 5, 5)),
            symbol.bind(mx.gpu(1), {**arrays(), "of_another_graph": None}, arrays()),
            symbol.bind(mx.gpu(1), list(arrays().values()), list(arrays().values()), "write"),
        ]
        for graph in bound:
            for x, y in zip(train(graph), expected):
                assert x.dtype == np.float16 and x.context == mx.gpu(1)
                assert np.abs(x.asnumpy() - y.asnumpy()).max() <= 1e-2 * np.abs(y.asnumpy()).max()
            print(*graph.output_dict, graph.reshape(allow_up_sizing=True, data=(2, 2, 5, 5)).forward()[0].shape)
        class Casting(gluon.HybridBlock):
            def __init__(self):
                super().__init__()
                self.dense = gluon.nn.Dense(2, in_units=3)
            def hybrid_forward(self, F, x):
                return self.dense(F.cast(x, "float16"))
        block = Casting()
        block.initialize(mx.init.Constant(0.5), ctx=mx.gpu(0))
        block.dense.cast("float16")
        block.hybridize()
        x = mx.nd.ones((1, 3), ctx=mx.gpu(0))
        x.attach_grad()
        with autograd.record():
            y = block(x)
        y.backward()
        path = os.path.join(os.path.dirname(__file__), "casting")
        block.export(path)
        loaded = gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params", ctx=mx.gpu(0))
        print(y.dtype, y.asnumpy(), x.grad.asnumpy(), loaded(x).asnumpy(), loaded(x.astype("float16")).dtype)
        block = gluon.nn.HybridSequential()
        block.add(gluon.nn.Dense(2), gluon.nn.BatchNorm())
        block.initialize(ctx=mx.gpu(0))
        block.hybridize()
        for dtype in ("float32", "float64", "float16", "float32"):
            block.cast(dtype)
            print(block(mx.nd.ones((1, 3), ctx=mx.gpu(0), dtype=dtype)).dtype.__name__)
    """) == [
        *["fc_output (2, 2)"] * 3,
        "<class 'numpy.float16'> [[1.5 1.5]] [[1. 1. 1.]] [[1.5 1.5]] <class 'numpy.float16'>",
        *["float32", "float64", "float16", "float32"],
    ]


def test_operations_that_exist_for_gpus_alone_compute_there_alone(program):
    assert program("""
        import mxnet as mx, numpy as np
        from mxnet import autograd, nd
        numbers = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
        x, there = nd.array(numbers, ctx=mx.gpu(1)), mx.gpu(1)
        x.attach_grad()
        with autograd.record():
            f = nd.contrib.fft(x)
            y = nd.contrib.ifft(f) / 4
            squares = (y * y).sum()
        squares.backward()
        print(f.shape, f.context, np.allclose(f.asnumpy().view("complex64"), np.fft.fft(numbers), atol=1e-5))
        print(np.allclose(y.asnumpy(), numbers, atol=1e-5), np.allclose(x.grad.asnumpy(), 2 * numbers, atol=1e-5))
        columns, signs = nd.array([[0, 1, 1, 2]], ctx=there), nd.array([[1, 1, -1, 1]], ctx=there)
        with autograd.record():
            sketch = nd.contrib.count_sketch(x, columns, signs, out_dim=3)
        sketch.backward()
        expected = np.stack([numbers[:, 0], numbers[:, 1] - numbers[:, 2], numbers[:, 3]], 1)
        print(np.allclose(sketch.asnumpy(), expected), x.grad.asnumpy().tolist()[0])
        graph = mx.sym.contrib.fft(mx.sym.Variable("data"), compute_size=128).simple_bind(there, data=(2, 4))
        graph.arg_dict["data"][:] = x
        print(np.allclose(graph.forward()[0].asnumpy(), f.asnumpy()))
        try: nd.contrib.fft(x.copyto(mx.cpu())).wait_to_read()
        except mx.MXNetError as error: print(str(error).splitlines()[-1])
    """) == [
        "(2, 8) gpu(1) True",
        "True True",
        "True [1.0, 1.0, -1.0, 1.0]",
        "True",
        "MXNetError: fft is only available for GPU.",
    ]


def test_a_limit_of_memory_is_refused_by_name(monkeypatch):
    import xdevice
    from xdevice.virtual import mxnet as virtual

    xdevice.backend("mxnet").framework  # noqa: B018  (imports MXNet under any NumPy)
    monkeypatch.setenv("XDEVICE_VIRTUAL_MEMORY", "1GiB")
    with pytest.raises(
        xdevice.NotSupportedError,
        match=r"XDEVICE_VIRTUAL_MEMORY asks for a limit, and mxnet cannot",
    ):
        virtual.enable(2, force=True, stand_in=False)


def test_the_memory_of_a_model_is_what_the_arrays_of_the_program_take_in_mxnets_pool(program):
    lines = program(
        """
        import mxnet as mx
        def used(index=0):
            free, total = mx.context.gpu_memory_info(index)
            return (total - free) / 2**20
        print(mx.context.gpu_memory_info(1)[1] == 24217 << 20, used())
        x = mx.np.zeros((3, 2**20), ctx=mx.gpu(0))
        row, on_cpu = x[1], mx.np.zeros((3, 2**20))
        print(used())
        x.attach_grad()
        print(used(), used(1))
        del x, row
        print(used())
        y, small = mx.np.zeros(2**20 + 1, ctx=mx.gpu(0)), mx.np.zeros(1, ctx=mx.gpu(0))
        print(used())
        mx.gpu(1).empty_cache()
        print(used())
        mx.gpu(0).empty_cache()
        print(used())
    """,
        words=("--gpu-model", "rtx4090"),
    )
    assert lines == [
        "True 0.0",
        "12.0",
        "24.0 0.0",
        "24.0",
        "30.00390625",
        "30.00390625",
        "6.00390625",
    ]
