"""What is seen of copies on two virtual GPUs: on those that stand in, and weekly on the others, too."""

import threading

import numpy as np
import pytest

import xdevice
from xdevice import TransferError, strict, to_device, transfer_guard, watch_transfers

paddle = xdevice.backend("paddle").framework
nn, CPU = paddle.nn, paddle.CPUPlace()
GPU, OTHER = (xdevice.native(f"gpu:{i}") for i in range(2))
STANDS_IN = "vgpu" not in str(GPU)
TO_HOST, TO_GPU, ACROSS = "gpu:0>host", "host>gpu:0", "gpu:0>gpu:1"

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning"
)  # Paddle's own


@pytest.fixture(autouse=True)
def chosen():
    before = paddle.device.get_device()
    paddle.device.set_device("gpu:0" if STANDS_IN else "vgpu:0")
    with xdevice.using("paddle"):
        yield
    paddle.device.set_device(before)


def on(place, *values):
    return paddle.to_tensor(list(values), dtype="float32", place=place)


def seen(report):
    """What was copied: kind, route, number and bytes."""
    return [
        (found.kind, f"{found.from_}>{found.to}", found.copies, found.nbytes)
        for found in report.findings
    ]


def copied(line, tmp_path):
    """What a line copies, where there are x = [0, 1, 2, 3] on a GPU, y on another, and c on the CPU."""
    names = {
        **globals(),
        "x": on(GPU, 0, 1, 2, 3),
        "y": on(OTHER, 1, 1, 1, 1),
        "c": on(CPU, 1, 1, 1, 1),
    }
    names["many"], names["one"] = (
        paddle.to_tensor([0, 2], place=GPU),
        paddle.to_tensor([2], place=CPU),
    )
    names["mask"], names["net"] = names["x"] > 1, nn.Linear(4, 3)
    file = tmp_path / "line.py"
    file.write_text(line)
    with watch_transfers() as report:
        exec(compile(line, file, "exec"), names)
    return seen(report)


COPIES = {
    "paddle.to_tensor([1.0, 2.0])": ("copy", TO_GPU, 1, 8),
    "paddle.to_tensor(np.ones((2, 2)), place=GPU)": ("copy", TO_GPU, 1, 32),
    "paddle.to_tensor(c, place=GPU)": ("copy", TO_GPU, 1, 16),
    "x.set_value(np.zeros(4, 'float32'))": ("copy", TO_GPU, 1, 16),
    "x.set_value(c)": ("copy", TO_GPU, 1, 16),
    "x.copy_(c, True)": ("copy", TO_GPU, 1, 16),
    "x.cpu()": ("copy", TO_HOST, 1, 16),
    "x.to('cpu')": ("copy", TO_HOST, 1, 16),
    "x.numpy()": ("copy", TO_HOST, 1, 16),
    "x._copy_to(OTHER, True)": ("copy", ACROSS, 1, 16),
    "net.to(device='cpu')": ("copy", TO_HOST, 2, 4 * (4 * 3 + 3)),
    "xdevice.to_numpy(x)": ("copy", TO_HOST, 1, 16),
    "xdevice.to_device(x, 'gpu:1')": ("copy", ACROSS, 1, 16),
    "xdevice.tensor([1.0, 2.0], device='gpu:0')": ("copy", TO_GPU, 1, 8),
    "x.sum().item()": ("number", TO_HOST, 1, 4),
    "float(x.sum())": ("number", TO_HOST, 1, 4),
    "int(x.argmax())": ("number", TO_HOST, 1, 8),
    "if x.sum() > 1: pass": ("number", TO_HOST, 1, 1),
    "x.tolist()": ("number", TO_HOST, 1, 16),
    "np.asarray(x)": ("number", TO_HOST, 1, 16),
    "x.reshape([many[1], 2])": ("number", TO_HOST, 1, 8),
    "print(x)": ("print", TO_HOST, 1, 16),
    "f'{x.sum():.2f}'": ("print", TO_HOST, 1, 4),
    "x[mask]": ("size", TO_HOST, 1, 8),
    "paddle.masked_select(x, mask)": ("size", TO_HOST, 1, 8),
    "paddle.nonzero(x)": ("size", TO_HOST, 1, 8),
    "paddle.where(mask)": ("size", TO_HOST, 1, 8),
    "paddle.unique(x)": ("size", TO_HOST, 1, 8),
    "x[[0, 2]]": ("index", TO_GPU, 1, 16),
    "x[np.array([0, 2])]": ("index", TO_GPU, 1, 16),
    "x[0:2] = np.ones(2, 'float32')": ("index", TO_GPU, 1, 8),
    "x[0:2] = c[0:2]": ("index", TO_GPU, 1, 8),
    "x + c": ("operand", TO_GPU, 1, 16),
    "c * x": ("operand", TO_GPU, 1, 16),
    "x + np.ones(4, 'float32')": ("operand", TO_GPU, 1, 16),
    "x + y": ("operand", ACROSS, 1, 16),
}
NOT = """
    x + x * 2 - 1
    x @ x
    x[0] = 3.0
    x[1], x[1:3]
    x[many]
    x.clone()
    x.add_(x)
    x.astype('float64')
    x._copy_to(GPU, True)
    paddle.where(mask, x, x * 0)
    paddle.zeros([3]), paddle.rand([3]), paddle.full([3], 2.0), paddle.arange(3)
    paddle.concat(paddle.split(x, 2))
    net(x.reshape([1, 4])).sum().backward()
    nn.functional.dropout(x), nn.functional.softmax(x)
    nn.functional.embedding(many, net.weight).sum().backward()
    nn.LSTM(4, 3)(x.reshape([1, 1, 4]))[0].sum().backward()
    paddle.optimizer.RMSProp(0.1, parameters=net.parameters()).step()
    c.numpy(), float(c.sum()), str(c), c[[0, 1]], c[c > 0]
    x.shape, x.dtype, x.place, len(x)
    to_device(x, 'gpu:0'), to_device(c, 'cpu')
"""


@pytest.mark.parametrize("line", COPIES)
def test_a_line_that_copies_is_seen(line, tmp_path):
    assert copied(line, tmp_path) == [COPIES[line]]


@pytest.mark.parametrize("line", NOT.strip().splitlines())
def test_a_line_that_does_not_copy_is_not_seen(line, tmp_path):
    assert copied(line.strip(), tmp_path) == []


def test_a_gradient_over_two_gpus_is_one_copy_back():
    x = on(GPU, 1, 2)
    x.stop_gradient = False
    with watch_transfers() as report:
        total = (to_device(x * 2, "gpu:1") ** 2).sum()
        paddle.grad(total, x)
    assert sorted((found.kind, found.from_, found.to) for found in report.findings) == [
        ("copy", "gpu:0", "gpu:1"),
        ("gradient", "gpu:1", "gpu:0"),
    ]


def test_a_copy_in_backward_is_the_line_that_calls_backward():
    x, c = on(GPU, 1, 2), on(CPU, 1, 2)
    x.stop_gradient = False
    with watch_transfers() as report:
        y = (to_device(x, "gpu:1") * to_device(c, "gpu:1")).sum()
        y.backward()
    gradients = [found for found in report.findings if found.kind == "gradient"]
    assert [(found.source, found.copies, found.nbytes) for found in gradients] == [
        ("y.backward()", 1, 8)
    ]
    assert (gradients[0].from_, gradients[0].to) == ("gpu:1", "gpu:0")


class Looking(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        norms.append(float(gradient.norm()))
        return gradient * 2


norms = []


def test_a_function_that_backward_calls_has_lines_of_its_own():
    x = on(GPU, 1, 2)
    x.stop_gradient = False
    with watch_transfers() as report:
        Looking.apply(x).sum().backward()
    assert [(found.kind, found.source) for found in report.findings] == [
        ("number", "norms.append(float(gradient.norm()))")
    ]


def test_guards_refuse_what_they_are_told_to_and_the_copy_is_not_made():
    x, c, net = on(GPU, 0, 1, 2, 3), on(CPU, 0, 0, 0, 0), nn.Linear(4, 3)
    reads = (
        lambda: x.sum().item(),
        lambda: bool(x[0]),
        lambda: x[x > 0],
        lambda: str(x),
        lambda: x.tolist(),
        lambda: x + c,
    )
    for read in reads:
        with (
            transfer_guard("forbid_implicit"),
            pytest.raises(TransferError, match=r"test_copies.py:\d+: "),
        ):
            read()
    with transfer_guard("forbid_implicit"):
        x.cpu(), c._copy_to(GPU, True), x + 1
    moves = (
        lambda: c.copy_(x, True),
        lambda: net.to(device="cpu"),
        lambda: to_device(net, "gpu:1"),
        lambda: on(GPU, 1, 2),
    )
    for move in moves:
        with (
            transfer_guard("forbid"),
            pytest.raises(TransferError, match="forbids; copy outside the block"),
        ):
            move()
    assert c.tolist() == [0, 0, 0, 0]
    assert {str(parameter.place) for parameter in net.parameters()} == {str(GPU)}
    with transfer_guard("allow", device_to_host="forbid"):
        c._copy_to(GPU, True)
        with pytest.raises(TransferError):
            x.cpu()


def test_a_forbidden_copy_in_backward_is_the_guards_error():
    x = on(GPU, 1, 2)
    x.stop_gradient = False
    y = to_device(x, "gpu:1").sum()
    with transfer_guard("forbid"), pytest.raises(TransferError, match="in the backward pass"):
        y.backward()
    assert x.grad is None
    y = Looking.apply(x).sum()
    with transfer_guard("forbid_implicit"), pytest.raises(TransferError, match="reads a number"):
        y.backward()


def test_other_errors_stay_what_they_are_after_a_refusal():
    x = on(GPU, 1, 2)
    with transfer_guard("forbid"):
        with pytest.raises(TransferError):
            x.numpy()
        with pytest.raises(ValueError, match="must be equal"):
            paddle.matmul(x, paddle.ones([3]))


def test_threads_have_levels_of_their_own():
    x, results = on(GPU, 1, 2), {}

    def read(level):
        for _ in range(50):
            try:
                with transfer_guard(level):
                    x.numpy()
                results.setdefault(level, set()).add("read")
            except TransferError:
                results.setdefault(level, set()).add("refused")

    threads = [threading.Thread(target=read, args=(level,)) for level in ("allow", "forbid")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {"allow": {"read"}, "forbid": {"refused"}}


class Images(paddle.io.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return np.sin(np.arange(784) * (i + 1)).reshape(1, 28, 28).astype("float32"), np.array(
            [i % 10]
        )


def test_batches_that_a_loaders_thread_copies_are_those_of_the_loops_line():
    with watch_transfers() as report:
        for images, _labels in paddle.io.DataLoader(Images(), batch_size=4):
            images.sum()
    ((kind, route, copies, nbytes),) = seen(report)
    assert (kind, route, copies, nbytes) == ("copy", TO_GPU, 8, 16 * (784 * 4 + 8))
    assert report.findings[0].source.startswith("for images, _labels in")
    with transfer_guard("forbid"), pytest.raises(TransferError, match=TO_GPU.replace(">", " → ")):
        next(iter(paddle.io.DataLoader(Images(), batch_size=4)))


def network():
    layers = (
        nn.Conv2D(1, 6, 5, padding=2),
        nn.Sigmoid(),
        nn.AvgPool2D(2),
        nn.Flatten(),
        nn.Linear(1176, 10),
    )
    net = nn.Sequential(*layers)
    for i, parameter in enumerate(net.parameters()):
        value = 0.1 * np.sin(np.arange(parameter.size) + i)
        parameter.set_value(value.reshape(parameter.shape).astype("float32"))
    return net


def trained(steps=3):
    """The weights of a LeNet after some steps, and what it printed."""
    net, losses = network(), []
    adam = paddle.optimizer.Adam(0.01, parameters=net.parameters())
    images, labels = (
        np.stack(parts) for parts in zip(*(Images()[i] for i in range(8)), strict=True)
    )
    for _ in range(steps):
        loss = nn.functional.cross_entropy(net(paddle.to_tensor(images)), paddle.to_tensor(labels))
        loss.backward()
        adam.step()
        adam.clear_grad()
        losses.append(loss.item())
    return losses, [parameter.numpy() for parameter in net.parameters()]


def test_watching_changes_no_number_and_counts_steps():
    losses, weights = trained()
    with watch_transfers() as report, transfer_guard("log"):
        watched_losses, watched_weights = trained()
    assert losses == watched_losses
    assert all(map(np.array_equal, weights, watched_weights))
    assert report.steps == 3
    by_line = {found.source: found for found in report.findings}
    assert (
        by_line["losses.append(loss.item())"].per_step,
        by_line["losses.append(loss.item())"].copies,
    ) == (1, 3)


@pytest.mark.skipif(not STANDS_IN, reason="hapi chooses a CUDA GPU")
def test_the_steps_of_a_model_of_hapi_are_counted():
    net = network()
    model = paddle.Model(net)
    model.prepare(paddle.optimizer.SGD(0.1, parameters=net.parameters()), nn.CrossEntropyLoss())
    with watch_transfers() as report:
        model.fit(Images(), batch_size=4, epochs=2, verbose=0)
    assert report.steps == 8


def replaced():
    holders = (
        (paddle.Tensor, "numpy"),
        (paddle.Tensor, "__add__"),
        (paddle._C_ops, "matmul"),
        (paddle.Tensor, "__init__"),
    )
    steps = (paddle.optimizer.Adam, "step"), (paddle.optimizer.Optimizer, "step")
    return [vars(holder)[name] for holder, name in (*holders, *steps)]


def test_nothing_is_left_when_no_block_is_open():
    x, before = on(GPU, 1, 2), replaced()
    with watch_transfers() as outer:
        with strict():
            during = replaced()
            x.numpy()
        with watch_transfers() as inner:
            x.numpy()
        x.numpy()
    x.numpy()
    assert (inner.copies, outer.copies) == (1, 3)
    assert replaced() == before
    assert not any(a is b for a, b in zip(before, during, strict=True))


def test_blocks_that_end_in_another_order_leave_nothing_either():
    before, first, second = replaced(), watch_transfers(), strict()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert replaced() == before


def test_a_wrapper_that_others_put_around_a_function_stays():
    before, calls = paddle.Tensor.numpy, []
    with watch_transfers():
        inner = paddle.Tensor.numpy
        paddle.Tensor.numpy = other = lambda self: calls.append(1) or inner(self)
    try:
        assert on(GPU, 1, 2).numpy().tolist() == [1, 2]
        assert paddle.Tensor.numpy is other
        assert calls == [1]
    finally:
        paddle.Tensor.numpy = before
