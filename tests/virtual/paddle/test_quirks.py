"""What only PaddlePaddle does on virtual GPUs, and about mixing devices; two virtual GPUs are there."""

import copy
import os
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import xdevice
from xdevice import cpu, device_of, gpu, ones, strict, to_device, to_numpy

paddle = xdevice.backend("paddle").framework
nn, functional = paddle.nn, paddle.nn.functional
EVERYWHERE = (cpu(), gpu(0), gpu(1))

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:When training, we now always track global mean and variance"
    ),
    pytest.mark.usefixtures("plug_in"),
]


@pytest.fixture(autouse=True)
def chosen(plug_in):
    with xdevice.using("paddle"):
        yield


def python(code, *, gpus=None, **environment):
    """Run in a fresh process, as one that nothing has been asked of."""
    clean = {name: value for name, value in os.environ.items() if name != "XDEVICE_VIRTUAL_GPUS"}
    if gpus:
        clean["XDEVICE_VIRTUAL_GPUS"] = str(gpus)
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env={**clean, **environment},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def last(text):
    return text.strip().splitlines()[-1]


# The devices


def test_a_virtual_gpu_is_a_custom_device_and_the_default_stays_the_cpu():
    assert [str(xdevice.native(d)) for d in EVERYWHERE] == [
        "Place(cpu)",
        "Place(vgpu:0)",
        "Place(vgpu:1)",
    ]
    assert [xdevice.as_device(paddle.CustomPlace("vgpu", i)) for i in range(2)] == [gpu(0), gpu(1)]
    assert device_of(paddle.ones([1])) is cpu()
    assert xdevice.count("cpu") == 1
    assert "vgpu" not in xdevice.backend("paddle").hardware.kinds()


def test_paddles_own_factories_and_layers_take_the_native_device():
    there = xdevice.native(gpu(1))
    layer = nn.Linear(3, 2).to("vgpu:1")
    made = [
        paddle.to_tensor([1.0, 2.0], place=there),
        paddle.ones([3])._copy_to(there, True),
        layer,
    ]
    made.append(layer(ones((4, 3), device=gpu(1))))
    with gpu(1):
        made += [paddle.zeros([2]), paddle.rand([3]), nn.Linear(1, 1)]
    assert {device_of(x) for x in made} == {gpu(1)}


def test_an_operation_stays_where_its_tensors_are_whatever_the_default():
    for default in EVERYWHERE:
        with default:
            for device in EVERYWHERE:
                x = ones((2, 2), device=device)
                results = (
                    x + x,
                    x @ x,
                    functional.relu(x),
                    paddle.concat([x, x]),
                    x[0],
                    x.sum(),
                    x.clone(),
                    x.t(),
                )
                assert {device_of(y) for y in results} == {device}


def test_writing_on_one_device_changes_nothing_on_another():
    x = ones(3, device=gpu(0))
    moved = [to_device(x, gpu(1)), to_device(x, cpu()), to_device(x, gpu(0), copy=True)]
    x.fill_(2)
    assert [to_numpy(y).tolist() for y in moved] == [[1, 1, 1]] * 3


def test_what_a_kernel_of_the_cpu_reads_it_never_writes():
    views = {
        "reshape": lambda x: x.reshape([6]),
        "flatten": lambda x: x.flatten(),
        "unsqueeze": lambda x: x.unsqueeze(0),
        "transpose": lambda x: x.t(),
        "slice": lambda x: x[0:1],
        "assign": paddle.assign,
        "split": lambda x: paddle.split(x, 1)[0],
        "expand": lambda x: x.expand([2, 3]),
    }
    for name, operation in views.items():
        x = ones((2, 3), device=gpu(1))
        y = operation(x)
        assert device_of(y) is gpu(1), name
        y.fill_(5)
        y.add_(y)
        assert to_numpy(x).tolist() == [[1, 1, 1]] * 2, (
            name
        )  # PaddlePaddle lends the kernel the memory of x
        assert set(to_numpy(y).ravel().tolist()) == {10}, name


def test_memory_is_counted_for_each_device():
    before = [xdevice.memory_stats(d)["allocated"] for d in (gpu(0), gpu(1))]
    x = ones((1024, 256), device=gpu(1))
    during = xdevice.memory_stats(gpu(1))
    assert during["allocated"] - before[1] == 1024 * 256 * 4
    assert during["peak"] >= during["allocated"]
    assert xdevice.memory_stats(gpu(0))["allocated"] == before[0]
    del x
    assert xdevice.memory_stats(gpu(1))["allocated"] == before[1]


# Training


def lenet():
    layers = (
        nn.Conv2D(1, 6, 5, padding=2),
        nn.BatchNorm2D(6),
        nn.ReLU(),
        nn.AvgPool2D(2, 2),
        nn.Conv2D(6, 16, 5),
    )
    net = nn.Sequential(*layers, nn.Sigmoid(), nn.AvgPool2D(2, 2), nn.Flatten(), nn.Linear(256, 10))
    return net, np.random.default_rng(0).normal(size=(8, 1, 24, 24))


class Recurrent(nn.Layer):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.dense = nn.Embedding(20, 4), nn.LSTM(4, 6), nn.Linear(6, 10)

    def forward(self, x):
        return self.dense(self.lstm(self.words(x))[0][:, -1])


def recurrent():
    return Recurrent(), np.random.default_rng(0).integers(0, 20, (8, 5))


def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 10)), np.random.default_rng(0).normal(
        size=(8, 5, 8)
    )


OPTIMIZERS = {
    "SGD": lambda parameters: paddle.optimizer.SGD(0.1, parameters),
    "Momentum": lambda parameters: paddle.optimizer.Momentum(0.1, parameters=parameters),
    "Adam": lambda parameters: paddle.optimizer.Adam(0.01, parameters=parameters),
    "RMSProp": lambda parameters: paddle.optimizer.RMSProp(
        0.01, parameters=parameters, momentum=0.9, centered=True
    ),
    "AdamW": lambda parameters: paddle.optimizer.AdamW(0.01, parameters=parameters),
    "clipped": lambda parameters: paddle.optimizer.SGD(
        0.1, parameters, grad_clip=nn.ClipGradByGlobalNorm(0.5)
    ),
}


def trained(make, device, optimizer):
    """The losses and all values after four steps from the same start."""
    paddle.seed(1)
    net, data = make()
    to_device(net, device)
    with device:
        optimizer = OPTIMIZERS[optimizer](net.parameters())
        x = xdevice.tensor(data if data.dtype.kind == "i" else data.astype("float32"))
        y = xdevice.tensor(np.arange(8) % 10)
        losses = []
        for _ in range(4):
            loss = functional.cross_entropy(net(x), y)
            loss.backward()
            assert {device_of(p.grad) for p in net.parameters() if not p.stop_gradient} == {device}
            optimizer.step()
            optimizer.clear_grad()
            losses.append(loss.item())
    assert device_of(net) is device
    return losses, [to_numpy(value) for value in net.state_dict().values()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", [lenet, recurrent, transformer])
def test_training_gives_the_cpus_numbers(make, optimizer):
    with strict():
        (losses, values), (expected, others) = (
            trained(make, d, optimizer) for d in (gpu(1), cpu())
        )
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for value, other in zip(values, others, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-6, atol=1e-6)
    assert expected[-1] < expected[0]


def test_the_gradient_of_an_embedding_is_where_its_weight_is():
    words = to_device(nn.Embedding(5, 3), gpu(1))
    words(xdevice.tensor([1, 2, 1], device=gpu(1))).sum().backward()
    assert device_of(words.weight.grad) is gpu(1)


@pytest.mark.parametrize("device", [cpu(), gpu(1)], ids=str)
def test_an_embedding_has_a_first_gradient_and_no_second_one(device):
    x, weight = xdevice.tensor([1, 2, 1], device=device), ones((3, 2), device=device)
    step = xdevice.value_and_grad(lambda weight: functional.embedding(x, weight).sum())
    _, gradient = step(weight)
    assert device_of(gradient) is device
    assert to_numpy(gradient).tolist() == [[0, 0], [2, 2], [1, 1]]
    message = "The Op embedding_grad doesn't have any grad op"
    with pytest.raises((RuntimeError, OSError), match=message):
        xdevice.value_and_grad(lambda weight: step(weight)[1].sum())(weight)


def test_a_gradient_that_an_operation_leaves_elsewhere_is_brought_to_its_parameter():
    class Twice(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * to_device(gradient, cpu())

    _, gradient = xdevice.value_and_grad(lambda x: Twice.apply(x).sum())(ones(2, device=gpu(1)))
    assert device_of(gradient) is gpu(1)
    assert to_numpy(gradient).tolist() == [2, 2]


@pytest.mark.parametrize("device", EVERYWHERE, ids=str)
@pytest.mark.filterwarnings("ignore")  # of what Paddle's distributed package imports
def test_gradient_checkpointing_draws_the_same_dropout_twice(device):
    from paddle.distributed.fleet.utils import recompute

    with device:
        layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8))
        found = []
        for run in (layers, lambda x: recompute(layers, x)):
            x = ones((2, 8))
            x.stop_gradient = False
            paddle.seed(1)
            run(x).square().sum().backward()
            found.append(to_numpy(x.grad))
    assert np.array_equal(*found)


class Stays(nn.Layer):
    """A layer whose move fails."""

    def to(self, *args, **kwargs):
        raise ValueError("it stays")


def test_a_spread_model_is_put_back_where_it_was_if_the_move_fails():
    model = nn.LayerList([nn.Linear(2, 2), nn.Linear(2, 2).to("vgpu:0"), nn.BatchNorm1D(2)])
    model[0](paddle.ones([1, 2])).sum().backward()

    def state():
        tensors = [*model.parameters(), *model.buffers(), model[0].weight.grad]
        return [(str(tensor.place), tensor.data_ptr(), tensor.tolist()) for tensor in tensors]

    before, failing = state(), Stays()
    failing.weight = failing.create_parameter([2])
    with pytest.raises(ValueError, match="it stays"):
        to_device([model, failing], gpu(1))
    assert state() == before
    assert device_of(failing) is cpu()


def test_a_layer_that_has_moved_makes_parameters_of_the_dtype_that_it_had():
    layer = nn.Linear(2, 2, weight_attr=None)
    layer._dtype = "float64"
    assert to_device(layer, gpu(1))._dtype == "float64"


def test_an_optimizer_stepped_outside_the_devices_scope_may_take_its_model_elsewhere():
    with gpu(1):
        layer = nn.Linear(2, 1)
    optimizer = OPTIMIZERS["Adam"](layer.parameters())
    layer(ones((1, 2), device=gpu(1))).sum().backward()
    with gpu(0):  # where PaddlePaddle makes the optimizer's state
        with (
            strict(),
            pytest.raises(xdevice.MixedDeviceError, match=r"^adam_ was given .* gpu:0 and gpu:1"),
        ):
            optimizer.step()
        optimizer.step()
    assert device_of(layer.weight) is gpu(0)


def test_the_gradient_of_a_sparse_embedding_is_still_on_the_cpu_and_device_of_says_so():
    words = to_device(nn.Embedding(5, 3, sparse=True), gpu(1))
    words(xdevice.tensor([1, 2, 1], device=gpu(1))).sum().backward()
    assert device_of(words.weight.grad) is cpu(), "the note in virtual/paddle/repairs.py may go"
    OPTIMIZERS["SGD"](words.parameters()).step()
    assert device_of(words) is gpu(1)


@pytest.mark.skipif(
    not hasattr(paddle.Tensor, "device"), reason="PaddlePaddle has Tensor.device since 3.3"
)
def test_paddles_own_word_for_a_tensors_device_is_understood():
    assert xdevice.as_device(str(ones(1, device=gpu(1)).device)) is gpu(1)


def test_models_are_copied_saved_and_loaded(tmp_path):
    with gpu(1):
        net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1D(3))
    copied = copy.deepcopy(net)
    assert device_of(copied) is gpu(1)
    paddle.save(net.state_dict(), str(tmp_path / "net.pdparams"))
    for device in EVERYWHERE:
        with device:  # outside, PaddlePaddle 3.0 would take the model to the CPU
            other = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1D(3))
            other.set_state_dict(paddle.load(str(tmp_path / "net.pdparams")))
        assert device_of(other) is device
        for mine, theirs in zip(
            net.state_dict().values(), other.state_dict().values(), strict=True
        ):
            assert to_numpy(mine).tolist() == to_numpy(theirs).tolist()


def test_batches_of_a_loader_can_be_moved_and_trained_on():
    data = paddle.io.TensorDataset([paddle.arange(8, dtype="float32").reshape([8, 1])])
    with gpu(1):
        layer = nn.Linear(1, 1)
    seen = []
    for (batch,) in paddle.io.DataLoader(data, batch_size=4, places=[paddle.CPUPlace()]):
        moved = to_device(batch, gpu(1))
        layer(moved).sum().backward()
        seen += to_numpy(moved).ravel().tolist()
    assert seen == list(range(8))
    assert device_of(layer.weight.grad) is gpu(1)


def test_two_devices_train_at_once_and_gradients_flow_between_them():
    x = ones(3, device=gpu(0))
    x.stop_gradient = False
    y = (to_device(x * 2, gpu(1)) * 3).sum()
    with strict():
        y.backward()
    assert device_of(y) is gpu(1)
    assert device_of(x.grad) is gpu(0)
    assert to_numpy(x.grad).tolist() == [6, 6, 6]


def test_the_value_of_value_and_grad_is_detached():
    value, _ = xdevice.value_and_grad(lambda x: (x * x).sum())(ones(2))
    assert value.stop_gradient


# Mixing


def gradient(of):
    """The gradient that flows back from twice a tensor on the second GPU."""
    z = ones((2, 2), device=gpu(1))
    z.stop_gradient = False
    return of(z, z * 2)


MIXTURES = {
    "add": lambda x, y: x + y,
    "multiply_": lambda x, y: paddle.ones([2, 2])._copy_to(x.place, True).multiply_(y),
    "concat": lambda x, y: paddle.concat([x, y]),
    "stack": lambda x, y: paddle.stack([x, y]),
    "matmul": lambda x, y: paddle.matmul(x, y),
    "where": lambda x, y: paddle.where(x > 0, x, y),
    "linear": lambda x, y: to_device(nn.Linear(2, 2), gpu(1))(x),
    "conv2d": lambda x, y: functional.conv2d(x.reshape([1, 1, 2, 2]), y.reshape([1, 1, 2, 2])),
    "gt": lambda x, y: x > y,
    "backward": lambda x, y: gradient(lambda z, twice: twice.backward(x)),
    "grad": lambda x, y: gradient(lambda z, twice: paddle.grad([twice], [z], grad_outputs=[x])),
}


@pytest.mark.parametrize("operation", MIXTURES)
def test_strict_sees_every_way_of_mixing(operation):
    x, y = ones((2, 2), device=gpu(0)), ones((2, 2), device=gpu(1))
    mix = MIXTURES[operation]
    mix(x, y)  # PaddlePaddle copies without an error
    with (
        strict(),
        pytest.raises(
            xdevice.MixedDeviceError, match=" was given tensors on gpu:0 and gpu:1"
        ) as caught,
    ):
        mix(x, y)
    assert caught.value.devices == {gpu(0), gpu(1)}
    mix(x, y)


def test_strict_holds_in_other_threads():
    caught = []

    def work():
        try:
            MIXTURES["add"](ones((2, 2), device=gpu(0)), ones((2, 2), device=gpu(1)))
        except xdevice.MixedDeviceError as error:
            caught.append(error)

    with strict():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(caught) == 1


def test_strict_allows_paddles_own_words_for_a_copy():
    x, y = ones(3, device=gpu(0)), xdevice.zeros(3, device=gpu(1))
    with strict():
        y.copy_(x, True)
        assert [device_of(z) for z in (x.cpu(), x.to("vgpu:1"))] == [cpu(), gpu(1)]
        assert device_of(to_device(x, gpu(1)) + to_device(y, gpu(1))) is gpu(1)


def test_nothing_is_left_in_paddle_after_strict():
    def held():
        operations, tensor, eager = paddle._C_ops, paddle.Tensor, paddle.base.core.eager
        return {
            **{f"operation {name}": getattr(operations, name) for name in operations.__all__},
            **{f"tensor {name}": value for name, value in vars(tensor).items()},
            **{
                f"eager {name}": getattr(eager, name)
                for name in ("run_backward", "run_partial_grad")
            },
        }

    before = held()
    with strict():
        during = held()
    after = held()
    assert sum(before[name] is not during[name] for name in before) > 500
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)


# Fresh processes

CHOOSE = "import xdevice; xdevice.use('paddle'); xdevice.virtual_gpus(3); "
SHOW = "print(xdevice.count(), xdevice.device_of(xdevice.ones(2, device='gpu:2')))"


@pytest.mark.weekly
def test_they_can_be_asked_for_in_the_program_and_the_environment_stays_as_it_was():
    code = f"import os; before = dict(os.environ); {CHOOSE}{SHOW}; import paddle; print(before == dict(os.environ))"
    status, output, errors = python(code)
    assert (status, output.split("\n")[:2]) == (0, ["3 gpu:2", "True"]), errors


@pytest.mark.parametrize(
    "then",
    [
        pytest.param("xdevice.use('paddle'); import paddle", id="use", marks=pytest.mark.weekly),
        pytest.param("import paddle; xdevice.use('paddle')", id="import"),
    ],
)
def test_they_may_be_asked_for_before_paddle_is_imported_and_end_with_gradients_alive(then):
    code = f"import xdevice; xdevice.virtual_gpus(3); {then}; {SHOW}\n"
    code += "net = xdevice.to_device(paddle.nn.LSTM(2, 3), 'gpu:1')\n"
    code += "y, _ = net(xdevice.ones((1, 2, 2), device='gpu:1')); loss = y.sum(); loss.backward()"
    assert python(code) == (0, "3 gpu:2\n", "")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.SimpleRNN])
def test_a_recurrent_layers_weights_are_where_it_was_made(kind):
    with gpu(1):
        layer = kind(2, 3, num_layers=2, direction="bidirect")
    assert xdevice.devices_of(layer) == {gpu(1)}
    before = [to_numpy(weight) for weight in layer.parameters()]
    x = ones((1, 2, 2), device=gpu(1))
    found, _ = layer(x)
    moved, _ = to_device(layer, cpu())(to_device(x, cpu()))
    np.testing.assert_array_equal(to_numpy(found), to_numpy(moved))
    assert all(map(np.array_equal, before, map(to_numpy, layer.parameters())))


def test_strict_sees_an_index_and_what_is_assigned_on_another_device():
    x, y = ones((2, 3), device=gpu(0)), ones((2, 3), device=gpu(1))
    there = xdevice.tensor([0, 1], device=gpu(1))
    with strict():
        for mix in (
            lambda: x[there],
            lambda: x.__setitem__(there, 1.0),
            lambda: x.__setitem__(0, y[0]),
        ):
            with pytest.raises(xdevice.MixedDeviceError, match="item was given"):
                mix()
        x[0] = 2.0
    assert device_of(x) is gpu(0)
    x[0] = y[0]
    assert device_of(x) is gpu(1), (
        "PaddlePaddle moves it: if this fails, the docstring of mixing.py is out of date"
    )


def test_what_is_computed_of_empty_tensors_is_on_their_device(backend):
    empty = xdevice.zeros((0, 2), device="gpu:1")
    results = [
        empty + empty,
        paddle.exp(empty),
        empty.astype("int64"),
        empty.clone(),
        *paddle.unbind(empty, 1),
        paddle.concat([empty, empty]),
        xdevice.ones(3, device="gpu:1")[0:0],
    ]
    assert {xdevice.device_of(each) for each in results} == {xdevice.gpu(1)}


def test_strict_changes_no_module_of_the_program(monkeypatch):
    imported = types.ModuleType("some_program")
    imported.matmul, imported.compiled = paddle.matmul, paddle.linalg.matmul
    monkeypatch.setitem(sys.modules, "some_program", imported)
    before = dict(vars(imported))
    x, y = ones((2, 2), device=gpu(0)), ones((2, 2), device=gpu(1))
    with strict():
        assert vars(imported) == before
        # the first looks up its operation when it is called; the second is the operation itself
        for seen in (imported.matmul, paddle.linalg.matmul):
            with pytest.raises(xdevice.MixedDeviceError, match="matmul was given tensors"):
                seen(x, y)
        imported.compiled(x, y)
        imported.late = paddle.linalg.matmul
        assert imported.late is not before["compiled"]
    imported.late(x, y)
    assert paddle.linalg.matmul is before["compiled"]
    with strict(), pytest.raises(xdevice.MixedDeviceError):
        imported.late(x, y)


@pytest.mark.weekly
@pytest.mark.parametrize("imports", ["paddle, xdevice", "xdevice, paddle"])
def test_a_compiled_function_may_be_the_first_to_use_xdevice(imports, tmp_path):
    program = tmp_path / "program.py"  # a file: the compiler reads the function's source
    program.write_text(
        f"""
import {imports}

@paddle.jit.to_static(full_graph=True)
def f(x):
    return xdevice.to_device(x, "cpu") + 1

f(paddle.ones([2]))
"""
    )
    status, _, errors = python(f"import runpy; runpy.run_path({str(program)!r})")
    assert status
    assert "TracedTensorError: paddle tensor" in last(errors)
