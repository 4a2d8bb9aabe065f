"""What only MXNet does on virtual GPUs, about mixing devices, and in gradients; two virtual GPUs are there."""

import numpy as np
import pytest

import xdevice
from xdevice import cpu, device_of, gpu, ones, strict, to_device, to_numpy

mx = xdevice.backend("mxnet").framework
autograd, gluon, nn = mx.autograd, mx.gluon, mx.gluon.nn
EVERYWHERE = (cpu(), gpu(0), gpu(1))


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("mxnet"), mx.util.np_shape(True), mx.util.np_array(True):
        xdevice.count()
        yield


def test_the_name_that_mxnet_prints_for_a_virtual_gpu_reads_back_as_it():
    for device in (gpu(0), gpu(1)):
        context = xdevice.native(device)
        assert xdevice.as_device(str(context)) is xdevice.as_device(repr(context)) is device
        assert xdevice.as_device(str(ones(2, device=device).ctx)) is device
    assert xdevice.as_device(str(xdevice.native("cpu"))) is cpu()


def test_a_virtual_gpu_is_a_cpu_context_and_the_programs_own_stay_cpus():
    assert [xdevice.native(d) for d in EVERYWHERE] == [mx.cpu(0), mx.cpu(1001), mx.cpu(1002)]
    assert [xdevice.as_device(mx.cpu(i)) for i in (0, 1001, 1002)] == list(EVERYWHERE)
    assert [str(xdevice.as_device(mx.cpu(i))) for i in (1, 1000, 1003)] == [
        "cpu:1",
        "cpu:1000",
        "cpu:1003",
    ]
    assert xdevice.count("cpu") == 1


def test_what_is_on_a_real_gpu_is_never_taken_for_virtual():
    from xdevice.backends.mxnet.placement import device_of_context

    # no array can be on a GPU of this machine, so the function is called instead of device_of
    with pytest.raises(
        xdevice.UnknownPlacementError, match="is on a real GPU, which virtual ones hide"
    ):
        device_of_context(mx.gpu(0))


def test_mxnets_own_factories_and_blocks_take_the_native_device():
    there = xdevice.native(gpu(1))
    net = nn.Dense(2, in_units=3)
    net.initialize(ctx=there)
    made = [mx.np.ones(3, ctx=there), mx.nd.ones(3, there), net, net(mx.np.ones((4, 3), ctx=there))]
    with there:
        made += [mx.np.zeros(2), mx.np.random.uniform(size=3)]
    assert {device_of(x) for x in made} == {gpu(1)}


def test_writing_on_one_device_changes_nothing_on_another():
    x = ones(3, device=gpu(0))
    moved = [to_device(x, gpu(1)), to_device(x, cpu()), to_device(x, gpu(0), copy=True)]
    x += 1
    assert [to_numpy(y).tolist() for y in moved] == [[1, 1, 1]] * 3


def test_a_model_and_its_trainer_work_on_both_devices_at_once():
    devices = [xdevice.native(d) for d in (gpu(0), gpu(1))]
    net = nn.Dense(1, in_units=2)
    net.initialize(mx.init.One(), ctx=devices)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore="device")
    parts = [
        ones((4, 2), device=d) for d in (gpu(0), gpu(1))
    ]  # split_and_load itself fails on NumPy 2
    with autograd.record():
        losses = [net(part).sum() for part in parts]
    autograd.backward(losses)
    trainer.step(8)
    values = [to_numpy(net.weight.data(d)).tolist() for d in devices]
    assert values[0] == values[1] == [[np.float32(0.9), np.float32(0.9)]]
    assert xdevice.devices_of(net) == {gpu(0), gpu(1)}


def test_gradients_flow_from_one_device_to_the_other():
    x = ones(3, device=gpu(0))
    x.attach_grad()
    with autograd.record():
        y = (to_device(x * 2, gpu(1)) * 3).sum()
    y.backward()
    assert device_of(y) is gpu(1)
    assert device_of(x.grad) is gpu(0)
    assert to_numpy(x.grad).tolist() == [6, 6, 6]


def test_training_mode_is_the_default():
    def dropped(w):
        return mx.npx.dropout(w, 0.5).sum()

    def kept(w):
        with autograd.predict_mode():
            return dropped(w)

    w = xdevice.ones(1000)
    assert set(xdevice.value_and_grad(dropped)(w)[1].tolist()) == {0, 2}
    assert set(xdevice.value_and_grad(kept)(w)[1].tolist()) == {1}
    with autograd.record(train_mode=False):
        assert set(xdevice.value_and_grad(dropped)(w)[1].tolist()) == {1}


@pytest.mark.parametrize("outer", [False, True])
def test_a_value_that_is_a_variable_is_detached(outer):
    variable = mx.np.ones(())
    variable.attach_grad()
    value, _ = xdevice.value_and_grad(lambda w: variable if outer else w)(ones(()))
    assert value.grad is None


def convolutions():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.AvgPool2D(), nn.Dense(10))
    return net, (8, 1, 12, 12)


class Recurrent(gluon.Block):
    def __init__(self):
        super().__init__()
        self.lstm, self.dense = gluon.rnn.LSTM(6), nn.Dense(10)

    def forward(self, x):
        return self.dense(self.lstm(x)[-1])


def recurrent():
    return Recurrent(), (5, 8, 4)


def trained(make, device, optimizer, hybridize):
    """The parameters after three steps, from the same start."""
    net, shape = make()
    rng = np.random.default_rng(0)
    x = xdevice.tensor(rng.normal(size=shape).astype("float32"), device=device)
    y = xdevice.tensor(rng.integers(0, 10, 8).astype("float32"), device=device)
    mx.random.seed(0)
    net.initialize(ctx=xdevice.native(device))
    net(x)
    for parameter in net.collect_params().values():
        parameter.set_data(
            mx.np.array(rng.normal(size=parameter.shape).astype("float32") ** 2 / 10)
        )
    if hybridize:
        net.hybridize()
    trainer, loss = (
        gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.01}),
        gluon.loss.SoftmaxCELoss(),
    )
    for _ in range(3):
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        trainer.step(8)
    assert device_of(net) is device
    return [to_numpy(p.data()) for p in net.collect_params().values()]


@pytest.mark.filterwarnings("ignore:ndarray.context has been renamed")  # by MXNet's own LSTM
@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize(
    ("make", "optimizer"), [(convolutions, "sgd"), (convolutions, "adam"), (recurrent, "adam")]
)
def test_training_gives_the_cpus_numbers(make, optimizer, hybridize):
    for of_cpu, of_gpu in zip(
        *(trained(make, d, optimizer, hybridize) for d in (cpu(), gpu(1))), strict=True
    ):
        np.testing.assert_allclose(of_gpu, of_cpu, rtol=1e-6, atol=1e-6)


def mixtures():
    x, y = ones((2, 3), device=gpu(0)), ones((2, 3), device=gpu(1))
    net = nn.Dense(2, in_units=3)
    net.initialize(ctx=xdevice.native(gpu(1)))
    net.hybridize()
    net(y)

    def backward():
        y.attach_grad()
        with autograd.record():
            z = y * 2
        z.backward(x)

    return {
        "add": lambda: x + y,
        "broadcast_add": lambda: x.as_nd_ndarray() + y.as_nd_ndarray(),
        "concatenate": lambda: mx.np.concatenate([x, y]),
        "dot": lambda: mx.np.dot(x, y.T),
        "tensordot": lambda: mx.np.tensordot(x, y.T, 1),
        "multiply": lambda: mx.np.multiply(x, x, out=y),
        "backward": backward,
    }


@pytest.mark.parametrize(
    "operation", ["add", "broadcast_add", "concatenate", "dot", "tensordot", "multiply", "backward"]
)
def test_strict_names_the_operation_and_the_devices(operation):
    mix = mixtures()[operation]
    mix()  # MXNet itself copies in silence
    with (
        strict(),
        pytest.raises(
            xdevice.MixedDeviceError, match=f"^{operation} was given tensors on"
        ) as caught,
    ):
        mix()
    assert caught.value.devices == {gpu(0), gpu(1)}
    mix()


def test_strict_holds_in_a_hybridized_block():
    net = nn.Dense(2, in_units=3)
    net.initialize(ctx=[xdevice.native(gpu(1))])
    net.hybridize()
    here, there = ones((2, 3), device=gpu(1)), ones((2, 3), device=gpu(0))
    with strict():
        assert device_of(net(here)) is gpu(1)
        graph = net._cached_op
        with pytest.raises(xdevice.MixedDeviceError, match="a hybridized block"):
            graph(there, *[p.data() for p in net.collect_params().values()])


def test_strict_allows_mxnets_own_words_for_a_copy():
    x, y = ones(3, device=gpu(0)), xdevice.zeros(3, device=gpu(1))
    with strict():
        x.copyto(y)
        y[:] = x
        assert device_of(x.as_in_ctx(y.ctx) + y) is gpu(1)
    assert to_numpy(y).tolist() == [1, 1, 1]


def test_nothing_is_left_in_the_library_after_strict():
    from mxnet.base import _LIB

    names = ("MXImperativeInvokeEx", "MXInvokeCachedOpEx", "MXNetFuncCall", "MXAutogradBackwardEx")
    before = [getattr(_LIB, name) for name in names]
    with strict():
        assert all(
            getattr(_LIB, name) is not function
            for name, function in zip(names, before, strict=True)
        )
    assert all(
        getattr(_LIB, name) is function for name, function in zip(names, before, strict=True)
    )


@pytest.mark.filterwarnings(
    "ignore:ndarray.as_in_context has been renamed"
)  # by MXNet's own indexing
def test_strict_sees_an_index_and_what_is_assigned_on_another_device():
    x, y = ones((2, 3), device=gpu(0)), ones((2, 3), device=gpu(1))
    here, there = (xdevice.tensor([0, 1], dtype="int32", device=d) for d in (gpu(0), gpu(1)))
    with strict():
        assert x[here].shape == (2, 3)
        for mix in (
            lambda: x[there],
            lambda: x.__setitem__(there, 1.0),
            lambda: x.__setitem__(0, y[0]),
        ):
            with pytest.raises(xdevice.MixedDeviceError, match="indexing was given"):
                mix()
    assert to_numpy(x).tolist() == [[1, 1, 1], [1, 1, 1]]
