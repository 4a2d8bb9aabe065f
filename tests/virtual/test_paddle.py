"""What only PaddlePaddle does on virtual GPUs, and about mixing devices; two virtual GPUs are there."""

import copy
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import xdevice
from xdevice import cpu, device_of, gpu, ones, strict, tensor, to_device, to_numpy
from xdevice.virtual import ENV

paddle = xdevice.backend("paddle").framework
nn, F = paddle.nn, paddle.nn.functional

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track global mean and variance")


@pytest.fixture(autouse=True)
def chosen():
    with xdevice.using("paddle"):
        xdevice.count()
        yield


def run(code, **env):
    """Run the code in a process of its own, which has asked for nothing yet."""
    clean = {name: value for name, value in os.environ.items() if name != ENV}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import xdevice\nxdevice.use('paddle')\n" + code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, **env},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


SHOW = """
try: print(xdevice.virtual_gpus(2))
except xdevice.XDeviceError as error: print(type(error).__name__, error)
"""


# ---------------------------------------------------------------- devices


def test_a_virtual_gpu_is_a_custom_device_and_the_cpu_stays_the_default():
    assert [str(xdevice.native(d)) for d in (gpu(0), gpu(1))] == ["Place(vgpu:0)", "Place(vgpu:1)"]
    assert xdevice.as_device(xdevice.native(gpu(1))) is xdevice.as_device("Place(vgpu:1)") is gpu(1)
    assert device_of(paddle.ones([2])) is cpu()
    assert {d.kind for d in xdevice.devices()} == {"cpu", "gpu"}


def test_paddles_own_factories_and_layers_take_the_native_device():
    place = xdevice.native(gpu(1))
    made = [paddle.to_tensor([1.0], place=place), nn.Linear(2, 2).to(place), paddle.ones([2])._copy_to(place, True)]
    with gpu(1):
        made += [paddle.ones([3]), paddle.rand([2]), nn.Conv2D(1, 2, 3), paddle.arange(3)]
    assert {device_of(x) for x in made} == {gpu(1)}


def test_a_tensor_tells_its_device_in_paddles_words():
    assert ones(2, device=gpu(1)).device == "vgpu:1"


def test_memory_stats_are_paddles_own_account():
    before = xdevice.memory_stats(gpu(1))["allocated"]
    x = ones(2**20, dtype="float32", device=gpu(1))
    after = xdevice.memory_stats(gpu(1))
    assert after["allocated"] - before == 2**22
    assert after["peak"] >= after["allocated"]
    del x
    assert xdevice.memory_stats(gpu(1))["allocated"] == before


def test_layers_are_copied_saved_and_loaded(tmp_path):
    net = to_device(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1D(2)), gpu(1))
    twin = copy.deepcopy(net)
    paddle.save(net.state_dict(), str(tmp_path / "net.pdparams"))
    with gpu(0):
        other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1D(2))
    other.set_state_dict(paddle.load(str(tmp_path / "net.pdparams")))
    assert (device_of(twin), device_of(other)) == (gpu(1), gpu(0))
    for name, value in net.state_dict().items():
        assert to_numpy(value).tolist() == to_numpy(other.state_dict()[name]).tolist()


def test_a_dataloader_feeds_a_virtual_gpu():
    data = paddle.io.TensorDataset([paddle.arange(6, dtype="float32").reshape([6, 1])])
    batches = [to_device(batch, gpu(1)) for (batch,) in paddle.io.DataLoader(data, batch_size=4)]
    assert [device_of(batch) for batch in batches] == [gpu(1)] * 2
    assert to_numpy(batches[1]).tolist() == [[4], [5]]


# ---------------------------------------------------------------- training


class Recurrent(nn.Layer):
    def __init__(self, embedded=False):
        super().__init__()
        self.embedding = nn.Embedding(20, 4) if embedded else None
        self.lstm, self.dense = nn.LSTM(4, 6), nn.Linear(6, 10)

    def forward(self, x):
        x = x if self.embedding is None else self.embedding(x)
        return self.dense(self.lstm(x)[0][:, -1])


class Attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layer, self.dense = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), nn.Linear(8, 10)

    def forward(self, x):
        return self.dense(self.layer(x).mean(1))


def lenet():
    return nn.Sequential(
        nn.Conv2D(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2D(2),
        nn.Conv2D(6, 16, 5), nn.BatchNorm2D(16), nn.ReLU(), nn.MaxPool2D(2),
        nn.Flatten(), nn.Linear(16 * 25, 10),
    )  # fmt: skip


NETWORKS = {
    "lenet": (lenet, (8, 1, 28, 28)),
    "lstm": (Recurrent, (8, 5, 4)),
    "embedding": (lambda: Recurrent(embedded=True), None),
    "transformer": (Attention, (8, 5, 8)),
}
OPTIMIZERS = {
    "sgd": lambda p: paddle.optimizer.SGD(0.1, parameters=p),
    "momentum": lambda p: paddle.optimizer.Momentum(0.1, parameters=p),
    "adam": lambda p: paddle.optimizer.Adam(0.01, parameters=p),
}


def trained(network, optimizer, device):
    """The parameters after three steps, from the same start, and where their gradients were."""
    make, shape = NETWORKS[network]
    paddle.seed(0)
    net, rng = to_device(make(), device), np.random.default_rng(0)
    x = rng.normal(size=shape).astype("float32") if shape else rng.integers(0, 20, (8, 5))
    x, y = tensor(x, device=device), tensor(rng.integers(0, 10, 8), device=device)
    step, places = OPTIMIZERS[optimizer](net.parameters()), set()
    with device, strict():
        for _ in range(3):
            F.cross_entropy(net(x), y).backward()
            places |= {device_of(p.grad) for p in net.parameters() if p.grad is not None}
            step.step()
            step.clear_grad()
    assert device_of(net) is device
    return [to_numpy(p) for p in net.parameters()], places


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_training_gives_the_cpus_numbers_and_stays_on_the_device(network, optimizer):
    of_cpu, _ = trained(network, optimizer, cpu())
    of_gpu, places = trained(network, optimizer, gpu(1))
    for a, b in zip(of_cpu, of_gpu, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)
    assert places == {gpu(1)}


def indices(device):
    return tensor([1, 0, 2, 1], device=device)


OPERATIONS = {
    "gather": lambda x, i: paddle.gather(x, i),
    "index_select": lambda x, i: paddle.index_select(x, i),
    "slice": lambda x, i: x[1:, ::2],
    "index": lambda x, i: x[i],
    "mask": lambda x, i: x[x > 0.5],
    "pad": lambda x, i: F.pad(x, [1, 1, 1, 1]),
    "cumsum": lambda x, i: x.cumsum(0),
    "sort": lambda x, i: paddle.sort(x),
    "topk": lambda x, i: paddle.topk(x, 2)[0],
    "where": lambda x, i: paddle.where(x > 0.5, x, x * 2),
    "cross_entropy": lambda x, i: F.cross_entropy(x, i),
    "layer_norm": lambda x, i: F.layer_norm(x, [4]),
    "concat": lambda x, i: paddle.concat([x, x]),
    "einsum": lambda x, i: paddle.einsum("ij,kj->ik", x, x),
    "inverse": lambda x, i: paddle.linalg.inv(x + 4),
    "svd": lambda x, i: paddle.linalg.svd(x)[1],
    "max_pool": lambda x, i: F.max_pool2d(x.reshape([1, 1, 4, 4]), 2),
    "interpolate": lambda x, i: F.interpolate(x.reshape([1, 1, 4, 4]), scale_factor=2),
    "take": lambda x, i: paddle.take_along_axis(x, i.reshape([4, 1]), 1),
    "scatter": lambda x, i: paddle.scatter(x, i, x),
    "embedding": lambda x, i: F.embedding(i, x),
    "padded_embedding": lambda x, i: F.embedding(i, x, padding_idx=1),
    "attention": lambda x, i: F.scaled_dot_product_attention(*[x.reshape([1, 4, 1, 4])] * 3),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operations_result_and_gradient_are_the_cpus_and_on_the_device(name):
    found = []
    numbers = np.random.default_rng(0).random((4, 4)).astype("float32")
    for device in (cpu(), gpu(1)):
        x = tensor(numbers, device=device)
        x.stop_gradient = False
        with device:
            y = OPERATIONS[name](x, indices(device))
            (y * 1.5).sum().backward()
        assert device_of(y) is device_of(x.grad) is device
        found.append((to_numpy(y), to_numpy(x.grad)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-6)


def test_gradients_accumulate_over_several_backward_passes_of_an_embedding():
    weight = ones((3, 2), device=gpu(1))
    weight.stop_gradient = False
    for _ in range(2):
        F.embedding(tensor([1, 1], device=gpu(1)), weight).sum().backward()
    assert to_numpy(weight.grad).tolist() == [[0, 0], [4, 4], [0, 0]]


# ---------------------------------------------------------------- mixing


def mixtures():
    x, y = ones((2, 2), device=gpu(0)), ones((2, 2), device=gpu(1))
    z = ones((2, 2), device=gpu(0))
    z.stop_gradient = False
    w = z * 2
    return {
        "add": lambda: x + y,
        "radd": lambda: x.__radd__(y),
        "matmul": lambda: paddle.matmul(x, y),
        "multiply": lambda: paddle.multiply(x, y),
        "concat": lambda: paddle.concat([x, y]),
        "where": lambda: paddle.where(x > 0, x, y),
        "lt": lambda: x < y,
        "add_": lambda: ones((2, 2), device=gpu(0)).add_(y),
        "backward": lambda: w.backward(y),
    }


@pytest.mark.parametrize(
    "operation", ["add", "radd", "matmul", "multiply", "concat", "where", "lt", "add_", "backward"]
)
def test_strict_names_the_operation_and_the_devices(operation):
    with strict(), pytest.raises(xdevice.MixedDeviceError, match=f"^{operation} was given tensors on") as caught:
        mixtures()[operation]()
    assert caught.value.devices == {gpu(0), gpu(1)}
    mixtures()[operation]()  # Paddle itself copies in silence


def test_strict_holds_for_paddle_grad_and_in_other_threads():
    x, y = ones(2, device=gpu(0)), ones(2, device=gpu(1))
    x.stop_gradient = False
    z, caught = x * 2, []

    def work():
        try:
            y + y * 2
            x.detach() + y
        except xdevice.MixedDeviceError as error:
            caught.append(error)

    with strict():
        with pytest.raises(xdevice.MixedDeviceError, match="backward was given"):
            paddle.grad(z, x, grad_outputs=y)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(caught) == 1


def test_strict_puts_everything_back():
    held = [(paddle._C_ops, "add"), (paddle._C_ops, "matmul"), (F, "relu"), (paddle.Tensor, "__add__")]
    before = [vars(holder)[name] for holder, name in held]
    with strict():
        assert [vars(holder)[name] is was for (holder, name), was in zip(held, before, strict=True)][:2] == [False] * 2
        assert vars(paddle.Tensor)["__add__"] is not before[3]
    assert all(vars(holder)[name] is was for (holder, name), was in zip(held, before, strict=True))


def test_strict_allows_paddles_own_words_for_a_copy():
    x, y = ones(2, device=gpu(0)), ones(2, device=gpu(1))
    with strict():
        assert device_of(x._copy_to(xdevice.native(gpu(1)), True) + y) is gpu(1)
        assert device_of(x.cpu() + 1) is cpu()


# ---------------------------------------------------------------- the plug-in


def test_after_paddle_has_been_imported_it_is_too_late():
    out = run("import paddle" + SHOW + "print(xdevice.count('gpu'))").splitlines()
    assert out[0].startswith("VirtualDeviceError 2 virtual GPUs are too late for paddle, which has been imported")
    assert out[1] == "0"


def test_it_leaves_the_environment_as_it_was():
    code = "import os\nbefore = dict(os.environ)\nxdevice.virtual_gpus(2)\nprint(before == dict(os.environ))"
    assert run(code) == "True\n"


def test_devices_of_somebody_elses_are_not_hidden_unless_forced(tmp_path):
    out = run(SHOW + "print(len(xdevice.virtual_gpus(2, force=True)))", CUSTOM_DEVICE_ROOT=str(tmp_path))
    assert f"CUSTOM_DEVICE_ROOT={tmp_path} has devices of its own" in out
    assert out.endswith("2\n")


def test_the_plug_in_is_compiled_once_and_a_broken_one_again(tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert "virtual" in run(SHOW, **cache)
    (library,) = tmp_path.rglob("*.so")
    made = library.stat().st_mtime_ns
    assert "virtual" in run(SHOW, **cache, CXX="no-such-compiler")  # not needed any more
    assert library.stat().st_mtime_ns == made
    library.write_bytes(library.read_bytes()[:1000])
    assert "virtual" in run(SHOW, **cache)
    assert sorted(file.suffix for file in tmp_path.rglob("*") if file.is_file()) == [".sha256", ".so"]


def test_two_processes_may_compile_at_once(tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(run(SHOW, XDG_CACHE_HOME=str(tmp_path / "cache"))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["virtual" in out for out in found] == [True, True]


@pytest.mark.parametrize("settings", [{"CXX": "no-such-compiler"}, {"PATH": "/nowhere"}])
def test_without_a_compiler_the_error_says_what_to_install(tmp_path, settings):
    out = run(SHOW + SHOW, XDG_CACHE_HOME=str(tmp_path / "cache"), **settings).splitlines()
    assert len(out) == 2
    for line in out:
        assert line.startswith("NotSupportedError virtual GPUs under paddle are compiled when they are first used")
        assert "install one, with apt install g++" in line


def test_a_compiler_that_fails_is_quoted(tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'fatal error: no disk' >&2\nexit 1\n")
    compiler.chmod(0o755)
    out = run(SHOW, XDG_CACHE_HOME=str(tmp_path / "cache"), CXX=str(compiler))
    assert "could not be compiled" in out
    assert "fatal error: no disk" in out


def test_where_nothing_can_be_kept_it_is_compiled_for_the_process(tmp_path):
    (tmp_path / "file").write_text("")
    assert "virtual" in run(SHOW, XDG_CACHE_HOME=str(tmp_path / "file"))


def test_a_program_ends_in_peace():
    assert run("xdevice.virtual_gpus(2)\nx = xdevice.ones(3, device='gpu:1')\nprint(float(x.sum()))") == "3.0\n"
